"""What learning keeps of a sequence: the window, where it came from, what was decided, what an operator said."""

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


class WindowForm(msgspec.Struct, frozen=True, kw_only=True):
    """How the windows were made that the model knows; serving must make them the same way."""

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
    """Return whether the sequence belongs to the reserve: a hash of its name alone, known before it is scored.

    True for ``share`` of all names in the long run, whatever their pattern; the same in every process and release.
    """
    return _draw("reserve", stream, sequence) < share


def reserve_half(stream: str, sequence: str) -> Literal["calibration", "comparison"]:
    """Return what a reserved sequence is for: a second hash, independent of the one that reserved it."""
    return "calibration" if _draw("half", stream, sequence) < 0.5 else "comparison"


def _draw(purpose: str, stream: str, sequence: str) -> float:
    """Return a number in [0, 1) that depends on nothing but its arguments, uniform over names."""
    name = msgspec.json.encode([stream, sequence])  # unlike joined text, an array cannot mean two names
    digest = blake2b(name, digest_size=8, person=purpose.encode()).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53
