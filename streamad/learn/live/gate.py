"""The acceptance gate: the share of the inlier store that a judged sequence belongs to. Pure.

docs/learning/inliers.md has its truth table; tests/unit/learn/live/test_gate.py has a test for each row.
"""

from __future__ import annotations

from streamad.learn.store.records import Share, is_reserved
from streamad.messages import ModelRef, Verdict
from streamad.settings.learning import LearningSettings


def gate(verdict: Verdict, *, settings: LearningSettings, champion: ModelRef | None) -> Share | None:
    """Return the share of the sequence of ``verdict``, None if it is not kept.

    ``champion`` is the model in service, or None. A verdict of another version is never accepted, nor a ``learning``
    verdict once a model serves. No word of an operator moves a sequence.
    """
    if verdict.decision == "unscorable":
        return None
    if is_reserved(verdict.stream, verdict.sequence, settings.reserve):
        return "reserve"
    return "accepted" if _is_accepted(verdict, settings.accept_above, champion) else "aside"


def _is_accepted(verdict: Verdict, accept_above: float, champion: ModelRef | None) -> bool:
    if verdict.model != champion:
        return False
    if verdict.decision == "learning":
        return True
    is_judged = verdict.decision == "normal" and champion is not None
    return is_judged and verdict.p_value is not None and verdict.p_value > accept_above
