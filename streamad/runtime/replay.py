"""Recordings as sources: paced replay, ranges of record time, and sequences for training."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from pydantic import BaseModel

from streamad.errors import DecodeError, UsageError
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_values import own_time_us
from streamad.ingest.intake import Intake
from streamad.ports import Clock, RangedSource, Source
from streamad.ranges import EVERYTHING, Span
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, PartitionAssigned, PartitionEnded, Record, RecordBatch, SourceEvent


class PacedSource:
    """Delivers another source's records when they are due: ``speed`` 1 is real time, 10 ten times as fast.

    A record is due as long after the partition's first record as their times differ. The time of a record without one
    is that of its last sample, counted from its sequence's first record if times are relative; an unreadable record is
    due at once.
    """

    def __init__(self, source: Source, speed: float, clock: Clock, settings: Settings) -> None:
        self.options_model: type[BaseModel] = source.options_model
        self._source = source
        self._speed = speed
        self._clock = clock
        self._decoder = Decoder(settings.decode, settings.channels, settings.route_field)
        self._is_relative = settings.decode.time == "relative"
        self._anchors: dict[tuple[str, str], tuple[str | None, int, int]] = {}

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield the other source's events, each record not before it is due."""
        async for event in self._source.batches():
            if not isinstance(event, RecordBatch):
                yield event
                continue
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

    def _due_us(self, partition: str, record: Record) -> int:
        now_us = self._clock.monotonic_us()
        own_us = own_time_us(record)
        if own_us is not None:
            return self._paced_us((partition, ""), None, own_us, now_us)
        try:
            block = self._decoder.decode(record, None)
        except DecodeError:
            return now_us
        if block is None:
            return now_us
        time_us = int(block.times_us[-1])
        if self._is_relative:
            return self._paced_us((partition, block.stream), block.sequence, time_us, now_us)
        return self._paced_us((partition, ""), None, time_us, now_us)

    def _paced_us(self, place: tuple[str, str], sequence: str | None, time_us: int, now_us: int) -> int:
        """Return when ``time_us`` is due, counted from the first time at ``place`` (of ``sequence``)."""
        anchor = self._anchors.get(place)
        if anchor is None or anchor[0] != sequence:
            anchor = self._anchors[place] = (sequence, time_us, now_us)
        return anchor[2] + round((time_us - anchor[1]) / self._speed)


async def read_sequences(
    settings: Settings,
    source: Source,
    clock: Clock,
    counters: Counters,
    on_progress: Callable[[Counters, float | None], None] | None = None,
) -> AsyncIterator[FinishedSequence]:
    """Yield the sequences of a finite source, cut as ``streamad run`` would cut them. Raises SourceError.

    ``on_progress`` gets the share of the source that was read, None if unknown.
    """
    decoder = Decoder(settings.decode, settings.channels, settings.route_field)
    intakes: dict[str, Intake] = {}
    begins: dict[str, int] = {}
    share = Share()
    async for event in source.batches():
        finished = []
        if isinstance(event, PartitionAssigned):
            intakes[event.partition] = Intake(
                event.partition, settings, decoder, counters, seen_from_start=event.seen_from_start
            )
            begins[event.partition] = await source.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            intake = intakes[event.partition]
            finished = intake.take(event, clock.now_us())
            intake.take_aside()
            share.add(event, begins[event.partition])
        elif isinstance(event, PartitionEnded):
            finished = intakes.pop(event.partition).end_of_input(clock.now_us())
        else:
            continue
        for closed in finished:
            if event.partition in intakes:
                intakes[event.partition].committed(closed)
            yield closed.sequence
        if on_progress is not None:
            on_progress(counters, share.value)


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
