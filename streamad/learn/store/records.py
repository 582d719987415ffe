"""The records of an inlier store: stored sequences, operators' marks, requests, the form of windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from streamad.messages import Decision, Feedback
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import UnixUs, Window

MarkKind: TypeAlias = Literal["false_alarm", "confirmed", "veto", "withdrawn"]
Effect: TypeAlias = Literal["kept_out", "false_alarm", "withdrawn"]
"""The effect of a mark: confirmed and veto both keep its sequence out of training."""
_EFFECTS: dict[MarkKind, Effect] = {
    "false_alarm": "false_alarm",
    "confirmed": "kept_out",
    "veto": "kept_out",
    "withdrawn": "withdrawn",
}


@dataclass(frozen=True, slots=True, eq=False)
class StoredSequence:
    """One judged sequence: ``window`` in engineering units, ``time_us`` its end, ``stored_us`` when it was offered.

    ``id`` is that of its verdict, ``decision`` that of ``model_version``. Before the first model the decision is
    learning, without version, score and p-value. ``only_marked``: it lies beyond the bounds of its share and is kept
    for its mark alone, so a store without marks would not have it. ``course``: what looks at it while it ran have seen,
    packed beside its window; None if none were wanted then.
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
    only_marked: bool = False
    course: bytes | None = None

    @property
    def name(self) -> str:
        """Return what people call it: its stream and sequence id, joined by /."""
        return f"{self.stream}/{self.sequence}"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's mark on the sequence ``id``; it outlives the sequence's window.

    ``at_us`` is the sender's time, ``received_us`` when the learner stored it (Unix microseconds; 0 in marks
    of former releases). ``by_verified``: a system that the sender does not control named ``by``, else it is a claim.
    """

    id: str
    judgement: MarkKind
    note: str = ""
    by: str = ""
    at_us: UnixUs
    received_us: UnixUs = 0
    by_verified: bool = False

    @property
    def effect(self) -> Effect:
        """Return what it does."""
        return _EFFECTS[self.judgement]

    @property
    def author(self) -> str:
        """Return for people who gave it: an authenticated name, or a name that is a claim; "" if none is given.

        Without characters that a terminal obeys or that turn the text around: they could hide that it is a claim.
        """
        name = "".join(each if each.isprintable() else "\ufffd" for each in self.by)
        return name if self.by_verified or not name else f"{name} (claimed)"

    @property
    def since_us(self) -> int:
        """Return when it was received; of a former release's mark its sender's time."""
        return self.received_us or self.at_us


def mark_of(feedback: Feedback, *, received_us: int = 0, by: str | None = None) -> Mark:
    """Return the mark that ``feedback``, received at ``received_us``, asks for.

    ``by`` is the authenticated name of its sender, which replaces the name in the message; None: that one is a claim.
    """
    return Mark(
        id=feedback.alert_id,
        judgement=feedback.judgement,
        note=feedback.note,
        by=feedback.by if by is None else by,
        at_us=round(feedback.created_at.timestamp() * 1e6),
        received_us=received_us,
        by_verified=by is not None,
    )


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


TrainingReason: TypeAlias = Literal["first", "effort", "schedule", "inliers", "drift", "command", "relearn"]


class TrainingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why to train, and when it was requested (Unix microseconds; from its start on: when a process took it).

    ``id``: of a request that is kept until it is answered; "" of what the learner itself has decided. ``effort``: the
    first training was quick, this one has the configured effort. ``since_us``, for relearn only: train on what ended
    since then, whatever the decision was. ``detail`` is for people.
    """

    reason: TrainingReason
    requested_us: UnixUs
    id: str = ""
    since_us: UnixUs | None = None
    detail: str = ""
