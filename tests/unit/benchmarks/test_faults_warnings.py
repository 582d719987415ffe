"""What the kill benchmark says of warnings: each kind of fault is counted."""

from __future__ import annotations

from typing import Any

from benchmarks.faults_warnings import WRONG, n_after_their_verdict, warning_figures
from streamad.messages import Role
from tests.support.kafka.plant import difference_of


def of(name: str, **more: Any) -> dict[str, Any]:
    return {"stream": "s", "sequence": name, **more}


def test_lost_repeated_and_unnamed_warnings_are_counted_by_their_id() -> None:
    found: dict[Role, list[dict[str, Any]]] = {
        "warnings": [of(name, warning_id=name) for name in "aaabxrr"],
        "verdicts": [of(name, warning={"warning_id": name}) for name in "axyz"] + [of("b"), of("c", warning=None)],
    }
    expected = [{"warning_id": name} for name in "abc"]
    figures = warning_figures(expected, found, after_their_verdict=2, kills_after_a_warning=5)
    assert figures == {
        "warnings": 5,
        "warnings_lost": 1,
        "warnings_repeated": 3,
        "warnings_foreign": 1,
        "warnings_after_their_verdict": 2,
        "warnings_that_no_verdict_names": 1,
        "verdicts_that_name_no_warning": 2,
        "warnings_of_running_sequences": 1,
        "kills_after_a_warning": 5,
    }
    of_use = {"warnings", "warnings_of_running_sequences", "kills_after_a_warning"}
    assert set(WRONG) == figures.keys() - of_use


def test_a_warning_comes_before_its_verdict_or_with_it() -> None:
    assert n_after_their_verdict([("a", 1.0), ("b", 2.1), ("c", 9.0)], {"a": 1.0, "b": 2.0}) == 1


def test_reasons_of_warnings_and_warnings_of_running_sequences_are_not_compared() -> None:
    def outputs(warned: str, explained: str) -> dict[Role, list[dict[str, Any]]]:
        attributions = [{"alert_id": name} for name in explained]
        warnings = [of(name, warning_id=name) for name in warned]
        return {"warnings": warnings, "attributions": attributions, "verdicts": [of("w", verdict_id="v")]}

    undisturbed = outputs("w", "a")
    assert difference_of(undisturbed, outputs("wr", "war"), numbers=True).is_none
    assert difference_of(undisturbed, outputs("w", "w"), numbers=True).counts["lost"] == 1
    assert difference_of(undisturbed, outputs("", "a"), numbers=True).counts["lost"] == 1
    assert difference_of(undisturbed, outputs("ww", "a"), numbers=True).counts["repeated"] == 1
