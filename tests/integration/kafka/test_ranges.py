"""A range of a topic is read offline: from a time to a time, the same at every reading, with an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer

from streamad.ports import RangedSource
from streamad.testing import check_source
from streamad.types import PartitionAssigned, PartitionEnded, RecordBatch
from streamad_connectors.kafka.reading.time_range import KafkaRange
from tests.support.kafka.broker import Broker, Message, new_topic, produce, unique_name
from tests.support.kafka.source import Pulling, delete_before, our_tasks, source_of
from tests.support.waiting import LIMIT_S

# An hour ago: much older records would soon be deleted, and lie in a segment of their own.
T0_MS = round(time.time() - 3600) * 1000


@pytest.fixture
async def topic(kafka: Broker) -> str:
    return await new_topic(kafka, 2)


def range_of(kafka: Broker, topic: str, since_us: int | None = None, until_us: int | None = None) -> KafkaRange:
    source = source_of(kafka.bootstrap, topic, group=unique_name("group"))
    assert isinstance(source, RangedSource)
    return source.between(since_us, until_us)


async def ended(source: KafkaRange, begin: dict[str, int] | None = None) -> Pulling:
    """Return what ``source`` gives until it ends by itself."""
    async with Pulling(source, begin) as pulling:
        await pulling.end()
    assert pulling.error is None, pulling.error
    return pulling


async def write_times(kafka: Broker, topic: str, times_ms: list[int]) -> None:
    """Write one record for each time into partition 0, its number as its value."""
    await produce(
        kafka.bootstrap, topic, [Message(b"%d" % n, None, 0, T0_MS + at_ms) for n, at_ms in enumerate(times_ms)]
    )


async def test_all_there_is(kafka: Broker, topic: str) -> None:
    before = our_tasks()
    await produce(kafka.bootstrap, topic, [Message(b"%d" % n, partition=n % 2) for n in range(5000)])
    pulling = await ended(range_of(kafka, topic))
    assert sorted(pulling.values(), key=int) == [b"%d" % n for n in range(5000)]
    assert pulling.of(PartitionAssigned) == [PartitionAssigned(f"{topic}-0"), PartitionAssigned(f"{topic}-1")]
    assert sorted(event.partition for event in pulling.of(PartitionEnded)) == [f"{topic}-0", f"{topic}-1"]
    assert not any(batch.caught_up for batch in pulling.of(RecordBatch))
    assert our_tasks() <= before


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "expected", "is_whole"),
    [
        (None, None, range(5), True),
        (0, None, range(5), True),
        (1000, None, range(1, 5), False),
        (1001, None, range(2, 5), False),
        (None, 3000, range(3), True),
        (None, 3001, range(4), True),
        (1000, 3000, range(1, 3), False),
        (5000, None, range(0), False),
        (None, 0, range(0), True),
        (2000, 2000, range(0), False),
        (3000, 1000, range(0), False),
    ],
)
async def test_times_are_those_of_the_records(
    kafka: Broker, topic: str, *, since_ms: int | None, until_ms: int | None, expected: range, is_whole: bool
) -> None:
    await write_times(kafka, topic, [0, 1000, 2000, 3000, 4000])
    since_us, until_us = ((T0_MS + ms) * 1000 if ms is not None else None for ms in (since_ms, until_ms))
    pulling = await ended(range_of(kafka, topic, since_us, until_us))
    assert pulling.values(f"{topic}-0") == [b"%d" % n for n in expected]
    assert pulling.of(PartitionAssigned)[0] == PartitionAssigned(f"{topic}-0", seen_from_start=is_whole)
    assert len(pulling.of(PartitionEnded)) == 2


async def test_a_microsecond_more_leaves_a_record_of_the_millisecond_out(kafka: Broker, topic: str) -> None:
    await write_times(kafka, topic, [0, 1])
    assert (await ended(range_of(kafka, topic, T0_MS * 1000 + 1))).values() == [b"1"]
    assert (await ended(range_of(kafka, topic, None, T0_MS * 1000 + 1))).values() == [b"0"]


async def test_between_two_ends_the_order_is_that_of_arrival(kafka: Broker, topic: str) -> None:
    await write_times(kafka, topic, [0, 2000, 1000, 3000, 2500])
    pulling = await ended(range_of(kafka, topic, (T0_MS + 1500) * 1000, (T0_MS + 3000) * 1000))
    assert pulling.values() == [b"1", b"2"]


async def test_it_ends_where_the_topic_ended_when_it_began(kafka: Broker, topic: str) -> None:
    await write_times(kafka, topic, [0, 1000])
    source = range_of(kafka, topic)
    async with Pulling(source, seeks=False) as pulling:
        await pulling.until(lambda: len(pulling.of(PartitionAssigned)) == 2)
        await produce(kafka.bootstrap, topic, [Message(b"later", partition=n % 2) for n in range(3000)])
        for partition in (f"{topic}-0", f"{topic}-1"):
            await source.seek(partition, None)
        await pulling.end()
    assert pulling.error is None
    assert pulling.values() == [b"0", b"1"]
    assert pulling.batches(f"{topic}-0")[-1].next_offset == 2
    assert sorted(pulling.of(PartitionEnded), key=str) == [
        PartitionEnded(f"{topic}-0", 2),
        PartitionEnded(f"{topic}-1", 0),
    ]


async def test_a_deleted_beginning_is_reported_and_cannot_be_sought(kafka: Broker, topic: str) -> None:
    await write_times(kafka, topic, [0, 1000, 2000])
    await delete_before(kafka, topic, 2)
    pulling = await ended(range_of(kafka, topic))
    assert pulling.values() == [b"2"]
    assert pulling.of(PartitionAssigned)[0] == PartitionAssigned(f"{topic}-0", seen_from_start=False)
    async with Pulling(range_of(kafka, topic), {f"{topic}-0": 1}) as pulling:
        await pulling.failure("offsets 1 to 1 are deleted")


async def test_a_topic_that_was_emptied_ends_at_once(kafka: Broker, topic: str) -> None:
    await write_times(kafka, topic, [0, 1000, 2000])
    await delete_before(kafka, topic, 3)
    pulling = await ended(range_of(kafka, topic))
    assert pulling.values() == []
    assert len(pulling.of(PartitionEnded)) == 2


async def write_ragged(broker: Broker) -> str:
    """Return a compacted topic with 9000 committed records, of which compaction removes some, and aborted ones.

    Partition 2 stays empty; the others end with an aborted transaction.
    """
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    topic = await new_topic(broker, 3, settings)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique_name("id")) as producer:
        for turn, is_kept in enumerate((True, False, True, True, False)):
            await producer.begin_transaction()
            for number in range(3000):
                key = b"once-%d-%d" % (turn, number) if number % 7 == 0 else b"again-%d" % number
                await producer.send(topic, b"%d" % number, key, partition=number % 2)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
            await asyncio.sleep(0.15)
    return topic


async def test_it_obeys_the_law_with_gaps_aborts_and_markers(own_broker: Callable[..., Broker]) -> None:
    broker = await asyncio.to_thread(own_broker, {"log.cleaner.backoff.ms": "100"})
    topic = await write_ragged(broker)
    n_found, n_before = 9000, -1
    async with asyncio.timeout(LIMIT_S):
        while n_found == 9000 or n_found != n_before:  # until compaction has done all that it does
            await asyncio.sleep(2.0)
            n_before, n_found = n_found, len((await ended(range_of(broker, topic))).values())
    pulling = await ended(range_of(broker, topic))
    assert {batch.partition for batch in pulling.of(RecordBatch)} == {f"{topic}-0", f"{topic}-1"}
    offsets = [record.offset for batch in pulling.batches(f"{topic}-0") for record in batch.records]
    assert offsets != list(range(offsets[0], offsets[-1] + 1))
    assert offsets[-1] < pulling.batches(f"{topic}-0")[-1].next_offset - 2  # aborted records and markers at the end
    await check_source(lambda: range_of(broker, topic), timeout_s=120)
