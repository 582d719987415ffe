"""What the kill benchmark says of attributions: each kind of fault is counted."""

from __future__ import annotations

from benchmarks.faults import WRONG
from benchmarks.faults_attributions import attribution_figures, n_amid_debts, n_early


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
