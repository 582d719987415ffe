"""The records that cross room doors, and the messages that leave the house.

Shapes: n samples, C channels, L window length, K transformations, B windows, N sequences.
Event and record times are integer microseconds since the Unix epoch (one tick = 1 µs), so that limits are exact.
"""

from __future__ import annotations

__all__ = [
    "SCHEMA_VERSION",
    "Alert",
    "Attribution",
    "BoolArray",
    "ChannelShare",
    "ChannelSpec",
    "DeadLetter",
    "Decision",
    "EndReason",
    "Event",
    "Feedback",
    "FinishedSequence",
    "FloatArray",
    "IntArray",
    "LateRecord",
    "Message",
    "ModelRef",
    "Origin",
    "OutputRecord",
    "PartitionAssigned",
    "PartitionEnded",
    "PartitionRevoked",
    "Position",
    "Promotion",
    "Rebalanced",
    "Record",
    "RecordBatch",
    "Role",
    "SampleBlock",
    "SourceEvent",
    "SourceNotice",
    "Tail",
    "TermShare",
    "Verdict",
    "Window",
    "WindowSet",
    "constant_channels",
    "from_us",
    "message_types",
]

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

EndReason = Literal["marker", "change", "gap", "length", "max_duration", "max_samples", "memory", "end_of_input"]
Decision = Literal["normal", "anomalous", "unscorable", "learning"]
Tail = Literal["empirical", "extrapolated"]
Role = Literal["alerts", "attributions", "verdicts", "dead_letters", "late", "events", "feedback", "control"]

SCHEMA_VERSION = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_us(time_us: int) -> datetime:
    """Return the UTC datetime of ``time_us`` microseconds since the Unix epoch."""
    return _EPOCH + timedelta(microseconds=time_us)


class ChannelSpec(msgspec.Struct, frozen=True):
    """One named sensor signal and its unit; the order of the specs is the order in every array."""

    name: str
    unit: str = ""


class Position(NamedTuple):
    """Where a sample lies in its partition: the record's offset and the index inside a chunk."""

    offset: int
    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody needs here


# --- what a source yields ------------------------------------------------------------------------------------------


class Record(msgspec.Struct, frozen=True, gc=False):
    """One raw message of a partition.

    ``timestamp_us`` is the record's own time (None where the medium has none: the event time stands in).
    ``native`` marks bytes that the connector itself wrote as streamad's own msgpack format, whatever ``decode`` says.
    """

    offset: int
    value: bytes
    timestamp_us: int | None = None
    key: bytes | None = None
    native: bool = False


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Consecutive records of one partition, in offset order.

    ``next_offset`` is the offset to read after this batch; ``caught_up`` says that nothing waits behind it, so
    wall-clock idle time may count. A batch may be empty (a poll that found nothing).
    ``begins_at`` is the offset sought, or the ``next_offset`` of the batch before: a batch that does not continue there
    was read before the last ``seek`` and is dropped. None where a source never delivers such batches.
    ``end_offset`` is the offset behind the last record that the source knows of (None: not known); the lag is its
    distance from ``next_offset``.
    """

    partition: str
    records: tuple[Record, ...]
    next_offset: int
    caught_up: bool = False
    begins_at: int | None = None
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionAssigned:
    """The source offers a partition; it delivers nothing of it before ``Source.seek`` was called.

    ``seen_from_start`` is False where samples before the first delivered one may exist unseen (start at "latest",
    ``--since``, retention): the first sequences of such a partition are ``unscorable: partial``.
    """

    partition: str
    seen_from_start: bool = True


@dataclass(frozen=True, slots=True)
class PartitionRevoked:
    """The partition now belongs to somebody else: forget its state, commit nothing more for it."""

    partition: str


@dataclass(frozen=True, slots=True)
class PartitionEnded:
    """A finite partition was read to its end: its open sequences end with ``end_of_input``.

    ``next_offset`` is that of its last batch, or the offset sought: an end from before the last ``seek`` does not
    count. None where a source never delivers such an end.
    """

    partition: str
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class SourceNotice:
    """Something that an operator should know of the source: it becomes an Event and a warning in the log."""

    kind: str
    message: str
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The group has shared out its partitions anew; ``partitions`` are ours now, those kept among them."""

    partitions: tuple[str, ...]


