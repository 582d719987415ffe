"""What learning keeps of a sequence: the window, where it came from, what was decided, what an operator said."""

from __future__ import annotations

__all__ = ["SHARES", "JudgementWord", "Mark", "Share", "StoredSequence", "mark_of"]

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import msgspec

from streamad.types import Decision, Feedback, Window

Share: TypeAlias = Literal["accepted", "reserve", "aside"]
"""accepted: may train. reserve: calibrates and compares, never trains. aside: not accepted; kept for feedback and for
learning anew after a lasting change."""
SHARES: tuple[Share, ...] = get_args(Share)
JudgementWord: TypeAlias = Literal["false_alarm", "confirmed", "veto"]


@dataclass(frozen=True, slots=True, eq=False)
class StoredSequence:
    """One judged sequence: ``window`` in engineering units, ``time_us`` its end, ``stored_us`` when it was offered.

    ``id`` is that of its verdict. ``decision`` is that of ``model_version``; where there was no model, it is learning
    and there is neither version nor score nor p-value.
    """

    id: str
    stream: str
    sequence: str
    time_us: int
    stored_us: int
    window: Window
    decision: Decision
    score: float | None = None
    p_value: float | None = None
    model_version: str | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator said of the sequence ``id``; kept for ever, also where its window is gone."""

    id: str
    judgement: JudgementWord
    note: str = ""
    by: str = ""
    at_us: int


def mark_of(feedback: Feedback) -> Mark:
    """Return the mark that ``feedback`` asks for."""
    at_us = round(feedback.created_at.timestamp() * 1e6)
    return Mark(id=feedback.alert_id, judgement=feedback.judgement, note=feedback.note, by=feedback.by, at_us=at_us)
