"""Fields that several messages have, with their descriptions, and the structs inside of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

SCHEMA_VERSION = 2

EndReason = Literal[
    "marker",
    "change",
    "gap",
    "length",
    "restart",
    "while",
    "begin",
    "table",
    "max_duration",
    "max_samples",
    "memory",
    "end_of_input",
    "late",
]


def doc(text: str) -> msgspec.Meta:
    """Return the description that a field has in the JSON Schema."""
    return msgspec.Meta(description=text)


# Fields that several messages have.
Time = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
AlertId = Annotated[
    str,
    doc(
        "32 hex digits: a pure function of stream, sequence, first position and start. The same sequence always "
        "gets the same id, so a repeated message is recognised; the verdict's verdict_id is equal to it."
    ),
]
Stream = Annotated[str, doc("What emitted the sequence: a reactor, a line, an athlete. Also the message key.")]
Sequence = Annotated[str, doc("Id of the batch or movement.")]
Reason = Annotated[EndReason, doc("Why the sequence ended.")]
StartTime = Annotated[Time, doc("Event time of its first sample (RFC 3339, UTC).")]
EndTime = Annotated[Time, doc("Event time of its last sample (RFC 3339, UTC).")]
NSamples = Annotated[int, doc("Number of samples (distinct times).")]
NMerged = Annotated[
    int, doc("Samples of it that replaced a different value of the same channel and time: those values are lost.")
]
NLate = Annotated[int, doc("Samples of it that came too late, before its end: they are not judged.")]
Batch = Annotated[
    dict[str, str],
    doc("Its row in sequences.table: the first 16 further columns, those with text, each cut to 80 characters."),
]
CreatedAt = Annotated[Time, doc("When this message was made (RFC 3339, UTC).")]
Version = Annotated[int, doc("Version of this schema.")]
SCORE = doc("Sum of the model's K terms, without unit; higher is more anomalous. Comparable only within one model.")
P_VALUE = doc("Conformal p-value: (1 + number of held-out normal sequences scoring at least as high) / (n + 1).")
TAIL = doc(
    "empirical: p_value is a rank among the held-out normal sequences. extrapolated: they are too few for "
    "the configured false-alarm rate, and a generalised Pareto tail was fitted to them."
)
MODEL = doc("Name and version of the model that judged.")
ORIGIN = doc("Where the record came from.")


class ModelRef(msgspec.Struct, frozen=True):
    """Name and version of the model that judged."""

    name: Annotated[str, doc("Name in the registry.")]
    version: Annotated[str, doc("Version in the registry.")]


class Origin(msgspec.Struct, frozen=True):
    """Where a record came from: its partition (topic-partition or file) and offset."""

    partition: Annotated[str, doc("Topic and partition, or file.")]
    offset: Annotated[int, doc("Offset in the partition, or line of the file.")]
