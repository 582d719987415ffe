"""A range of time of Kafka topics, read offline: no group, no commits, an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError
from pydantic import BaseModel

from streamad.errors import SourceError
from streamad.types import PartitionAssigned, PartitionEnded, RecordBatch, SourceEvent
from streamad_connectors.kafka.client.consumers import find_topics, make_consumer
from streamad_connectors.kafka.client.errors import explain, why_unreachable
from streamad_connectors.kafka.client.offsets import log_ends, offsets_at
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, partition_name
from streamad_connectors.kafka.client.stopping import connected, stop_client
from streamad_connectors.kafka.reading.reader import Reader, Reading
from streamad_connectors.kafka.reading.waiting import TICK_S, Waiting


class _Range(NamedTuple):
    begin: int
    end: int
    is_whole: bool


class KafkaRange:
    """Reads all partitions from the first record at or after ``since_us`` to the first at or after ``until_us``.

    Times are those of the records (Unix microseconds). Between the two ends every record counts, also one whose time
    lies outside: the order in a log is that of arrival. Without ``until_us`` it ends where the logs end when it begins
    to read; what is written meanwhile is not read, nor is what belongs to a transaction that is open then.
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
        """Yield every partition, its records once it was sought, and its end. Raises SourceError."""
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
        """Begin ``partition`` at ``offset`` (None: at its first record of the range); return where that is.

        Raises SourceError where ``offset`` was deleted.
        """
        reader = cast("Reader", self._reader)
        reading = reader.get(partition)
        if reading is None:
            raise SourceError(f"there is no partition {partition} to read")
        found = self._ranges[partition]
        begin = found.begin if offset is None else offset
        if offset is not None and offset < found.begin:
            ends = await log_ends(self._started, [reading.tp], self._client, self._give_up_s)
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
        counts = await find_topics(self._client)
        tps = [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]
        consumer = self._consumer = make_consumer(self._client, self._options)
        try:
            await connected(consumer.start())
        except KafkaConnectionError as error:
            raise SourceError(await why_unreachable(self._client)) from error
        except KafkaError as error:
            raise SourceError(explain(error, self._client, f"read topic {', '.join(counts)}")) from error
        self._ranges = await self._find(consumer, tps)
        reader = self._reader = Reader(consumer)
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
        """Return once there may be something to yield. Raises SourceError where nothing can be expected any more."""
        if self._polling is None:
            self._polling = asyncio.create_task(reader.poll(), name="kafka range: poll")
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({woken, self._polling}, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._wake.clear()
        polling = self._polling
        if polling is not None and polling.done():
            self._polling = None
            self._raise(polling.exception())
        reader.listen()
        waiting = cast("Waiting", self._waiting)
        if waiting.is_due():
            waiting.check()  # a transaction that is open ends the range

    def _raise(self, error: BaseException | None) -> None:
        if isinstance(error, KafkaError):
            what = f"read topic {', '.join(self._client.place.topics)}"
            raise SourceError(explain(error, self._client, what)) from error
        if error is not None:
            raise error

    def _ended(self, reader: Reader) -> Reading | None:
        for reading in reader.readings:
            if reading.name in self._open_ones and self._is_through(reading):
                return reading
        return None

    def _is_through(self, reading: Reading) -> bool:
        return reading.is_ready and reading.next_offset >= self._ranges[reading.name].end

    def _cut(self, batch: RecordBatch) -> RecordBatch | None:
        """Return what of ``batch`` lies in the range, None where nothing does."""
        end = self._ranges[batch.partition].end
        if batch.next_offset <= end:
            return RecordBatch(batch.partition, batch.records, batch.next_offset, False, batch.begins_at, end)
        if batch.begins_at is not None and batch.begins_at >= end:
            return None
        records = tuple(record for record in batch.records if record.offset < end)
        return RecordBatch(batch.partition, records, end, False, batch.begins_at, end)

    @property
    def _started(self) -> AIOKafkaConsumer:
        return cast("AIOKafkaConsumer", self._consumer)

    @property
    def _give_up_s(self) -> float:
        return self._options.give_up_after / 1e6
