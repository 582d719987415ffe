"""Copies raw records from a source to recordings, one for each partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from streamad.errors import SourceError
from streamad.ingest.decode_values import own_time_us
from streamad.ports import Clock, Feed, FeedRecord, Source
from streamad.runtime.replay import Share
from streamad.system.clock import pause
from streamad.system.tasks import wait_for_either
from streamad.types import PartitionAssigned, RecordBatch, SourceEvent, SourceNotice

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
                FeedRecord(record.value, record.key, record.timestamp_us, record.offset, record.schema)
                for record in batch.records
            ]
        )
        partition.add(batch)
        self.share.add(batch, partition.begin_offset)
        if self._on_progress is not None:
            self._on_progress(self)
