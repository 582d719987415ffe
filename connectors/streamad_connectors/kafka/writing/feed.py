"""The feed: raw messages for a plant's input topic, as the plant's own producers would send them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import cast

from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from pydantic import BaseModel

from streamad.errors import OutputError
from streamad.plugins import ConnectorContext
from streamad.ports import FeedRecord
from streamad_connectors.kafka.client.options import Client, KafkaFeedOptions
from streamad_connectors.kafka.writing.sender import Sender

_BATCH_BYTES = 500_000
_MAX_BYTES = 1_000_000  # a topic's max.message.bytes is 1,048,588 by default
_KNOWN_KEYS = 100_000


class KafkaFeed:
    """Writes raw records to one topic with an idempotent producer: once each and in order (KIP-98).

    The key's hash (murmur2, as in the Java client) decides the partition; records without a key are distributed in
    turn. A record's time is kept to the millisecond, its ``offset`` is not. The feed builds whole batches, which is
    several times as fast as the client's ``send``.

    If no broker answers at the start, the feed fails; brokers that go away later are waited for, up to
    ``give_up_after``. ``close`` may be called during a ``send`` or ``flush`` and bounds their time, too.
    """

    options_model: type[BaseModel] = KafkaFeedOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        given = cast("KafkaFeedOptions", options)
        self._sender = Sender(
            Client.of(rest, given, context, "feed"),
            max_batch_bytes=_BATCH_BYTES,
            max_request_bytes=_MAX_BYTES,
            give_up_s=given.give_up_after / 1e6,
        )
        self._one_at_a_time = asyncio.Lock()
        self._partitioner = DefaultPartitioner()
        self._partitions: tuple[int, ...] = ()
        self._partition_of: dict[bytes, int] = {}
        self._turn = itertools.count()
        self._open: dict[int, BatchBuilder] = {}

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Accept ``records`` in order; full batches are sent at once, the rest by ``flush``. Raises OutputError."""
        async with self._one_at_a_time:
            await self._look_up_partitions()
            for record in records:
                await self._append(record, self._choose(record.key))

    async def flush(self) -> None:
        """Return once the brokers in sync have all records. Raises OutputError."""
        async with self._one_at_a_time:
            await self._flush()

    async def _flush(self) -> None:
        for partition in list(self._open):
            await self._send(partition)
        await self._sender.flush()

    async def close(self) -> None:
        """Deliver accepted records and disconnect, in bounded time; safe to call twice. Raises OutputError."""
        self._sender.hurry()
        async with self._one_at_a_time:
            try:
                if self._open:
                    await self._flush()
            finally:
                self._open.clear()
                await self._sender.close()

    async def _look_up_partitions(self) -> None:
        partitions = await self._sender.partitions()
        if partitions != self._partitions:
            self._partitions = partitions
            self._partition_of.clear()

    def _choose(self, key: bytes | None) -> int:
        if key is None:
            return self._partitions[next(self._turn) % len(self._partitions)]
        partition = self._partition_of.get(key)
        if partition is None:
            if len(self._partition_of) >= _KNOWN_KEYS:
                self._partition_of.clear()
            partition = int(self._partitioner(key, list(self._partitions), []))
            self._partition_of[key] = partition
        return partition

    async def _append(self, record: FeedRecord, partition: int) -> None:
        if len(record.value) > _BATCH_BYTES:
            self._check_size(record)
        while (batch := self._open.get(partition)) is None or not _added(batch, record):
            if batch is not None:
                await self._send(partition)
            self._open[partition] = await self._sender.batch()  # any record fits into an empty batch

    async def _send(self, partition: int) -> None:
        batch = self._open.pop(partition)
        batch.close()
        await self._sender.send_batch(batch, partition)

    def _check_size(self, record: FeedRecord) -> None:
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(record.key, record.value, [])
        if size > _MAX_BYTES:
            raise OutputError(f"topic {self._sender.topic}: a record takes {size} bytes, {_MAX_BYTES} at most are fed")


def _added(batch: BatchBuilder, record: FeedRecord) -> bool:
    timestamp_ms = None if record.timestamp_us is None else record.timestamp_us // 1_000
    return batch.append(timestamp=timestamp_ms, key=record.key, value=record.value) is not None
