"""The feed: raw messages for a plant's input topic, as the plant's own producers would send them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel

from streamad.errors import OutputError
from streamad.plugins import ConnectorContext
from streamad.ports import FeedRecord
from streamad_connectors.kafka.client.options import Client, KafkaFeedOptions
from streamad_connectors.kafka.writing.messages import OutMessage, size_bytes
from streamad_connectors.kafka.writing.sender import Sender

_MAX_BYTES = 1_000_000  # a topic's max.message.bytes is 1,048,588 by default


class KafkaFeed:
    """Writes raw records to one topic with an idempotent producer: once each and in order (KIP-98).

    The key's hash (murmur2, as in the Java client) decides the partition; records without a key are distributed in
    turn. A record's time is kept to the millisecond, its ``offset`` is not.

    If no broker answers at the start, the feed fails; brokers that go away later are waited for, up to
    ``give_up_after``. ``close`` may be called during a ``send`` or ``flush`` and bounds their time, too.
    """

    options_model: type[BaseModel] = KafkaFeedOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        given = cast("KafkaFeedOptions", options)
        self._sender = Sender(
            Client.of(rest, given, context, "feed"),
            max_message_bytes=_MAX_BYTES,
            give_up_s=given.give_up_after / 1e6,
        )
        self._label_header = given.label_header
        self._one_at_a_time = asyncio.Lock()
        self._turn = itertools.count()

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Accept ``records`` in order; returns before the last are delivered. Raises OutputError."""
        async with self._one_at_a_time:
            n_partitions = await self._sender.n_partitions()
            messages = [self._message(record, n_partitions) for record in records]
            longest = max(messages, key=lambda message: len(message.value or b""), default=None)
            if longest is not None and (size := size_bytes(longest)) > _MAX_BYTES:
                raise OutputError(f"topic {longest.topic}: a record takes {size} bytes, {_MAX_BYTES} at most are fed")
            await self._sender.send(messages)

    def _message(self, record: FeedRecord, n_partitions: int) -> OutMessage:
        partition = next(self._turn) % n_partitions if record.key is None else None
        time_ms = None if record.timestamp_us is None else record.timestamp_us // 1_000
        label, header = record.label, self._label_header
        headers = [] if label is None or header is None else [(header, label.encode())]
        return OutMessage(self._sender.topic, record.key, record.value, headers, partition=partition, time_ms=time_ms)

    async def flush(self) -> None:
        """Return once the brokers in sync have all records. Raises OutputError."""
        async with self._one_at_a_time:
            await self._sender.flush()

    async def close(self) -> None:
        """Deliver accepted records and disconnect, in bounded time; safe to call twice. Raises OutputError."""
        self._sender.hurry()
        async with self._one_at_a_time:
            await self._sender.close()
