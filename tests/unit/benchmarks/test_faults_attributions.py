"""What the kill benchmark says of attributions: each kind of fault is counted."""

from __future__ import annotations

from typing import Any

from benchmarks.faults import WRONG
from benchmarks.faults_attributions import attribution_figures, n_amid_debts, n_early
from streamad.messages import Role
from tests.support.kafka.plant import ROLES, difference_of


def test_lost_repeated_and_unexplained_attributions_are_counted_by_their_alert() -> None:
    alerts = [{"alert_id": name} for name in "abc"]
    found = [
        {"alert_id": name, "method": method} for name, method in [("a", "m"), ("a", "m"), ("a", "m"), ("b", "none")]
    ]
    figures = attribution_figures(alerts, found, before_their_alert=2, kills_with_debts=5)
    assert figures == {
        "attributions": 4,
        "attributions_lost": 1,
        "attributions_repeated": 2,
        "attributions_before_their_alert": 2,
        "attributions_without_reasons": 1,
        "kills_with_open_debts": 5,
    }
    assert {name for name in figures if name in WRONG} == {name for name in WRONG if name.startswith("attributions")}


def test_an_attribution_without_alert_or_sent_before_it_is_early() -> None:
    assert n_early({"a": 1.0, "b": 2.0}, [("a", 1.0), ("b", 1.9), ("c", 9.0), ("a", 3.0)]) == 2


def test_a_kill_between_an_alert_and_its_attribution_met_a_debt() -> None:
    alerts, attributions = {"a": 1.0, "b": 5.0}, {"a": 2.0}
    assert n_amid_debts([0.5, 1.0, 1.9, 2.0, 4.9, 5.0, 9.0], alerts, attributions) == 4


def test_less_their_numbers_shares_come_in_any_order_and_channels_that_a_window_names_in_theirs() -> None:
    def outputs(shares: dict[str, float], names: list[str]) -> dict[Role, list[dict[str, Any]]]:
        channels = [{"channel": name, "share": share} for name, share in shares.items()]
        attribution = {"type": "attribution", "alert_id": "a", "channels": channels}
        window = {"type": "window", "verdict_id": "v", "channels": names}
        return {role: [] for role in ROLES} | {"attributions": [attribution], "windows": [window]}

    undisturbed = outputs({"x": 0.51, "y": 0.49}, ["y", "x"])
    assert difference_of(undisturbed, outputs({"y": 0.5, "x": 0.5}, ["y", "x"]), numbers=False).is_none
    other = difference_of(undisturbed, outputs({"x": 0.51, "y": 0.49}, ["x", "y"]), numbers=False)
    assert other.counts["lost"] == other.counts["foreign"] == 1
