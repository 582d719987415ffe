"""Offsets of a topic's logs: their beginnings, ends, and positions by time; retried while no broker answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from streamad.errors import SourceError
from streamad_connectors.kafka.client.errors import explain, is_retriable
from streamad_connectors.kafka.client.options import Client

T = TypeVar("T")
_RETRY_S = 0.2


class LogEnds(NamedTuple):
    """``begin``: the lowest offset that still exists; ``end``: the offset after the last committed record."""

    begin: int
    end: int


async def log_ends(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], client: Client, give_up_s: float
) -> dict[TopicPartition, LogEnds]:
    """Return the present ends of ``partitions``. Raises SourceError if no broker answers for ``give_up_s``."""
    tps = list(partitions)
    begins = await _ask(lambda: consumer.beginning_offsets(tps), tps, client, give_up_s)
    ends = await _ask(lambda: consumer.end_offsets(tps), tps, client, give_up_s)
    return {tp: LogEnds(begins[tp], ends[tp]) for tp in tps}


async def offsets_at(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], time_us: int, client: Client, give_up_s: float
) -> dict[TopicPartition, int | None]:
    """Return each partition's first offset with a record time of ``time_us`` or later, None if there is none.

    Kafka's times are milliseconds: 1 ms counts as 1000 us. Raises SourceError as ``log_ends`` does.
    """
    time_ms = max(0, -(-time_us // 1000))
    found: Mapping[TopicPartition, Any] = await _ask(
        lambda: consumer.offsets_for_times(dict.fromkeys(partitions, time_ms)), partitions, client, give_up_s
    )
    return {tp: None if found[tp] is None else found[tp].offset for tp in partitions}


async def _ask(
    question: Callable[[], Awaitable[T]], partitions: Collection[TopicPartition], client: Client, give_up_s: float
) -> T:
    deadline_s = time.monotonic() + give_up_s
    while True:
        try:
            return await question()
        except KafkaError as error:
            if not is_retriable(error) or time.monotonic() >= deadline_s:
                topics = ", ".join(sorted({tp.topic for tp in partitions}))
                raise SourceError(explain(error, client, f"read topic {topics}")) from error
        await asyncio.sleep(_RETRY_S)
