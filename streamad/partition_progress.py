"""Progress of a partition: the offsets to read again, and the state that makes rereading exact."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec

from streamad.messages import Alert, ModelRef, WarningRef
from streamad.types import Boundary, Position

V = TypeVar("V")


class ForcedEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An end that no record caused, after the records below ``offset``: the wall clock or the memory limit.

    ``clock_us`` is the wall clock's time on the partition's clock; None: the memory limit, which ended the sequence
    whose id has the hash ``ended`` ("": the one without id; None: samples that waited for late ones were released, and
    no sequence was left open).
    """

    offset: int
    clock_us: int | None = None
    ended: str | None = None


class HeldReading(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A reading that holds, with its event time and position; ``outside``: its sample belonged to no sequence."""

    value: float
    time_us: int
    offset: int
    index: int
    outside: bool = False


class WaitingBoundary(msgspec.Struct, frozen=True, array_like=True):
    """A boundary that waits for earlier samples: its time and position, the clock at its arrival, its id and routes."""

    time_us: int
    offset: int
    index: int
    arrived_us: int
    boundary: Boundary
    sequence: str | None
    routes: tuple[tuple[Position, str], ...]


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest words and tags about a stream's samples without an id (``ingest/boundaries/standing.py``).

    ``state``: the tag's reading, None before the first one. ``is_named``: a sequence was begun and not ended, or the
    tag of the id was read; ``sequence`` is its id, None if it has none, ``routes`` what chooses its model.
    ``since_us`` is the event time since which all that stands, ``state_us`` and ``named_us`` those of the newest
    messages about it. ``is_late``: that came late, and no sample was placed by it yet. ``waiting``: what waits for its
    turn; while a process runs, ``blocks`` holds the same in parts, which the standings of many records share. Many are
    saved in ``packed``, MessagePack in zlib: at an hour of lateness there is one a second.
    """

    state: bool | None = None
    is_named: bool = False
    sequence: str | None = None
    routes: tuple[tuple[Position, str], ...] = ()
    since_us: int | None = None
    state_us: int | None = None
    named_us: int | None = None
    is_late: bool = False
    waiting: tuple[WaitingBoundary, ...] = ()
    blocks: tuple[tuple[WaitingBoundary, ...], ...] = ()
    packed: bytes = b""

    @property
    def saved(self) -> Standing:
        """Return it as a progress holds it."""
        waiting = tuple(chain.from_iterable(self.blocks))
        if len(waiting) <= _MOST_UNPACKED:
            return msgspec.structs.replace(self, waiting=waiting, blocks=()) if waiting else self
        packed = zlib.compress(msgspec.msgpack.encode(waiting), 1)
        return msgspec.structs.replace(self, blocks=(), packed=packed)

    @property
    def restored(self) -> Standing:
        """Return it as a process holds it."""
        waiting = self.waiting
        if self.packed:
            waiting = msgspec.msgpack.decode(zlib.decompress(self.packed), type=tuple[WaitingBoundary, ...])
        return msgspec.structs.replace(self, waiting=(), packed=b"", blocks=(waiting,) * bool(waiting))


_MOST_UNPACKED = 4
NOTHING_STANDS = Standing()


class UsedRows(msgspec.Struct, frozen=True):
    """The rows of a stream that were used, of a table of batches: the first ``n`` begins and ends, and their digest.

    ``read`` holds pairs of the offset from which on records were read with it, rising, and the end of the newest row
    that was there then: late samples behind it were taken for ones in no row. ``ended`` is such a pair, too: the end of
    the input released all samples that waited of records below that offset.
    """

    n: int
    digest: str
    read: tuple[tuple[int, int], ...] = ()
    ended: tuple[int, int] | None = None


class LooksTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first ``n`` looks at a sequence that runs: by the version ``model``, with the ``largest`` z of them.

    ``warning`` is the one that was raised, if any: then there is no second one.
    """

    model: ModelRef
    n: int
    largest: float
    warning: WarningRef | None = None


class StreamProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's share of the progress.

    Every sample of the stream below ``done_below`` (an offset) has its verdict or was late; ``max_time_us``,
    ``floor_us`` and ``last_record_us`` are its clocks as they were before that offset. ``closed`` maps the hash of a
    closed sequence id to the partition clock at its end, so that its late samples are recognised; ``closed_through_us``
    does so for sequences without ids. ``partial``: the beginning of the stream's next sequence may have been missed.
    ``starts`` (relative times) maps the hash of a sequence id to the event time of its second 0 and the partition clock
    when it was first seen; ``second_0_us`` is that without an id, before ``done_below`` like the clocks. ``forced``
    holds the forced ends since ``done_below``, in order: rereading repeats them at the same offsets. ``closed_late`` is
    ``closed`` for sequences of late samples only. ``table`` is what was used of a table of batches. ``held`` has the
    readings, by channel, of records below ``done_below`` that later sequences may begin with; ``forgotten``: nothing
    else is left of the stream. ``n_judged`` counts committed verdicts before the stream was known to be split over
    partitions; ``split_told``: the event about that is committed, by this partition. ``standing`` is what stood before
    ``done_below``. ``looks`` are those at sequences without a committed verdict, by ``looks_key``.
    """

    done_below: int
    max_time_us: int | None = None
    floor_us: int | None = None
    last_record_us: int | None = None
    closed: dict[str, int] = {}
    closed_through_us: int | None = None
    partial: bool = False
    starts: dict[str, tuple[int, int]] = {}
    forced: tuple[ForcedEnd, ...] = ()
    closed_late: dict[str, int] = {}
    second_0_us: int | None = None
    table: UsedRows | None = None
    held: dict[str, tuple[HeldReading, ...]] = {}
    forgotten: bool = False
    n_judged: int = 0
    split_told: bool = False
    standing: Standing | None = None
    looks: dict[str, LooksTaken] = {}


class BadChannel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A channel's bad values: the time of the last dead letter by reason, and the window that is being counted.

    ``is_over``: the window before had too many.
    """

    letters: dict[str, int] = {}
    seen: int = 0
    bad: int = 0
    is_over: bool = False


class UsedSchema(msgspec.Struct, frozen=True, array_like=True):
    """A registered schema that records were read with, from the offset ``first`` to ``last``, and its digest."""

    first: int
    last: int
    digest: str


class Debt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A committed alert whose attribution is not committed: all that the attribution is made of, beside the model.

    ``terms`` are float32 [K] and ``window`` is float32 [C, L] packed by zlib, both little-endian; ``shape`` is (C, L),
    ``length`` the window's true length. An empty ``window`` is lost.
    """

    alert: Alert
    terms: bytes
    shape: tuple[int, int]
    length: int
    window: bytes = b""


class Logged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a partition's commits have recorded in the decision log: its last entry there, and what is in service.

    ``models`` has version and digest by name.
    """

    number: int = 0
    hash: str = ""
    config: str = ""
    models: dict[str, str] = {}


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The state from which a restart continues ``partition``, with that of each of its ``streams``.

    ``ended``: the recording is finished (files; with LWM < N sequences are held open). ``next_offset`` (N) is the next
    offset to read; ``low_watermark`` (LWM) the lowest offset with a sample whose sequence has no committed verdict,
    else N; ``clock_us`` the partition's record clock before LWM, and ``low_watermark_us`` after the record at LWM, for
    its age (without one the same as ``clock_us``). Streams first seen while ``clock_us`` is at most
    ``partial_until_us`` may lack their beginning; ``unseen``: they may, and no record has fixed that limit yet.
    ``cursor`` is the source's own text about N (see ``RecordBatch.cursor``). ``untold`` names sequences that the memory
    limit ended while records were read again (stream, hash of the id), with the offset from which their samples below N
    are late and not yet reported. ``jumps``: records whose last sample was held because it lay far ahead, with the
    offset of the record at which it moved the partition's clock (None: nowhere), and its time. ``bad_values`` is by
    channel, at N; ``debts`` by alert_id, the oldest first. ``schemas`` are those that records in [LWM, N) were read
    with, by id: one with another schema was unknown. ``log``: None if no decisions are recorded, or not by partition.
    """

    partition: str
    next_offset: int
    low_watermark: int
    clock_us: int | None = None
    low_watermark_us: int | None = None
    partial_until_us: int | None = None
    streams: dict[str, StreamProgress] = {}
    ended: bool = False
    unseen: bool = False
    cursor: str | None = None
    untold: tuple[tuple[str, str, int], ...] = ()
    jumps: tuple[tuple[int, int | None, int], ...] = ()
    bad_values: dict[str, BadChannel] = {}
    schemas: dict[str, UsedSchema] = {}
    debts: dict[str, Debt] = {}
    log: Logged | None = None

    @property
    def needed_models(self) -> set[ModelRef]:
        """Return the versions that open debts name, and those that look at sequences which run."""
        looking = (looks.model for stream in self.streams.values() for looks in stream.looks.values())
        return {*(debt.alert.model for debt in self.debts.values()), *looking}


class Claim(NamedTuple):
    """A partition says that it has seen a stream, at its record clock ``time_us``; ``ended``: no longer.

    ``since`` is the place in the log of the claim that this one renews, None for a first one. ``n_judged`` counts the
    stream's verdicts committed in the partition before it was known to be split; None: not said yet. ``told``: the
    partition has committed the event about the split.
    """

    stream: str
    partition: str
    time_us: int | None = None
    since: int | None = None
    n_judged: int | None = None
    told: bool = False
    ended: bool = False


class ProgressUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Changes since the last commit: the partition's head, changed streams (None: dropped) and debts (None: paid)."""

    partition: str
    next_offset: int
    low_watermark: int
    clock_us: int | None = None
    low_watermark_us: int | None = None
    partial_until_us: int | None = None
    streams: dict[str, StreamProgress | None] = {}
    ended: bool = False
    unseen: bool = False
    cursor: str | None = None
    untold: tuple[tuple[str, str, int], ...] = ()
    jumps: tuple[tuple[int, int | None, int], ...] = ()
    bad_values: dict[str, BadChannel] = {}
    schemas: dict[str, UsedSchema] = {}
    debts: dict[str, Debt | None] = {}
    log: Logged | None = None


def merge(progress: Progress | None, update: ProgressUpdate) -> Progress:
    """Return ``progress`` with ``update`` applied, as a reader of the compacted progress topic would see it."""
    streams = _merged({} if progress is None else progress.streams, update.streams)
    debts = _merged({} if progress is None else progress.debts, update.debts)
    return Progress(**{**_fields(update), "streams": streams, "debts": debts})


def unchanged(progress: Progress) -> ProgressUpdate:
    """Return the update that leaves ``progress`` as it is."""
    return ProgressUpdate(**{**_fields(progress), "streams": {}, "debts": {}})


def _fields(struct: Progress | ProgressUpdate) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _merged(before: Mapping[str, V], changes: Mapping[str, V | None]) -> dict[str, V]:
    result = dict(before)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def after_gap(progress: Progress, begin: int) -> Progress:
    """Return ``progress`` for a restart at ``begin``, after the records before it were deleted.

    Streams that may have lost samples, and all unknown ones, begin with a partial sequence. Their readings that held
    may have changed since, so they hold no more.
    """
    replace = msgspec.structs.replace
    streams = {
        name: stream
        if stream.done_below >= begin
        else replace(stream, partial=True, done_below=begin, forced=(), held={})
        for name, stream in progress.streams.items()
        if stream.done_below >= begin or not stream.forgotten
    }
    return replace(
        progress,
        next_offset=max(progress.next_offset, begin),
        low_watermark=begin,
        low_watermark_us=None,
        partial_until_us=None,
        streams=streams,
        unseen=True,
    )
