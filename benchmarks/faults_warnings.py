"""Warnings under kills: how many were lost, repeated or after their verdict, and kills while a warned sequence ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.kafka.plant import Outputs, judged_and_running

WRONG = (
    *("warnings_lost", "warnings_repeated", "warnings_foreign", "warnings_after_their_verdict"),
    "warnings_that_no_verdict_names",
    "verdicts_that_name_no_warning",
)


def warning_figures(
    expected: Iterable[Mapping[str, Any]],
    found: Outputs,
    *,
    after_their_verdict: int,
    kills_after_a_warning: int,
) -> dict[str, int]:
    """Return the figures of the warnings in the outputs ``found``, beside those of an undisturbed run.

    Sequences that run at the end have no verdict, and an undisturbed run has not looked at all of them.
    """
    wanted = {str(warning["warning_id"]) for warning in expected}
    judged, still_run = judged_and_running(found)
    warned = Counter(str(warning["warning_id"]) for warning in judged)
    running = Counter(str(warning["warning_id"]) for warning in still_run)
    named = {name for name in map(named_in, found["verdicts"]) if name is not None}
    return {
        "warnings": warned.total(),
        "warnings_lost": len(wanted - warned.keys()),
        "warnings_repeated": sum(n - 1 for n in (*warned.values(), *running.values())),
        "warnings_foreign": len(warned.keys() - wanted),
        "warnings_after_their_verdict": after_their_verdict,
        "warnings_that_no_verdict_names": len(warned.keys() - named),
        "verdicts_that_name_no_warning": len(named - warned.keys()),
        "warnings_of_running_sequences": len(running),
        "kills_after_a_warning": kills_after_a_warning,
    }


def named_in(verdict: Mapping[str, Any]) -> str | None:
    """Return the id of the warning that ``verdict`` names, if it names one."""
    warning = verdict.get("warning")
    return None if warning is None else str(warning["warning_id"])


def n_after_their_verdict(warnings_s: Iterable[tuple[str, float]], verdicts_s: Mapping[str, float]) -> int:
    """Return how many warnings were sent after the verdict that names them; both by warning_id, with their times."""
    return sum(sent_s > verdicts_s.get(name, sent_s) for name, sent_s in warnings_s)
