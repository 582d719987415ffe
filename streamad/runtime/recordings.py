"""Recordings: as sources (paced replay, ranges of record time, sequences for training), and made from a source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace

from pydantic import BaseModel

from streamad.errors import DecodeError, SourceError, UsageError
from streamad.ingest.columns.reading import ColumnReader
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_values import own_time_us
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.table.rows import BatchTable
from streamad.ports import Clock, Feed, FeedRecord, RangedSource, SizedSource, Source
from streamad.ranges import EVERYTHING, Span
from streamad.schemas.fetching import Fetcher
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import pause
from streamad.system.tasks import wait_for_either
from streamad.tables import ColumnarSource, ColumnBatch, Wanted
from streamad.telemetry.metrics import Counters
from streamad.types import (
    FinishedSequence,
    PartitionAssigned,
    PartitionEnded,
    Record,
    RecordBatch,
    SourceEvent,
    SourceNotice,
)


class PacedSource:
    """Delivers another source's records when they are due: ``speed`` 1 is real time, 10 ten times as fast.

    A record is due as long after the partition's first record as their times differ. The time of a record without one
    is that of its last sample, counted from its sequence's first record if times are relative; an unreadable record is
    due at once.
    """

    def __init__(
        self, source: Source, speed: float, clock: Clock, settings: Settings, fetcher: Fetcher | None = None
    ) -> None:
        self.options_model: type[BaseModel] = source.options_model
        self._source = source
        self._speed = speed
        self._clock = clock
        self._fetcher = fetcher
        self._decoder = _decoder(settings, fetcher)
        self._is_relative = settings.decode.counts_from_start
        self._by_restart = "restart" in settings.sequences.end
        self._anchors: dict[tuple[str, str], tuple[str | None, int, int]] = {}
        self._last_us: dict[tuple[str, str], int] = {}

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield the other source's events, each record not before it is due."""
        async for event in self._source.batches():
            if not isinstance(event, RecordBatch):
                yield event
                continue
            if self._fetcher is not None:
                await self._fetcher.fetch_for(event.records)
            group: list[Record] = []
            for record in event.records:
                wait_us = self._due_us(event.partition, record) - self._clock.monotonic_us()
                if wait_us > 0:
                    yield RecordBatch(event.partition, tuple(group), record.offset)
                    group = []
                    await self._clock.sleep(wait_us / 1e6)
                group.append(record)
            yield replace(event, records=tuple(group), begins_at=None)

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset``."""
        return await self._source.seek(partition, offset)

    async def close(self) -> None:
        """Close the other source."""
        await self._source.close()

    def share_read(self) -> float | None:
        """Return what the other source does."""
        return self._source.share_read() if isinstance(self._source, SizedSource) else None

    def _due_us(self, partition: str, record: Record) -> int:
        now_us = self._clock.monotonic_us()
        own_us = own_time_us(record)
        if own_us is not None:
            return self._paced_us((partition, ""), None, own_us, now_us)
        try:
            blocks = self._decoder.decode(record, None).blocks
        except DecodeError:
            return now_us
        if not blocks:
            return now_us
        block = blocks[-1]
        time_us = int(block.times_us[-1])
        if self._is_relative:
            return self._paced_us((partition, block.stream), block.sequence, time_us, now_us)
        return self._paced_us((partition, ""), None, time_us, now_us)

    def _paced_us(self, place: tuple[str, str], sequence: str | None, time_us: int, now_us: int) -> int:
        """Return when ``time_us`` is due, counted from the first time at ``place`` (of ``sequence``)."""
        anchor, last_us = self._anchors.get(place), self._last_us.get(place, time_us)
        self._last_us[place] = time_us
        if anchor is None or anchor[0] != sequence or (self._by_restart and time_us < last_us):
            anchor = self._anchors[place] = (sequence, time_us, now_us)
        return anchor[2] + round((time_us - anchor[1]) / self._speed)


def _decoder(settings: Settings, fetcher: Fetcher | None) -> Decoder:
    schemas = None if fetcher is None else fetcher.schemas
    return Decoder(settings.decode, settings.channels, settings.route_field, settings.sequences.while_, schemas)


class MeasuredSource:
    """Delivers the events of a finite source, and tells how much of it was read."""

    def __init__(self, source: Source) -> None:
        self.options_model: type[BaseModel] = source.options_model
        self._share = Share()
        self._source = source
        self._begins: dict[str, int] = {}

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield the other source's events."""
        async for event in self._source.batches():
            if isinstance(event, RecordBatch):
                self._share.add(event, self._begins[event.partition])
            yield event

    def column_batches(self, wanted: Wanted) -> AsyncIterator[SourceEvent | ColumnBatch]:
        """Yield the other source's events, with columns if it has any."""
        return self._source.column_batches(wanted) if isinstance(self._source, ColumnarSource) else self.batches()

    def share_read(self) -> float | None:
        """Return a number from 0 to 1, by the source itself or by offsets; 0 while neither is known."""
        if isinstance(self._source, SizedSource):
            return self._source.share_read()
        return self._share.value or 0.0

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset``; the share counts from there."""
        self._begins[partition] = begin = await self._source.seek(partition, offset)
        return begin

    async def close(self) -> None:
        """Close the other source."""
        await self._source.close()


async def read_sequences(
    settings: Settings,
    source: Source,
    clock: Clock,
    counters: Counters,
    on_progress: Callable[[Counters, float | None], None] | None = None,
    *,
    table: BatchTable | None = None,
    fetcher: Fetcher | None = None,
) -> AsyncIterator[FinishedSequence]:
    """Yield the sequences of ``read_by_partition``. Raises SourceError."""
    found = read_by_partition(settings, source, clock, counters, on_progress, table=table, fetcher=fetcher)
    async with aclosing(found):
        async for _, closed in found:
            yield closed.sequence


async def read_by_partition(
    settings: Settings,
    source: Source,
    clock: Clock,
    counters: Counters,
    on_progress: Callable[[Counters, float | None], None] | None = None,
    *,
    table: BatchTable | None = None,
    on_end: Callable[[str], None] | None = None,
    fetcher: Fetcher | None = None,
) -> AsyncGenerator[tuple[str, Closed]]:
    """Yield partition and sequences of a finite source, cut as ``streamad run`` would cut them. Raises SourceError.

    ``on_progress`` gets the share of the source that was read, None if unknown. ``table``: that of ``sequences.table``.
    ``on_end`` is called with a partition after its last sequence. ``fetcher`` fetches the schemas of
    ``decode.registry``.
    """
    decoder = _decoder(settings, fetcher)
    columns = ColumnReader.of(settings, decoder)
    intakes: dict[str, Intake] = {}
    measured = MeasuredSource(source)
    async for event in measured.batches() if columns is None else measured.column_batches(columns.wanted):
        finished = []
        if isinstance(event, PartitionAssigned):
            intakes[event.partition] = Intake(
                event.partition,
                settings,
                decoder,
                counters,
                seen_from_start=event.seen_from_start,
                table=table,
                columns=columns,
            )
            await measured.seek(event.partition, None)
        elif isinstance(event, RecordBatch | ColumnBatch):
            intake = intakes[event.partition]
            if fetcher is not None and isinstance(event, RecordBatch):
                await fetcher.fetch_for(event.records)
            finished = intake.take(event, clock.now_us())
            intake.take_aside()
        elif isinstance(event, PartitionEnded):
            intake = intakes.pop(event.partition)
            finished = intake.end_of_input(clock.now_us())
            counters.held += intake.open_sequences
        else:
            continue
        for closed in finished:
            if event.partition in intakes:
                intakes[event.partition].committed(closed)
            yield event.partition, closed
        if on_end is not None and isinstance(event, PartitionEnded):
            on_end(event.partition)
        if on_progress is not None:
            on_progress(counters, measured.share_read() or None)


def cut(source: Source, span: Span, name: str) -> Source:
    """Return the records of ``source`` in ``span`` as of now: a finite source. Raises UsageError."""
    if isinstance(source, RangedSource):
        return source.between(span.since_us, span.until_us)
    if span != EVERYTHING:
        raise UsageError(
            f"{name} has no record times to cut by; --since and --until work with Kafka and recordings of it"
        )
    return source


class Share:
    """The share of the partitions seen so far that was read, by offsets."""

    def __init__(self) -> None:
        self._extents: dict[str, tuple[int, int, int]] = {}

    def add(self, batch: RecordBatch, begin: int) -> None:
        """Note ``batch`` of a partition whose reading began at ``begin``."""
        if batch.end_offset is not None:
            self._extents[batch.partition] = (begin, batch.next_offset, batch.end_offset)

    @property
    def value(self) -> float | None:
        """Return a number from 0 to 1; None if the source does not report its end."""
        wanted = sum(end - begin for begin, _, end in self._extents.values())
        done = sum(min(after, end) - begin for begin, after, end in self._extents.values())
        return min(1.0, done / wanted) if wanted > 0 else None


_POLL_S = 1.0


@dataclass(slots=True)
class Recorded:
    """The recorded part of one partition; times are those of its records, Unix microseconds."""

    begin_offset: int
    next_offset: int
    seen_from_start: bool
    records: int = 0
    value_bytes: int = 0
    first_us: int | None = None
    last_us: int | None = None

    def add(self, batch: RecordBatch) -> None:
        """Count a batch; times before 1970 or after 2200 are no first or last time."""
        times_us = [time_us for record in batch.records if (time_us := own_time_us(record)) is not None]
        if times_us:
            self.first_us = min(times_us) if self.first_us is None else min(self.first_us, *times_us)
            self.last_us = max(times_us) if self.last_us is None else max(self.last_us, *times_us)
        self.records += len(batch.records)
        self.value_bytes += sum(len(record.value) for record in batch.records)
        self.next_offset = max(self.next_offset, batch.next_offset)


class Recorder:
    """Copies the records of ``open_source`` to one recording per partition.

    ``open_source`` returns a new finite source of the records there are now; ``open_feed`` makes the recording of a
    partition (its second argument: no record precedes it). Recordings are finished (flushed) at the end or at a stop.
    An error leaves them unfinished, unless ``run`` follows the source, which has no end.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        open_feed: Callable[[str, bool], Feed],
        clock: Clock,
        *,
        on_progress: Callable[[Recorder], None] | None = None,
        on_notice: Callable[[SourceNotice], None] | None = None,
    ) -> None:
        self.partitions: dict[str, Recorded] = {}
        self.share = Share()
        self._open_source = open_source
        self._open_feed = open_feed
        self._clock = clock
        self._on_progress = on_progress
        self._on_notice = on_notice
        self._feeds: dict[str, Feed] = {}
        self._stop = asyncio.Event()

    @property
    def was_stopped(self) -> bool:
        """Return whether a stop was requested."""
        return self._stop.is_set()

    @property
    def records(self) -> int:
        """Return the number of records recorded so far."""
        return sum(partition.records for partition in self.partitions.values())

    def request_stop(self) -> None:
        """Finish the recordings with what they hold now."""
        self._stop.set()

    async def run(self, *, follow: bool = False, until_us: int | None = None) -> None:
        """Record to the end; with ``follow``, poll for more until ``until_us`` or a stop.

        Raises SourceError, OutputError.
        """
        async with AsyncExitStack() as feeds:
            try:
                while True:
                    started_us = self._clock.now_us()
                    await self._record_once(feeds)
                    if not follow or self.was_stopped or (until_us is not None and started_us >= until_us):
                        break
                    await pause(_POLL_S, self._clock, self._stop)
            except SourceError:
                if follow:
                    await self._finish()
                raise
            await self._finish()

    async def _finish(self) -> None:
        for feed in self._feeds.values():
            await feed.flush()

    async def _record_once(self, feeds: AsyncExitStack) -> None:
        source = self._open_source()
        events = source.batches()
        try:
            while (event := await self._next(events)) is not None:
                if isinstance(event, PartitionAssigned):
                    await self._assign(event, source, feeds)
                elif isinstance(event, RecordBatch):
                    await self._take(event)
                elif isinstance(event, SourceNotice) and self._on_notice is not None:
                    self._on_notice(event)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
            await source.close()

    async def _next(self, events: AsyncIterator[SourceEvent]) -> SourceEvent | None:
        """Return the next event; None at the end or if a stop is requested."""
        pull = asyncio.ensure_future(anext(events, None))
        try:
            await wait_for_either(self._stop, pull)
            return pull.result() if pull.done() and not self.was_stopped else None
        finally:
            pull.cancel()
            await asyncio.gather(pull, return_exceptions=True)

    async def _assign(self, event: PartitionAssigned, source: Source, feeds: AsyncExitStack) -> None:
        known = self.partitions.get(event.partition)
        if known is not None:
            await source.seek(event.partition, known.next_offset)
            return
        feed = self._open_feed(event.partition, event.seen_from_start)
        feeds.push_async_callback(feed.close)
        await feed.send([])  # raises before any record is read if it cannot write
        self._feeds[event.partition] = feed
        begin = await source.seek(event.partition, None)
        self.partitions[event.partition] = Recorded(begin, begin, event.seen_from_start)

    async def _take(self, batch: RecordBatch) -> None:
        if any(record.native for record in batch.records):
            raise SourceError(f"{batch.partition}: is a recording already, of whole sequences; it needs no other form")
        partition = self.partitions[batch.partition]
        await self._feeds[batch.partition].send(
            [
                FeedRecord(record.value, record.key, record.timestamp_us, record.offset, record.schema, record.label)
                for record in batch.records
            ]
        )
        partition.add(batch)
        self.share.add(batch, partition.begin_offset)
        if self._on_progress is not None:
            self._on_progress(self)
