"""The records that packages exchange: source events, samples, sequences, windows.

Shapes: n samples, C channels, L window length, K transformations, B windows, N sequences.
Event and record times are integer microseconds since the Unix epoch (one tick = 1 µs), so that limits are exact.
"""

from __future__ import annotations

__all__ = [
    "BAD_REASONS",
    "FILE_OFFSETS",
    "BadValues",
    "BoolArray",
    "Boundary",
    "ChannelSpec",
    "FeedRecord",
    "FinishedSequence",
    "FloatArray",
    "IntArray",
    "PartitionAssigned",
    "PartitionEnded",
    "PartitionRevoked",
    "Position",
    "Rebalanced",
    "Record",
    "RecordBatch",
    "SampleBlock",
    "SourceEvent",
    "SourceNotice",
    "StoredMessage",
    "TrainingProgress",
    "TrainingStep",
    "TrainingSummary",
    "UnixUs",
    "Window",
    "WindowSet",
    "from_us",
]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.messages import EndReason

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
MAX_TIME_US = 7_258_118_400_000_000
"""2200-01-01T00:00:00Z: later event times mean a wrong unit."""
UnixUs: TypeAlias = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)]
"""Microseconds since the Unix epoch within the years 1 to 9999; msgspec decodes no other, so that it is a datetime."""

CONSTANT_SHARE = 1e-6  # of a channel's largest absolute value: below it, variation is float32 rounding
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_us(time_us: int) -> datetime:
    """Return the UTC datetime of ``time_us`` microseconds since the Unix epoch."""
    return _EPOCH + timedelta(microseconds=time_us)


def to_us(time: datetime) -> int:
    """Return the microseconds since the Unix epoch of a datetime with a zone."""
    return (time - _EPOCH) // timedelta(microseconds=1)


class ChannelSpec(msgspec.Struct, frozen=True):
    """One named sensor signal and its unit; the order of the specs is the order in every array.

    ``fill``: its values hold from one reading to the next. Unset it is no part of what is stored, as before there was
    a choice.
    """

    name: str
    unit: str = ""
    fill: Literal["hold"] | msgspec.UnsetType = msgspec.UNSET


FILE_OFFSETS = 2**40
"""Offsets of one file of several that are one partition: the n-th file has those from n x 2^40 on."""


class Position(NamedTuple):
    """Where a sample lies in its partition: the record's offset and the index inside a chunk."""

    offset: int
    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody needs here


# --- what a source yields ------------------------------------------------------------------------------------------


SequenceFrom: TypeAlias = Literal["message", "file", "folder"]
"""The origin of a sequence's id: a field of the message, the name of its file, or the name of the file's folder."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One raw message of a partition.

    ``timestamp_us`` is the record's own time (None if the medium has none: the event time is used).
    ``native`` marks bytes that the connector itself wrote in streamad's own msgpack format, whatever ``decode`` says.
    ``sequence`` is the id that the source gives (the name of the file or of its folder), for ``decode.sequence_from``.
    ``label`` is the text that ``ConnectorContext.label`` asks for, if there is one.
    ``schema`` is the id that the record's headers name, if a Schema Registry serializer wrote it. An empty ``value`` is
    a tombstone: it holds no message.
    """

    offset: int
    value: bytes
    timestamp_us: int | None = None
    key: bytes | None = None
    native: bool = False
    sequence: str | None = None
    schema: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Consecutive records of one partition, in offset order.

    ``next_offset`` is the offset to read after this batch; ``caught_up``: no record waits after it, so wall-clock idle
    time may count. A batch may be empty (a poll that found nothing).
    ``begins_at`` is the offset sought, or the ``next_offset`` of the batch before: a batch that does not continue there
    was read before the last ``seek`` and is dropped. None if a source never delivers such batches.
    ``end_offset`` is the offset after the last record that the source knows of (None: not known): the lag ends there.
    ``cursor`` is the source's own text about all up to ``next_offset``: it is committed with the progress and handed to
    ``ResumableSource.resume``. None if the source has none.
    ``written`` says when records without a time of their own were written at the latest: pairs of the offset from which
    on it holds, rising, and Unix microseconds. Empty: not known.
    """

    partition: str
    records: tuple[Record, ...]
    next_offset: int
    caught_up: bool = False
    begins_at: int | None = None
    end_offset: int | None = None
    cursor: str | None = None
    written: tuple[tuple[int, int], ...] = ()

    def written_us(self, offset: int) -> int | None:
        """Return when the record at ``offset`` was written at the latest; None if that is not known."""
        return written_us_at(self.written, offset)


def written_us_at(written: tuple[tuple[int, int], ...], offset: int) -> int | None:
    """Return the time of ``RecordBatch.written`` that holds for ``offset``, None if there is none."""
    if not written:
        return None
    return next((time_us for begin, time_us in reversed(written) if begin <= offset), written[0][1])


@dataclass(frozen=True, slots=True)
class PartitionAssigned:
    """The source offers a partition; it delivers nothing of it before ``Source.seek`` is called.

    ``seen_from_start`` is False if samples before the first delivered one may exist (start at "latest", ``--since``,
    retention): the first sequences of such a partition are ``unscorable: partial``.
    """

    partition: str
    seen_from_start: bool = True


@dataclass(frozen=True, slots=True)
class PartitionRevoked:
    """The partition now belongs to another process: forget its state, commit nothing more for it."""

    partition: str


@dataclass(frozen=True, slots=True)
class PartitionEnded:
    """A finite partition was read to its end: its open sequences end with ``end_of_input``.

    ``next_offset`` is that of its last batch, or the offset sought: an end from before the last ``seek`` is ignored.
    None if a source never delivers such an end. ``holds_open``: the rest of its open sequences may come in the next
    run, so they stay open.
    """

    partition: str
    next_offset: int | None = None
    holds_open: bool = False


@dataclass(frozen=True, slots=True)
class SourceNotice:
    """A notice of the source for the operator: it becomes an Event and a warning in the log."""

    kind: str
    message: str
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The group has reassigned its partitions; ``partitions`` are ours now, those kept among them."""

    partitions: tuple[str, ...]


