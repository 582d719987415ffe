"""The message about a sequence that still runs: it leaves the normal course."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from streamad.messages.fields import (
    MODEL,
    SCHEMA_VERSION,
    TAIL,
    CreatedAt,
    ModelRef,
    Sequence,
    StartTime,
    Stream,
    Time,
    Version,
    doc,
)

WarningId = Annotated[
    str,
    doc(
        "32 hex digits: a pure function of stream, sequence and start. The same sequence always gets the same id, so a "
        "repeated message is recognised; its attribution has it as alert_id."
    ),
]
Age = Annotated[
    float, doc("Age of the sequence at the look, as a share of the usual length: 1 is the median of the training.")
]


class WarningRef(msgspec.Struct, frozen=True):
    """The warning of a sequence, as its verdict names it."""

    warning_id: WarningId
    age: Age


class EarlyWarning(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="warning"):
    """A sequence that still runs leaves the normal course; at most one for each sequence, before its verdict.

    A warning changes nothing about the verdict. A normal sequence is ever warned of with a probability of at most
    ``false_alarm_rate``, however often it was looked at.
    """

    warning_id: WarningId
    stream: Stream
    sequence: Sequence
    start_time: StartTime
    time: Annotated[Time, doc("Event time of the last point that the look saw (RFC 3339, UTC).")]
    n_points: Annotated[int, doc("Points of the sequence up to there: samples, or points of the configured grid.")]
    age: Age
    look: Annotated[int, doc("Number of the look, from 1.")]
    score: Annotated[
        float, doc("Largest deviation of all looks so far, each on its own scale: spreads above its median.")
    ]
    p_value: Annotated[
        float,
        doc(
            "Conformal p-value: (1 + number of held-out normal sequences whose largest deviation of all their looks is "
            "at least as high) / (n + 1). It never rises from look to look."
        ),
    ]
    false_alarm_rate: Annotated[float, doc("The configured rate: a warning is raised when p_value is at most this.")]
    tail: Annotated[Literal["empirical", "extrapolated"], TAIL]
    model: Annotated[ModelRef, MODEL]
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION
