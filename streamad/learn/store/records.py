"""The records of an inlier store: stored sequences, operators' marks, the form of windows, the reserve."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeAlias, get_args

import msgspec

from streamad.messages import Decision, Feedback
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import Window

Share: TypeAlias = Literal["accepted", "reserve", "aside"]
"""accepted: may train. reserve: calibrates and compares, never trains. aside: not accepted; kept for feedback and for
relearning after a lasting change."""
SHARES: tuple[Share, ...] = get_args(Share)
MarkKind: TypeAlias = Literal["false_alarm", "confirmed", "veto"]


@dataclass(frozen=True, slots=True, eq=False)
class StoredSequence:
    """One judged sequence: ``window`` in engineering units, ``time_us`` its end, ``stored_us`` when it was offered.

    ``id`` is that of its verdict, ``decision`` that of ``model_version``. Before the first model the decision is
    learning, without version, score and p-value.
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

    @property
    def name(self) -> str:
        """Return what people call it: its stream and sequence id, joined by /."""
        return f"{self.stream}/{self.sequence}"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's mark on the sequence ``id``; it outlives the sequence's window."""

    id: str
    judgement: MarkKind
    note: str = ""
    by: str = ""
    at_us: int


def mark_of(feedback: Feedback) -> Mark:
    """Return the mark that ``feedback`` asks for."""
    at_us = round(feedback.created_at.timestamp() * 1e6)
    return Mark(id=feedback.alert_id, judgement=feedback.judgement, note=feedback.note, by=feedback.by, at_us=at_us)


class WindowForm(msgspec.Struct, frozen=True, kw_only=True):
    """How windows are made; service must make them as training did."""

    length: int
    resample_period_us: int | None
    longer: str
    max_missing: float
    min_samples: int

    @classmethod
    def of(cls, window: WindowSettings) -> WindowForm:
        """Return the form that the settings describe."""
        return cls(
            length=window.length,
            resample_period_us=window.resample.period if window.resample else None,
            longer=window.longer,
            max_missing=window.max_missing,
            min_samples=window.min_samples,
        )


def is_reserved(stream: str, sequence: str, share: float) -> bool:
    """Return whether the sequence belongs to the reserve, by a hash of its name alone, so before it is scored.

    True for ``share`` of all names in the long run, whatever their pattern; the same in every process and release.
    """
    return _draw("reserve", stream, sequence) < share


def reserve_half(stream: str, sequence: str) -> Literal["calibration", "comparison"]:
    """Return the half of the reserve that a sequence belongs to, by a second, independent hash."""
    return "calibration" if _draw("half", stream, sequence) < 0.5 else "comparison"


def _draw(purpose: str, stream: str, sequence: str) -> float:
    """Return a number in [0, 1) that depends on its arguments alone, uniform over names."""
    name = msgspec.json.encode([stream, sequence])  # unlike joined text, an array cannot mean two names
    digest = blake2b(name, digest_size=8, person=purpose.encode()).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53
