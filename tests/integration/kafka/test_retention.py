"""The retention guard speaks before records that are not judged are deleted, and where that has happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka.admin import NewTopic

from streamad.types import SourceNotice
from streamad_connectors.kafka import KafkaSource
from tests.support.kafka.broker import Broker, create_topics, produce, unique_name
from tests.support.kafka.source import ACLS, DESCRIBE_CONFIGS, TOPIC, Pulling, delete_before, deny, source_of

HOUR_US = 3_600_000_000


@pytest.fixture
async def topic(kafka: Broker) -> str:
    """A topic of one partition with ten records, kept for ten hours."""
    name = unique_name("press")
    settings = {"retention.ms": str(10 * HOUR_US // 1000)}
    await create_topics(kafka.bootstrap, {name: NewTopic(name, 1, 1, topic_configs=settings)})
    await produce(kafka.bootstrap, name, [b"%d" % n for n in range(10)])
    return name


def guarded(kafka: Broker, topic: str, low_watermark: int, age_us: int) -> tuple[Pulling, KafkaSource]:
    """Return a source whose partition was judged up to ``low_watermark``, and all before ``age_us`` ago."""
    source = source_of(kafka.bootstrap, topic, group=unique_name("group"), retention_check="1s")
    clock_us = time.time_ns() // 1000 - age_us
    source._state.progress_of[f"{topic}-0"] = (low_watermark, clock_us)
    return Pulling(source), source


def notices(pulling: Pulling) -> list[tuple[str, str | None]]:
    return [(notice.kind, notice.partition) for notice in pulling.of(SourceNotice)]


async def test_young_records_that_are_there_are_no_matter(kafka: Broker, topic: str) -> None:
    pulling, _ = guarded(kafka, topic, low_watermark=3, age_us=5 * HOUR_US - 60_000_000)
    async with pulling:
        await asyncio.sleep(2.6)
    assert pulling.error is None
    assert notices(pulling) == []


async def test_records_deleted_before_they_were_judged_are_told_once_until_more_are(kafka: Broker, topic: str) -> None:
    pulling, source = guarded(kafka, topic, low_watermark=3, age_us=0)
    name = f"{topic}-0"
    async with pulling:
        await pulling.until(lambda: pulling.is_caught_up(name))
        await delete_before(kafka, topic, 3)  # all of them judged
        await asyncio.sleep(1.5)
        assert notices(pulling) == []
        await delete_before(kafka, topic, 5)
        await pulling.until(lambda: pulling.of(SourceNotice))
        assert "deleted offsets 3 to 4 before their sequences were judged" in pulling.of(SourceNotice)[0].message
        await asyncio.sleep(2.5)
        assert notices(pulling) == [("retention_passed_low_watermark", name)]
        await delete_before(kafka, topic, 6)
        await pulling.until(lambda: len(pulling.of(SourceNotice)) == 2)
        source._state.progress_of[name] = (10, time.time_ns() // 1000)
        await asyncio.sleep(1.5)
        assert notices(pulling) == [("retention_passed_low_watermark", name)] * 2
        assert not pulling.is_over


async def test_records_older_than_half_the_retention_are_told_once_until_they_were_younger(
    kafka: Broker, topic: str
) -> None:
    pulling, source = guarded(kafka, topic, low_watermark=3, age_us=5 * HOUR_US + 60_000_000)
    name = f"{topic}-0"
    async with pulling:
        await pulling.until(lambda: pulling.of(SourceNotice))
        assert notices(pulling) == [("low_watermark_old", name)]
        message = pulling.of(SourceNotice)[0].message
        assert "is 5.0 h old" in message
        assert "for 10.0 h" in message
        old = source._state.progress_of[name]
        source._state.progress_of[name] = (4, time.time_ns() // 1000)
        await asyncio.sleep(2.5)
        assert len(notices(pulling)) == 1
        source._state.progress_of[name] = old
        await pulling.until(lambda: len(notices(pulling)) == 2)


async def test_a_silent_topic_that_is_judged_to_its_end_is_not_old(kafka: Broker, topic: str) -> None:
    pulling, _ = guarded(kafka, topic, low_watermark=10, age_us=9 * HOUR_US)
    async with pulling:
        await asyncio.sleep(2.6)
    assert pulling.error is None
    assert notices(pulling) == []


async def test_a_topic_kept_for_ever_is_never_old(kafka: Broker) -> None:
    topic = unique_name("press")
    await create_topics(kafka.bootstrap, {topic: NewTopic(topic, 1, 1, topic_configs={"retention.ms": "-1"})})
    await produce(kafka.bootstrap, topic, [b"one"])
    pulling, _ = guarded(kafka, topic, low_watermark=0, age_us=1_000_000 * HOUR_US)
    async with pulling:
        await asyncio.sleep(2.6)
    assert pulling.error is None
    assert notices(pulling) == []


async def test_without_the_right_to_see_the_retention_the_logs_start_is_guarded(
    own_broker: Callable[..., Broker],
) -> None:
    broker = await asyncio.to_thread(own_broker, ACLS)
    topic = unique_name("press")
    await create_topics(broker.bootstrap, {topic: 1})
    await produce(broker.bootstrap, topic, [b"%d" % n for n in range(10)])
    await deny(broker, TOPIC, topic, DESCRIBE_CONFIGS)
    pulling, _ = guarded(broker, topic, low_watermark=3, age_us=0)
    async with pulling:
        await pulling.until(lambda: pulling.of(SourceNotice))
        message = pulling.of(SourceNotice)[0].message
        assert f"grant DESCRIBE_CONFIGS on topic {topic}" in message
        await delete_before(broker, topic, 5)
        await pulling.until(lambda: len(pulling.of(SourceNotice)) == 2)
        await asyncio.sleep(2.5)
    assert notices(pulling) == [("retention_unknown", None), ("retention_passed_low_watermark", f"{topic}-0")]
