"""The acceptance gate: the share of the inlier store that a judged sequence belongs to. Pure.

docs/learning/inliers.md has its truth table; tests/unit/learn/live/test_gate.py has a test for each row.
"""

from __future__ import annotations

from typing import NamedTuple

from streamad.learn.store.records import Mark, Share, is_reserved
from streamad.messages import ModelRef, Verdict
from streamad.settings.learning import LearningSettings


class Gate(NamedTuple):
    """The share that a sequence belongs to, None if it is not kept, and the reason in a few words."""

    share: Share | None
    why: str


def gate(verdict: Verdict, *, settings: LearningSettings, champion: ModelRef | None, mark: Mark | None) -> Gate:
    """Return the share of the sequence of ``verdict``; ``mark`` is an operator's latest mark of it.

    ``champion`` is the model in service now or None. A verdict by another version accepts nothing (a swap came in
    between), nor does one from before the first model once there is one.
    """
    if verdict.decision == "unscorable":
        return Gate(None, "unscorable")
    if mark is not None and mark.judgement == "veto":
        return Gate(None, "vetoed by an operator")
    if mark is not None and mark.judgement == "confirmed":
        return Gate("aside", "confirmed as an anomaly by an operator")
    if is_reserved(verdict.stream, verdict.sequence, settings.reserve):
        return Gate("reserve", "reserved by the hash of its name")
    reason = _why_not(verdict, settings.accept_above, champion)
    return Gate("aside", reason) if reason else Gate("accepted", _why(verdict))


def _why_not(verdict: Verdict, accept_above: float, champion: ModelRef | None) -> str:
    if verdict.decision == "anomalous":
        return "anomalous"
    if verdict.model != champion or (verdict.decision == "normal" and champion is None):
        return "not judged by the champion"
    if verdict.decision == "normal" and not _is_above(verdict.p_value, accept_above):
        return f"p-value not above {accept_above:g}"
    return ""


def _is_above(p_value: float | None, limit: float) -> bool:
    return p_value is not None and p_value > limit


def _why(verdict: Verdict) -> str:
    return "no model yet" if verdict.decision == "learning" else "normal"