SourceEvent: TypeAlias = RecordBatch | PartitionAssigned | PartitionRevoked | PartitionEnded | SourceNotice | Rebalanced


# --- samples, sequences, windows ------------------------------------------------------------------------------------


class SampleBlock(msgspec.Struct, gc=False):
    """The samples of one record: one stream, one sequence id (None where the messages carry none).

    ``times_us`` int64 [n], never decreasing; ``values`` float32 [n, C] with NaN for missing; ``indexes`` int64 [n]
    places of the samples inside their record, None for 0..n-1. ``end`` marks the last sample as the sequence's end.
    ``relative``: the times count from the sequence's start instead of the epoch. ``route`` is the value of the field
    that chooses the model (``models.field``), None where there is none.
    """

    stream: str
    sequence: str | None
    offset: int
    times_us: IntArray
    values: FloatArray
    end: bool = False
    indexes: IntArray | None = None
    relative: bool = False
    route: str | None = None

    def __len__(self) -> int:
        return len(self.times_us)


@dataclass(frozen=True, slots=True, eq=False)
class FinishedSequence:
    """All samples of one sequence, ordered by time: ``times_us`` int64 [n], ``values`` float32 [n, C], NaN = missing.

    ``first_position`` is the lowest position of its samples; ``partial`` says that its beginning may have gone unseen;
    ``duplicates`` counts readings that a later one of the same time replaced. ``routes`` holds the different values of
    the field that chooses the model, in order of their positions: more than one cannot be judged.
    """

    stream: str
    sequence: str
    reason: EndReason
    times_us: IntArray
    values: FloatArray
    first_position: Position
    partial: bool = False
    duplicates: int = 0
    routes: tuple[str, ...] = ()

    @property
    def start_us(self) -> int:
        """Return the first sample's time."""
        return int(self.times_us[0])

    @property
    def end_us(self) -> int:
        """Return the last sample's time."""
        return int(self.times_us[-1])

    @property
    def n_samples(self) -> int:
        """Return the number of samples, those of equal time merged."""
        return len(self.times_us)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A sequence in model form: ``values`` float32 [C, L] in engineering units, zero from ``length`` on."""

    values: FloatArray
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class WindowSet:
    """N windows with their ids: ``values`` float32 [N, C, L], ``lengths`` int64 [N]."""

    values: FloatArray
    lengths: IntArray
    ids: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: npt.NDArray[np.intp] | IntArray | list[int]) -> WindowSet:
        """Return the windows at ``index``, in that order."""
        rows = np.asarray(index, dtype=np.int64)
        return WindowSet(self.values[rows], self.lengths[rows], tuple(self.ids[i] for i in rows))


# --- messages out ---------------------------------------------------------------------------------------------------


class ModelRef(msgspec.Struct, frozen=True):
    """Name and version of the model that judged."""

    name: str
    version: str


class Origin(msgspec.Struct, frozen=True):
    """Where a record came from: its partition (topic-partition or file) and offset."""

    partition: str
    offset: int


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """The message for an anomalous sequence.

    ``alert_id`` is a pure function of stream, sequence and first position, so a repeated message is recognised.
    ``p_value`` is the share of held-out inliers scoring at least as high; ``tail: extrapolated`` says that the
    calibration set is too small for it and a generalised Pareto tail stands in.
    """

    alert_id: str
    stream: str
    sequence: str
    reason: EndReason
    start_time: datetime
    end_time: datetime
    n_samples: int
    score: float
    p_value: float
    false_alarm_rate: float
    tail: Tail
    model: ModelRef
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class TermShare(msgspec.Struct, frozen=True, kw_only=True):
    """One transformation's term of the score and the share of held-out inliers whose own term lies below it."""

    transformation: int
    term: float
    calibration_quantile: float


