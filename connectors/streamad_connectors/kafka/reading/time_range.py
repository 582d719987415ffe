"""A time range of Kafka topics as a finite source: no group, no commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from pydantic import BaseModel

from streamad.errors import SourceError
from streamad.types import PartitionAssigned, PartitionEnded, RecordBatch, SourceEvent
from streamad_connectors.kafka.client.admin import partition_counts
from streamad_connectors.kafka.client.errors import explain, why_failed
from streamad_connectors.kafka.client.offsets import log_ends, offsets_at
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, partition_name
from streamad_connectors.kafka.client.stopping import connected, stop_client
from streamad_connectors.kafka.reading.reader import Reader, Reading, make_consumer
from streamad_connectors.kafka.reading.waiting import Waiting, wait_for_either


class _Range(NamedTuple):
    begin: int
    end: int
    is_whole: bool


class KafkaRange:
    """Reads all partitions from the first record at or after ``since_us`` to the first at or after ``until_us``.

    Times are record times (Unix microseconds). All records between the two ends are read, also those whose own time
    lies outside, because a log is in order of arrival. Without ``until_us`` the range ends at the logs' ends when
    reading begins; later records and those of a transaction that is open then are not read.
    """

    options_model: type[BaseModel] = KafkaSourceOptions

    def __init__(self, client: Client, options: KafkaSourceOptions, since_us: int | None, until_us: int | None) -> None:
        self._client = client
        self._options = options
        self._since_us = since_us
        self._until_us = until_us
        self._consumer: AIOKafkaConsumer | None = None
        self._reader: Reader | None = None
        self._waiting: Waiting | None = None
        self._ranges: Mapping[str, _Range] = {}
        self._open_ones: set[str] = set()
        self._reached: dict[str, int] = {}
        self._polling: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._closed = False

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield every partition, its records after ``seek``, and its end. Raises SourceError."""
        if self._closed:
            return
        reader = await self._open()
        for name, found in self._ranges.items():
            self._open_ones.add(name)
            yield PartitionAssigned(name, seen_from_start=found.is_whole)
        while self._open_ones and not self._closed:
            if reader.events:
                batch = self._cut(cast("RecordBatch", reader.events.popleft()))
                if batch is not None:
                    self._reached[batch.partition] = batch.next_offset
                    yield batch
            elif (ended := self._ended(reader)) is not None:
                self._open_ones.discard(ended.name)
                reader.hold(ended)
                yield PartitionEnded(ended.name, self._reached[ended.name])
            else:
                await self._wait(reader)

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: at its first record of the range) and return the offset.

        Raises SourceError if ``offset`` was deleted.
        """
        reader = cast("Reader", self._reader)
        reading = reader.get(partition)
        if reading is None:
            raise SourceError(f"there is no partition {partition} to read")
        found = self._ranges[partition]
        begin = found.begin if offset is None else offset
        if offset is not None and offset < found.begin:
            consumer = cast("AIOKafkaConsumer", self._consumer)
            ends = await log_ends(consumer, [reading.tp], self._client, self._give_up_s)
            if offset < ends[reading.tp].begin:
                gap = f"offsets {offset} to {ends[reading.tp].begin - 1} are deleted"
                raise SourceError(f"partition {partition}: {gap}; begin later, or without a checkpoint")
        reader.hold(reading)
        reader.begin(reading, begin)
        self._open_ones.add(partition)
        self._reached[partition] = begin
        self._wake.set()
        return begin

    async def close(self) -> None:
        """End the iterator; safe to call twice."""
        self._closed = True
        self._wake.set()
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_client(consumer, 1.0)

    async def _open(self) -> Reader:
        counts = await partition_counts(self._client)
        tps = [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]
        consumer = self._consumer = make_consumer(self._client, self._options)
        try:
            await connected(consumer.start())
        except KafkaError as error:
            raise SourceError(await why_failed(error, self._client, self._doing)) from error
        self._ranges = await self._find(consumer, tps)
        reader = self._reader = Reader(consumer, self._client.label)
        consumer.assign(tps)
        reader.share(tps)
        self._waiting = Waiting(reader, self._client, self._give_up_s)
        return reader

    async def _find(self, consumer: AIOKafkaConsumer, tps: list[TopicPartition]) -> dict[str, _Range]:
        ends = await log_ends(consumer, tps, self._client, self._give_up_s)
        begins = {tp: ends[tp].begin for tp in tps}
        lasts = {tp: ends[tp].end for tp in tps}
        for time_us, places in ((self._since_us, begins), (self._until_us, lasts)):
            if time_us is not None:
                found = await offsets_at(consumer, tps, time_us, self._client, self._give_up_s)
                for tp, offset in found.items():
                    places[tp] = ends[tp].end if offset is None else min(offset, ends[tp].end)
        return {
            partition_name(*tp): _Range(begins[tp], max(begins[tp], lasts[tp]), is_whole=begins[tp] == 0) for tp in tps
        }

    async def _wait(self, reader: Reader) -> None:
        """Return once there may be something to yield. Raises SourceError if nothing can be expected any more."""
        if self._polling is None:
            self._polling = asyncio.create_task(reader.poll(), name="kafka range: poll")
        await wait_for_either(self._wake, self._polling)
        polling = self._polling
        if polling is not None and polling.done():
            self._polling = None
            self._raise(polling.exception())
        reader.listen()
        waiting = cast("Waiting", self._waiting)
        if waiting.is_due():
            waiting.check()  # its notices do not matter: an open transaction ends the range

    def _raise(self, error: BaseException | None) -> None:
        if isinstance(error, KafkaError):
            raise SourceError(explain(error, self._client, self._doing)) from error
        if error is not None:
            raise error

    def _ended(self, reader: Reader) -> Reading | None:
        for reading in reader.readings:
            is_at_end = reading.is_ready and reading.next_offset >= self._ranges[reading.name].end
            if reading.name in self._open_ones and is_at_end:
                return reading
        return None

    def _cut(self, batch: RecordBatch) -> RecordBatch | None:
        """Return the part of ``batch`` in the range, None if there is none."""
        end = self._ranges[batch.partition].end
        if batch.next_offset <= end:
            return RecordBatch(batch.partition, batch.records, batch.next_offset, False, batch.begins_at, end)
        if batch.begins_at is not None and batch.begins_at >= end:
            return None
        records = tuple(record for record in batch.records if record.offset < end)
        return RecordBatch(batch.partition, records, end, False, batch.begins_at, end)

    @property
    def _doing(self) -> str:
        return f"read topic {', '.join(self._client.place.topics)}"

    @property
    def _give_up_s(self) -> float:
        return self._options.give_up_after / 1e6
