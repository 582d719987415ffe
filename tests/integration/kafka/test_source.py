"""The Kafka source reads what was committed, from where it is told to, and knows silence from an outage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions
from aiokafka.structs import OffsetAndMetadata

from streamad.testing import check_source
from streamad.types import PartitionAssigned, Rebalanced, Record, RecordBatch, SourceNotice
from streamad_connectors.kafka.client.offsets import log_ends
from streamad_connectors.kafka.reading import source as source_module
from tests.support.kafka.broker import Broker, Message, admin_of, new_topic, produce, unique_name
from tests.support.kafka.source import ACLS, GROUP, READ, TOPIC, Pulling, delete_before, deny, our_tasks, source_of
from tests.support.waiting import IN_TIME_S, LIMIT_S


def group() -> str:
    return unique_name("group")


# --- records ---


async def test_records_come_as_they_were_written(kafka: Broker, topic: str) -> None:
    await produce(
        kafka.bootstrap,
        topic,
        [Message(b"one", b"reactor-1", timestamp_ms=1_700_000_000_123), Message(None, b"reactor-2", timestamp_ms=7)],
    )
    async with Pulling(source_of(kafka.bootstrap, topic, group=group())) as pulling:
        await pulling.until(lambda: len(pulling.values()) == 2)
    records = [record for batch in pulling.batches(f"{topic}-0") for record in batch.records]
    assert records == [Record(0, b"one", 1_700_000_000_123_000, b"reactor-1"), Record(1, b"", 7_000, b"reactor-2")]
    assert pulling.begun == {f"{topic}-0": 0}
    assert pulling.of(PartitionAssigned) == [PartitionAssigned(f"{topic}-0", seen_from_start=True)]
    assert pulling.of(Rebalanced) == [Rebalanced((f"{topic}-0",))]


async def test_it_obeys_the_law_of_sources(kafka: Broker) -> None:
    topic = await new_topic(kafka, 2)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=unique_name("id")) as producer:
        for is_kept in (True, False, True):
            await producer.begin_transaction()
            for number in range(2600):  # more than one batch of each partition
                await producer.send(topic, b"%d" % number, partition=number % 2)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    await check_source(lambda: source_of(kafka.bootstrap, topic, group=group()), timeout_s=120)


async def test_aborted_records_and_markers_are_passed(kafka: Broker, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=unique_name("id")) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept", partition=0)  # offset 0, its marker 1
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)  # 2, its marker 3
        await producer.abort_transaction()
    async with Pulling(source_of(kafka.bootstrap, topic, group=group())) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        batches = pulling.batches(f"{topic}-0")
        assert pulling.values() == [b"kept"]
        assert (batches[-1].next_offset, batches[-1].end_offset) == (4, 4)
        assert [batch.begins_at for batch in batches] == [0, *(batch.next_offset for batch in batches[:-1])]
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=unique_name("id")) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"aborted", partition=0)  # 4, its marker 5: nothing to deliver
            await producer.abort_transaction()
        await pulling.until(lambda: pulling.batches(f"{topic}-0")[-1].next_offset == 6)
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        assert pulling.values() == [b"kept"]


async def test_an_open_transaction_holds_back_and_is_not_silence(kafka: Broker, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=unique_name("id")) as producer:
        await produce(kafka.bootstrap, topic, [b"before"])
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        async with Pulling(source_of(kafka.bootstrap, topic, group=group())) as pulling:
            await pulling.until(lambda: pulling.values() == [b"before"])
            await asyncio.sleep(1.5)
            assert not any(batch.caught_up for batch in pulling.batches(f"{topic}-0"))
            await producer.commit_transaction()
            await pulling.until(lambda: pulling.values() == [b"before", b"open"])
            await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))


async def test_a_topic_is_read_at_full_length_in_order(kafka: Broker) -> None:
    topics = [await new_topic(kafka, 3), await new_topic(kafka)]
    expected: dict[str, list[bytes]] = {}
    for topic, n_partitions in zip(topics, (3, 1), strict=True):
        records = [Message(b"%d" % n, partition=n % n_partitions) for n in range(7000)]
        await produce(kafka.bootstrap, topic, records)
        for number in range(n_partitions):
            expected[f"{topic}-{number}"] = [record.value or b"" for record in records if record.partition == number]
    async with Pulling(source_of(kafka.bootstrap, ",".join(topics), group=group(), fetch_bytes="20KB")) as pulling:
        await pulling.until(lambda: len(pulling.values()) == 14_000)
    assert {name: pulling.values(name) for name in expected} == expected


# --- where it begins ---


async def test_nothing_comes_before_its_seek_and_the_groups_offset_is_no_beginning(kafka: Broker, topic: str) -> None:
    await produce(kafka.bootstrap, topic, [b"%d" % n for n in range(10)])
    name = group()
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=unique_name("id")) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(7, "")}, name)
        await producer.commit_transaction()
    async with Pulling(source_of(kafka.bootstrap, topic, group=name), seeks=False) as pulling:
        await pulling.until(lambda: pulling.of(Rebalanced))
        await asyncio.sleep(1.0)
        assert pulling.of(RecordBatch) == []
        assert await pulling.source.seek(f"{topic}-0", 3) == 3
        await pulling.until(lambda: len(pulling.values()) == 7)
        assert pulling.values()[0] == b"3"
        assert pulling.batches(f"{topic}-0")[0].begins_at == 3


async def test_latest_begins_behind_what_is_there(kafka: Broker, topic: str) -> None:
    await produce(kafka.bootstrap, topic, [b"old"])
    async with Pulling(source_of(kafka.bootstrap, topic, group=group(), start="latest")) as pulling:
        await pulling.until(lambda: pulling.begun)
        assert pulling.begun == {f"{topic}-0": 1}
        await produce(kafka.bootstrap, topic, [b"new"])
        await pulling.until(pulling.values)
    assert pulling.values() == [b"new"]
    assert pulling.of(PartitionAssigned) == [PartitionAssigned(f"{topic}-0", seen_from_start=False)]


async def test_a_second_seek_drops_waiting_records_and_the_batches_begin_there(kafka: Broker, topic: str) -> None:
    await produce(kafka.bootstrap, topic, [b"%d" % n for n in range(3000)])
    source = source_of(kafka.bootstrap, topic, group=group())
    events = source.batches()
    try:
        async with asyncio.timeout(LIMIT_S):
            while not isinstance(await anext(events), PartitionAssigned):
                pass
            await source.seek(f"{topic}-0", 0)
            first = await next_records(events)
            assert (first.begins_at, first.next_offset) == (0, len(first.records))
            await source.seek(f"{topic}-0", 2990)
            second = await next_records(events)
            await source.seek(f"{topic}-0", 5)
            third = await next_records(events)
    finally:
        await source.close()
    assert (second.begins_at, [record.offset for record in second.records]) == (2990, list(range(2990, 3000)))
    assert (third.begins_at, third.records[0].offset) == (5, 5)


async def test_a_paused_partition_waits_for_its_seek_while_others_go_on(kafka: Broker) -> None:
    topic = await new_topic(kafka, 2)
    paused, other = f"{topic}-0", f"{topic}-1"

    async def send(first: int) -> None:
        values = [(b"%d" % number, partition) for number in range(first, first + 20) for partition in range(2)]
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
            for value, partition in values:
                await producer.send(topic, value, partition=partition)

    await send(0)
    async with Pulling(source_of(kafka.bootstrap, topic, group=group())) as pulling:
        await pulling.until(lambda: len(pulling.values()) == 40)
        pulling.source.pause(paused)
        await send(20)
        await pulling.until(lambda: sum(len(batch.records) for batch in pulling.batches(other)) == 40)
        await pulling.until(lambda: pulling.is_caught_up(other))
        assert sum(len(batch.records) for batch in pulling.batches(paused)) == 20
        await pulling.source.seek(paused, 10)
        await pulling.until(lambda: sum(len(batch.records) for batch in pulling.batches(paused)) == 50)
        offsets = [record.offset for batch in pulling.batches(paused) for record in batch.records]
        assert offsets == [*range(20), *range(10, 40)]
        pulling.source.pause("another-7")  # not ours, or no longer


async def test_a_seek_takes_back_what_waits_to_be_yielded(kafka: Broker) -> None:
    topic = await new_topic(kafka, 2)
    await produce(kafka.bootstrap, topic, [Message(b"%d" % n, partition=n % 2) for n in range(80)])
    source = source_of(kafka.bootstrap, topic, group=group())
    events = source.batches()
    names = {f"{topic}-0", f"{topic}-1"}
    try:
        async with asyncio.timeout(LIMIT_S):
            offered: set[str] = set()
            while offered != names:
                if isinstance(event := await anext(events), PartitionAssigned):
                    offered.add(event.partition)
            await asyncio.sleep(0.5)  # what it began to wait for has ended without any record
            for name in names:
                await source.seek(name, 0)
            await asyncio.sleep(1.0)  # both are fetched, and will be taken at once
            first = await next_records(events)
            (other,) = names - {first.partition}
            assert await source.seek(other, 30) == 30
            second = await next_records(events, other)
    finally:
        await source.close()
    assert (second.begins_at, len(second.records)) == (30, 10)


async def next_records(events: AsyncIterator[object], partition: str | None = None) -> RecordBatch:
    async for event in events:
        if isinstance(event, RecordBatch) and event.records and partition in (None, event.partition):
            return event
    raise AssertionError("the source has ended")


async def test_deleted_records_end_it_unless_the_gap_is_accepted(kafka: Broker, topic: str) -> None:
    await produce(kafka.bootstrap, topic, [b"%d" % n for n in range(10)])
    await delete_before(kafka, topic, 6)
    async with Pulling(source_of(kafka.bootstrap, topic, group=group()), {f"{topic}-0": 4}) as pulling:
        await pulling.failure(f"{topic}-0: offsets 4 to 5 were deleted", "--accept-gap")
    async with Pulling(source_of(kafka.bootstrap, topic, group=group(), accept_gap=True), {f"{topic}-0": 4}) as pulling:
        await pulling.until(lambda: len(pulling.values()) == 4)
        await pulling.until(lambda: pulling.of(SourceNotice))
    assert pulling.begun == {f"{topic}-0": 6}
    assert [(notice.kind, notice.partition) for notice in pulling.of(SourceNotice)] == [("gap_accepted", f"{topic}-0")]
    assert pulling.of(PartitionAssigned) == [PartitionAssigned(f"{topic}-0", seen_from_start=False)]


async def test_records_deleted_between_seek_and_reading_end_it(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deleted_after_the_look(*arguments: Any) -> Any:
        found = await log_ends(*arguments)
        await delete_before(kafka, topic, 5)
        return found

    await produce(kafka.bootstrap, topic, [b"%d" % n for n in range(10)])
    async with Pulling(source_of(kafka.bootstrap, topic, group=group()), seeks=False) as pulling:
        await pulling.until(lambda: pulling.of(Rebalanced))
        monkeypatch.setattr(source_module, "log_ends", deleted_after_the_look)
        assert await pulling.source.seek(f"{topic}-0", 2) == 2
        await pulling.failure(f"the requested offset of topic {topic} was deleted")


async def test_progress_beyond_the_end_of_a_topic_ends_it(kafka: Broker, topic: str) -> None:
    await produce(kafka.bootstrap, topic, [b"one"])
    async with Pulling(source_of(kafka.bootstrap, topic, group=group()), {f"{topic}-0": 2}) as pulling:
        await pulling.failure("ends at offset 1, but was judged up to 2")


# --- silence and outages ---


async def test_silence_is_confirmed_several_times_a_second(kafka: Broker, topic: str) -> None:
    await produce(kafka.bootstrap, topic, [b"one"])
    async with Pulling(source_of(kafka.bootstrap, topic, group=group())) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        since_s = time.monotonic()
        took_s = await pulling.until(lambda: len(pulling.batches(f"{topic}-0", since_s)) == 12)
        beats = pulling.batches(f"{topic}-0", since_s)
    assert took_s > 2.0
    times_s = [at_s for at_s, _ in pulling.events if at_s >= since_s]
    assert median(later - earlier for earlier, later in pairwise(times_s)) < 0.6
    assert all(beat == RecordBatch(f"{topic}-0", (), 1, True, 1, 1) for beat in beats)


@pytest.mark.parametrize("outage", ["pause", "kill"])
async def test_an_outage_is_not_silence(unstable_kafka: Broker, outage: str) -> None:
    broker = unstable_kafka
    topic = await new_topic(broker)
    name = f"{topic}-0"
    await produce(broker.bootstrap, topic, [b"before"])
    async with Pulling(source_of(broker.bootstrap, topic, group=group())) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(name))
        await asyncio.to_thread(getattr(broker, outage))
        away_s = time.monotonic()
        await pulling.until(lambda: not pulling.batches(name)[-1].caught_up)
        await asyncio.sleep(4.0)
        # What was answered before the outage may still come; then once that nobody knows.
        *answered, unknown = [batch.caught_up for batch in pulling.batches(name, away_s)]
        assert len(answered) <= 3
        assert all(answered)
        assert not unknown
        await asyncio.to_thread(broker.recover)
        back_s = time.monotonic()
        await pulling.until(lambda: pulling.is_caught_up(name, back_s))
        await produce(broker.bootstrap, topic, [b"after"])
        await pulling.until(lambda: pulling.values() == [b"before", b"after"])
        assert pulling.assigned() == {name}


async def test_an_outage_between_two_reads_is_reported(unstable_kafka: Broker) -> None:
    topic = await new_topic(unstable_kafka)
    source = source_of(unstable_kafka.bootstrap, topic, group=group(), session_timeout="10s")
    events = source.batches()
    try:
        async with asyncio.timeout(LIMIT_S):
            batch: object = None
            while not (isinstance(batch, RecordBatch) and batch.caught_up):
                batch = await anext(events)
                if isinstance(batch, PartitionAssigned):
                    await source.seek(batch.partition, None)
            unstable_kafka.pause()
            await asyncio.sleep(3.0)
            unstable_kafka.resume()
            await asyncio.sleep(1.0)
            first = await anext(events)
            assert isinstance(first, RecordBatch)
            assert not first.caught_up
            while not (isinstance(batch := await anext(events), RecordBatch) and batch.caught_up):
                pass
    finally:
        await source.close()


async def test_a_broker_that_stays_away_ends_it(unstable_kafka: Broker) -> None:
    broker = unstable_kafka
    topic = await new_topic(broker)
    options = {"give_up_after": "3s", "request_timeout": "1s"}
    async with Pulling(source_of(broker.bootstrap, topic, group=group(), **options)) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        broker.pause()
        began_s = time.monotonic()
        await pulling.failure(f"broker {broker.bootstrap} has not answered for")
        took_s = time.monotonic() - began_s
        broker.resume()
    assert 2.5 < took_s < IN_TIME_S


async def test_records_that_wait_but_never_come_end_it(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: Any, **options: Any) -> dict[TopicPartition, Any]:
        await asyncio.sleep(options["timeout_ms"] / 1000)
        return {}

    await produce(kafka.bootstrap, topic, [b"x" * 1000] * 1000)
    source = source_of(kafka.bootstrap, topic, group=group(), fetch_bytes="50KB", give_up_after="2s")
    async with Pulling(source) as pulling:
        await pulling.until(pulling.values)
        monkeypatch.setattr(AIOKafkaConsumer, "getmany", nothing)
        await pulling.failure(f"partition {topic}-0")


async def test_messages_of_every_compression_and_size_are_read(kafka: Broker) -> None:
    topics = [
        await new_topic(kafka, 1, {"max.message.bytes": "9000000", "compression.type": codec})
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ]
    sizes = [10, 3_000_000, 5_000_000, 10]  # longer than what is fetched at once
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, max_request_size=9_000_000) as producer:
        for name in topics:
            for size in sizes:
                await producer.send_and_wait(name, b"x" * size)
    async with Pulling(source_of(kafka.bootstrap, ",".join(topics), group=group())) as pulling:
        await pulling.until(lambda: len(pulling.values()) == 16)
    for name in topics:
        assert [len(value) for value in pulling.values(f"{name}-0")] == sizes


# --- what cannot be read ---


async def test_a_missing_right_is_named(own_broker: Callable[..., Broker]) -> None:
    broker = await asyncio.to_thread(own_broker, ACLS)
    topic, mine, other = await new_topic(broker), group(), group()
    await deny(broker, GROUP, mine, READ)
    async with Pulling(source_of(broker.bootstrap, topic, group=mine)) as pulling:
        await pulling.failure(f"grant READ on group {mine}")
    async with Pulling(source_of(broker.bootstrap, topic, group=other)) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        await deny(broker, TOPIC, topic, READ)
        await pulling.failure(f"grant READ and DESCRIBE on topic {topic}")


async def test_partitions_added_while_it_reads_end_it(kafka: Broker, topic: str) -> None:
    source = source_of(kafka.bootstrap, topic, group=group())
    async with Pulling(source) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        async with admin_of(kafka.bootstrap) as admin:
            await admin.create_partitions({topic: NewPartitions(2)})
        await pulling.failure(f"topic {topic} has more partitions than the 1 it had")
    assert [notice.kind for notice in pulling.of(SourceNotice)] == ["partitions_added"]
    assert pulling.assigned() == {f"{topic}-0"}


# --- its end ---


async def test_close_ends_the_iterator_and_leaves_no_task(kafka: Broker, topic: str) -> None:
    before = our_tasks()
    source = source_of(kafka.bootstrap, topic, group=group())
    await source_of(kafka.bootstrap, topic, group=group()).close()  # never read
    async with Pulling(source) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        await source.close()
        await source.close()
        await asyncio.sleep(0.1)
        assert pulling.is_over
        assert pulling.error is None
    assert our_tasks() <= before


@pytest.mark.parametrize("outage", ["pause", "kill"])
async def test_close_returns_while_the_broker_is_away(unstable_kafka: Broker, outage: str) -> None:
    topic = await new_topic(unstable_kafka, 2)
    before = our_tasks()
    pulling = Pulling(source_of(unstable_kafka.bootstrap, topic, group=group()))
    async with pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        await asyncio.to_thread(getattr(unstable_kafka, outage))
        await asyncio.sleep(1.0)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < IN_TIME_S
    assert our_tasks() <= before