class ChannelShare(msgspec.Struct, frozen=True, kw_only=True):
    """How much the score falls when this channel is replaced by a normal one, as a share of all channels' falls."""

    channel: str
    unit: str
    share: float


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Why a sequence was anomalous: the K terms, the dominating transformation, and the channels' shares.

    ``channels`` is ordered by falling share; ``method`` names how the shares were computed.
    """

    alert_id: str
    stream: str
    sequence: str
    score: float
    terms: list[TermShare]
    dominating_transformation: int
    channels: list[ChannelShare]
    method: str
    tail: Tail
    model: ModelRef
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one sequence; exactly one per sequence.

    ``detail`` says why it was unscorable, or how far its model's learning is.
    """

    verdict_id: str
    stream: str
    sequence: str
    decision: Decision
    reason: EndReason
    start_time: datetime
    end_time: datetime
    n_samples: int
    score: float | None = None
    p_value: float | None = None
    tail: Tail | None = None
    detail: str | None = None
    model: ModelRef | None = None
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable record: its bytes (base64; cut above ``max_dead_letter_bytes``), size, sha256, origin, and why."""

    origin: Origin
    kind: str
    error: str
    value: bytes
    key: bytes | None = None
    truncated: bool = False
    size_bytes: int
    sha256: str
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class LateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Samples that came too late: for a closed sequence (``closed``) or beyond ``allowed_lateness`` (``late``)."""

    origin: Origin
    stream: str
    sequence: str | None
    cause: Literal["closed", "late"]
    times: list[datetime]
    values: list[list[float | None]]
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator should know of that is no verdict: kind (a stable word), what, where, and its figures."""

    kind: str
    message: str
    partition: str | None = None
    stream: str | None = None
    model: ModelRef | None = None
    figures: dict[str, float] = {}
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of a sequence, by the id of its alert or verdict. The latest word on an id counts.

    ``false_alarm``: it was normal and may train. ``confirmed``: it was an anomaly and never trains, but tests.
    ``veto``: it must neither train nor test nor calibrate. ``model`` is the name in the alert's ``model``; without it
    every model of the plant keeps the word.
    """

    alert_id: str
    judgement: Literal["false_alarm", "confirmed", "veto"]
    note: str = ""
    by: str = ""
    model: str | None = None
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """Says that ``version`` of ``model`` went into service: running workers look into the registry, which decides."""

    model: str
    version: str
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


Message: TypeAlias = Alert | Attribution | Verdict | DeadLetter | LateRecord | Event | Feedback | Promotion


def message_types() -> dict[str, type[Any]]:
    """Return the outgoing message types by their schema name, as ``streamad schema`` exports them."""
    return {
        "alert": Alert,
        "attribution": Attribution,
        "verdict": Verdict,
        "dead_letter": DeadLetter,
        "late": LateRecord,
        "event": Event,
        "feedback": Feedback,
        "promotion": Promotion,
    }


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One message on its way to the sink of a role; ``key`` is the stream (the partition for dead letters)."""

    role: Role
    key: str
    message: Message


_CONSTANT_SHARE = 1e-6  # of a channel's largest absolute value: below it, variation is float32 rounding


def constant_channels(data: WindowSet) -> IntArray:
    """Return the indexes of the channels without variation in the valid samples of finite windows [N, C, L], N >= 1."""
    valid = np.arange(data.values.shape[2]) < data.lengths[:, None]
    samples = data.values.transpose(0, 2, 1)[valid]
    highest, lowest = samples.max(axis=0).astype(np.float64), samples.min(axis=0).astype(np.float64)
    largest = np.maximum(np.abs(highest), np.abs(lowest))
    return np.flatnonzero(highest - lowest <= _CONSTANT_SHARE * largest).astype(np.int64)
