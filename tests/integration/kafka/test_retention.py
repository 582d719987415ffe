"""The retention guard reports unjudged records that will soon be deleted, or already are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition

from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions
from streamad_connectors.kafka.client.source_state import LowWatermark, SourceState
from streamad_connectors.kafka.reading.reader import make_consumer
from streamad_connectors.kafka.reading.retention_guard import RetentionGuard
from tests.support.kafka.broker import Broker, new_topic, produce
from tests.support.kafka.source import ACLS, DESCRIBE_CONFIGS, TOPIC, delete_before, deny

HOUR_US = 3_600_000_000


async def topic_of(kafka: Broker, retention_ms: int) -> str:
    """Return a new topic of one partition with ten records."""
    name = await new_topic(kafka, 1, {"retention.ms": str(retention_ms)})
    await produce(kafka.bootstrap, name, [b"%d" % n for n in range(10)])
    return name


@pytest.fixture
async def topic(kafka: Broker) -> str:
    return await topic_of(kafka, 10 * HOUR_US // 1000)


class Guarded:
    """A guard of one partition, judged up to ``offset`` and up to ``age_us`` ago."""

    def __init__(self, state: SourceState, guard: RetentionGuard, name: str) -> None:
        self._state, self._guard, self._name = state, guard, name

    async def notices(self, offset: int, age_us: int) -> list[tuple[str, str | None]]:
        """Check once; return kinds and partitions of the new notices."""
        self._state.low_watermarks[self._name] = LowWatermark(offset, time.time_ns() // 1000 - age_us)
        self._state.notices.clear()
        await self._guard.check()
        return [(notice.kind, notice.partition) for notice in self._state.notices]

    @property
    def message(self) -> str:
        return self._state.notices[-1].message


@asynccontextmanager
async def guarded(kafka: Broker, topic: str) -> AsyncIterator[Guarded]:
    options = KafkaSourceOptions()
    client = Client.of(f"{kafka.bootstrap}/{topic}", options, ConnectorContext((), SystemClock()))
    state = SourceState(client, options, "group", SystemClock())
    async with make_consumer(client, options) as consumer:
        yield Guarded(state, RetentionGuard(state, consumer, lambda: [TopicPartition(topic, 0)]), f"{topic}-0")


async def test_records_deleted_before_they_were_judged_are_reported_once_until_more_are(
    kafka: Broker, topic: str
) -> None:
    passed = [("retention_passed_low_watermark", f"{topic}-0")]
    async with guarded(kafka, topic) as guard:
        await delete_before(kafka, topic, 3)
        assert await guard.notices(3, 0) == []
        await delete_before(kafka, topic, 5)
        assert await guard.notices(3, 0) == passed
        assert "deleted offsets 3 to 4 before their sequences were judged" in guard.message
        assert await guard.notices(3, 0) == []
        await delete_before(kafka, topic, 6)
        assert await guard.notices(3, 0) == passed
        assert await guard.notices(10, 0) == []


async def test_records_older_than_half_the_retention_are_reported_once_until_they_were_younger(
    kafka: Broker, topic: str
) -> None:
    young_us, old_us = 5 * HOUR_US - 60_000_000, 5 * HOUR_US + 60_000_000
    async with guarded(kafka, topic) as guard:
        assert await guard.notices(3, young_us) == []
        for _ in range(2):
            assert await guard.notices(3, old_us) == [("low_watermark_old", f"{topic}-0")]
            assert "is 5.0 h old" in guard.message
            assert "for 10.0 h" in guard.message
            assert await guard.notices(3, old_us) == []
            assert await guard.notices(4, young_us) == []
        assert await guard.notices(10, 9 * HOUR_US) == [], "a silent topic, judged to its end, is not old"


async def test_a_topic_of_unlimited_retention_is_never_old(kafka: Broker) -> None:
    async with guarded(kafka, await topic_of(kafka, -1)) as guard:
        assert await guard.notices(0, 1_000_000 * HOUR_US) == []


async def test_without_the_right_to_see_the_retention_the_logs_start_is_guarded(
    own_broker: Callable[[dict[str, str]], Broker],
) -> None:
    broker = await asyncio.to_thread(own_broker, ACLS)
    topic = await topic_of(broker, -1)
    await deny(broker, TOPIC, topic, DESCRIBE_CONFIGS)
    async with guarded(broker, topic) as guard:
        assert await guard.notices(3, 0) == [("retention_unknown", None)]
        assert f"grant DESCRIBE_CONFIGS on topic {topic}" in guard.message
        assert await guard.notices(3, 0) == []
        await delete_before(broker, topic, 5)
        assert await guard.notices(3, 0) == [("retention_passed_low_watermark", f"{topic}-0")]