SourceEvent: TypeAlias = RecordBatch | PartitionAssigned | PartitionRevoked | PartitionEnded | SourceNotice | Rebalanced


# --- samples, sequences, windows ------------------------------------------------------------------------------------


BAD_REASONS = ("", "wrong_type", "infinite", "quality")
"""Why a value cannot be used: no number, beyond 32-bit floats, or of a quality that is not good; by code."""


@dataclass(frozen=True, slots=True, eq=False)
class BadValues:
    """The values of a block that cannot be used, all missing there: ``codes`` uint8 [n, C], 0 for all other values.

    ``first`` holds the text about the first one of each channel (its index) and code; ``of_samples`` those of each
    sample, if the samples are elements of a list (else empty).
    """

    codes: npt.NDArray[np.uint8]
    first: Mapping[tuple[int, int], str]
    of_samples: tuple[Mapping[tuple[int, int], str], ...] = ()


class Boundary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The states, words or tag in a row of a message, which say where sequences begin and end.

    ``is_bare``: it has no readings, and is no sample. ``state``: whether the stream's samples lie in a sequence now.
    ``begins``, ``ends``: the words for it. ``names``: a tag's reading of the id, ``sequence``, of the samples after it.
    """

    is_bare: bool = False
    state: bool | None = None
    begins: bool = False
    ends: bool = False
    names: bool = False
    sequence: str | None = None


OUTSIDE: Final = Boundary(state=False)  # the sample's own state says that it is in no sequence
Boundaries: TypeAlias = tuple[Boundary | None, ...]


class SampleBlock(msgspec.Struct, gc=False):
    """The samples of one record: one stream, one sequence id (None if the messages carry none).

    ``times_us`` int64 [n], never decreasing without ``later_us``; ``values`` float32 [n, C] with NaN for missing;
    ``indexes`` int64 [n] indexes of the samples inside their record, None for 0..n-1. ``end`` marks the last sample as
    the sequence's end.
    ``relative``: the times count from the sequence's start instead of the epoch. ``route`` is the value of the field
    that chooses the model (``models.field``), if any. ``later_us`` int64 [n] holds the second readings of local times
    that come twice when clocks are set back (else the same as ``times_us``), the samples in the record's order; None if
    there are none. ``bad`` says which values cannot be used, None if all can. ``boundaries`` has what each row says of
    where sequences begin and end, None if none does: with bare rows the block has fewer samples than rows.
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
    later_us: IntArray | None = None
    bad: BadValues | None = None
    boundaries: Boundaries | None = None

    def __len__(self) -> int:
        return len(self.times_us)

    @property
    def first_index(self) -> int:
        """Return the index of the first one in its record."""
        return 0 if self.indexes is None else int(self.indexes.min())

    @property
    def is_consecutive(self) -> bool:
        """Return whether they follow each other in their record, in the order here."""
        return self.indexes is None or bool((self.indexes[1:] == self.indexes[:-1] + 1).all())

    def time_of(self, place: int, watermark_us: int | None) -> int:
        """Return the time of the sample at ``place``: the earliest of its readings not behind ``watermark_us``."""
        time_us = int(self.times_us[place])
        if self.later_us is None or watermark_us is None or time_us >= watermark_us:
            return time_us
        return int(self.later_us[place])

    @property
    def times_once(self) -> IntArray:
        """Return the times that have one reading, int64 [m] in the order of the record."""
        if self.later_us is None:
            return self.times_us if self.indexes is None else self.times_us[np.argsort(self.indexes)]
        once: IntArray = self.times_us[self.times_us == self.later_us]
        return once

    def place_of(self, index: int) -> int:
        """Return the place here of the sample with ``index`` in its record."""
        return index if self.indexes is None else int(np.flatnonzero(self.indexes == index)[0])

    def comes_twice(self, index: int) -> bool:
        """Return whether the time of the sample with ``index`` in its record has a second reading."""
        if self.later_us is None:
            return False
        place = self.place_of(index)
        return bool(self.later_us[place] != self.times_us[place])


class FinishedSequence(msgspec.Struct, frozen=True, eq=False):
    """All samples of one sequence, ordered by time: ``times_us`` int64 [n], ``values`` float32 [n, C], NaN = missing.

    ``first_position`` is the lowest; ``partial``: its beginning may be missing; ``routes``: values of the field that
    chooses the model, by position (of two it is not judged). ``n_late`` samples came late, none its own unless all did
    (reason ``late``: first and last time, values NaN). ``merged`` had another's time; ``displaced`` replaced a value.
    ``carried`` float32 [C], if any: held before the first sample. ``batch``: more of its table row.
    """

    stream: str
    sequence: str
    reason: EndReason
    times_us: IntArray
    values: FloatArray
    first_position: Position
    partial: bool = False
    routes: tuple[str, ...] = ()
    n_late: int = 0
    merged: int = 0
    displaced: int = 0
    carried: FloatArray | None = None
    batch: tuple[tuple[str, str], ...] = ()
    begun_us: int | None = None  # where channels hold: the time of the word or tag that says so
    ended_us: int | None = None

    @property
    def start_us(self) -> int:
        """Return the time of its beginning, if that is known, else of the first sample."""
        return int(self.times_us[0]) if self.begun_us is None else self.begun_us

    @property
    def end_us(self) -> int:
        """Return the time of its end, if that is known, else of the last sample."""
        return int(self.times_us[-1]) if self.ended_us is None else self.ended_us

    @property
    def n_samples(self) -> int:
        """Return the number of samples, those of equal time merged."""
        return self.n_late if self.is_late else len(self.times_us)

    @property
    def is_late(self) -> bool:
        """Return whether all of its samples came late."""
        return self.reason == "late"

    @property
    def n_came(self) -> int:
        """Return how many samples of it have come: late and merged ones count."""
        return self.n_late if self.is_late else len(self.times_us) + self.merged + self.n_late


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A sequence in model form: ``values`` float32 [C, L] in engineering units, zero from ``length`` on."""

    values: FloatArray
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class WindowSet:
    """N windows with their ids: ``values`` float32 [N, C, L], ``lengths`` int64 [N].

    ``units`` ("" for none) and ``channels`` are the channels' units and names; empty if they are not known.
    """

    values: FloatArray
    lengths: IntArray
    ids: tuple[str, ...]
    units: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def distinct(self) -> WindowSet:
        """Return the first window of each group of equal ones, in their order."""
        first: dict[bytes, int] = {}
        for index, (values, length) in enumerate(zip(self.values, self.lengths.tolist(), strict=True)):
            first.setdefault(length.to_bytes(8, "big") + values[:, :length].tobytes(), index)
        return self.take(list(first.values()))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: npt.NDArray[np.intp] | IntArray | list[int]) -> WindowSet:
        """Return the windows at ``index``, in that order."""
        rows = np.asarray(index, dtype=np.int64)
        return replace(self, values=self.values[rows], lengths=self.lengths[rows], ids=tuple(self.ids[i] for i in rows))

    def constant_channels(self) -> IntArray:
        """Return the indexes of the channels without variation in the valid samples; N >= 1, all of them finite."""
        valid = np.arange(self.values.shape[2]) < self.lengths[:, None]
        samples = self.values.transpose(0, 2, 1)[valid]
        highest, lowest = samples.max(axis=0).astype(np.float64), samples.min(axis=0).astype(np.float64)
        largest = np.maximum(np.abs(highest), np.abs(lowest))
        return np.flatnonzero(highest - lowest <= CONSTANT_SHARE * largest).astype(np.int64)


# --- messages as connectors store them -------------------------------------------------------------------------------


class FeedRecord(NamedTuple):
    """A raw message for a source to read, as a producer of the plant would send it.

    ``offset``, ``schema`` and ``label`` are those of its ``Record``, for feeds that keep them (recordings); the others
    count from their own offset.
    """

    value: bytes
    key: bytes | None = None
    timestamp_us: int | None = None
    offset: int | None = None
    schema: str | None = None
    label: str | None = None


class StoredMessage(NamedTuple):
    """A message as a sink's system keeps it: its JSON, and its place there for people to find.

    ``sender`` is the name that this system, not the message's author, gives to whoever sent it; None if it gives none.
    ``problem``: why it has no ``value``, such as a line without an end. ``key`` is that of a topic; with an empty
    ``value`` it says that what was written under this key is removed.
    """

    value: bytes
    place: str
    sender: str | None = None
    problem: str | None = None
    key: bytes | None = None


# --- what a training reports ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A finished epoch, counted from 1, of at most ``n_epochs``; losses are mean scores per window.

    ``is_last``: the fit ends with it, perhaps before ``n_epochs``.
    """

    epoch: int
    n_epochs: int
    loss: float
    validation_loss: float | None = None
    is_last: bool = False


TrainingProgress: TypeAlias = Callable[[TrainingStep], None]


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """The manifest's record of a training run; ``remarks`` are sentences for its user.

    ``terms`` names the K terms of a model of several members, each as "member" or "member.measure".
    """

    n_sequences: int
    n_epochs: int
    best_epoch: int
    best_loss: float
    duration_s: float
    device: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
