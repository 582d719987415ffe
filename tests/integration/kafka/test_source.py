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
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.structs import OffsetAndMetadata

from streamad.errors import SourceError
from streamad.testing import check_source
from streamad.types import PartitionAssigned, Rebalanced, Record, RecordBatch, SourceNotice
from streamad_connectors.kafka.client.offsets import log_ends
from streamad_connectors.kafka.reading import source as source_module
from tests.support.kafka.broker import Broker, Message, admin_of, create_topics, produce, unique_name
from tests.support.kafka.source import ACLS, GROUP, READ, TOPIC, Pulling, delete_before, deny, our_tasks, source_of


@pytest.fixture
async def topic(kafka: Broker) -> str:
    name = unique_name("press")
    await create_topics(kafka.bootstrap, {name: 1})
    return name


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
    topic = unique_name("press")
    await create_topics(kafka.bootstrap, {topic: 2})
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
    topics = [unique_name("press"), unique_name("oven")]
    await create_topics(kafka.bootstrap, {topics[0]: 3, topics[1]: 1})
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
        async with asyncio.timeout(30):
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


async def test_a_seek_takes_back_what_waits_to_be_yielded(kafka: Broker) -> None:
    topic = unique_name("press")
    await create_topics(kafka.bootstrap, {topic: 2})
    await produce(kafka.bootstrap, topic, [Message(b"%d" % n, partition=n % 2) for n in range(80)])
    source = source_of(kafka.bootstrap, topic, group=group())
    events = source.batches()
    names = {f"{topic}-0", f"{topic}-1"}
    try:
        async with asyncio.timeout(30):
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
        error = await pulling.failure()
    assert isinstance(error, SourceError)
    assert f"{topic}-0: offsets 4 to 5 were deleted" in str(error)
    assert "--accept-gap" in str(error)
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
        error = await pulling.failure()
    assert isinstance(error, SourceError)
    assert f"the requested offset of topic {topic} was deleted" in str(error)


async def test_progress_beyond_the_end_of_a_topic_ends_it(kafka: Broker, topic: str) -> None:
    await produce(kafka.bootstrap, topic, [b"one"])
    async with Pulling(source_of(kafka.bootstrap, topic, group=group()), {f"{topic}-0": 2}) as pulling:
        error = await pulling.failure()
    assert isinstance(error, SourceError)
    assert "ends at offset 1, but was judged up to 2" in str(error)


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


@pytest.mark.parametrize("outage", ["paused", "killed"])
async def test_an_outage_is_not_silence(own_broker: Callable[..., Broker], outage: str) -> None:
    broker = await asyncio.to_thread(own_broker)
    topic = unique_name("press")
    await create_topics(broker.bootstrap, {topic: 1})
    name = f"{topic}-0"
    await produce(broker.bootstrap, topic, [b"before"])
    async with Pulling(source_of(broker.bootstrap, topic, group=group())) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(name))
        if outage == "paused":
            broker.pause()
        else:
            await asyncio.to_thread(broker.kill)
        away_s = time.monotonic()
        await pulling.until(lambda: not pulling.batches(name)[-1].caught_up)
        await asyncio.sleep(4.0)
        # What was answered before the outage may still come; then once that nobody knows.
        *answered, unknown = [batch.caught_up for batch in pulling.batches(name, away_s)]
        assert len(answered) <= 3
        assert all(answered)
        assert not unknown
        if outage == "paused":
            broker.resume()
        else:
            await asyncio.to_thread(broker.start)
        back_s = time.monotonic()
        await pulling.until(lambda: pulling.is_caught_up(name, back_s))
        await produce(broker.bootstrap, topic, [b"after"])
        await pulling.until(lambda: pulling.values() == [b"before", b"after"])
        assert pulling.assigned() == {name}


async def test_an_outage_between_two_reads_is_reported(own_broker: Callable[..., Broker]) -> None:
    broker = await asyncio.to_thread(own_broker)
    topic = unique_name("press")
    await create_topics(broker.bootstrap, {topic: 1})
    source = source_of(broker.bootstrap, topic, group=group(), session_timeout="10s")
    events = source.batches()
    try:
        async with asyncio.timeout(60):
            batch: object = None
            while not (isinstance(batch, RecordBatch) and batch.caught_up):
                batch = await anext(events)
                if isinstance(batch, PartitionAssigned):
                    await source.seek(batch.partition, None)
            broker.pause()
            await asyncio.sleep(3.0)
            broker.resume()
            await asyncio.sleep(1.0)
            first, second = await anext(events), await anext(events)
    finally:
        await source.close()
    assert isinstance(first, RecordBatch)
    assert isinstance(second, RecordBatch)
    assert (first.caught_up, second.caught_up) == (False, True)


async def test_a_broker_that_stays_away_ends_it(own_broker: Callable[..., Broker]) -> None:
    broker = await asyncio.to_thread(own_broker)
    topic = unique_name("press")
    await create_topics(broker.bootstrap, {topic: 1})
    options = {"give_up_after": "3s", "request_timeout": "1s"}
    async with Pulling(source_of(broker.bootstrap, topic, group=group(), **options)) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        broker.pause()
        began_s = time.monotonic()
        error = await pulling.failure()
        took_s = time.monotonic() - began_s
        broker.resume()
    assert isinstance(error, SourceError)
    assert f"broker {broker.bootstrap} has not answered for" in str(error)
    assert 2.5 < took_s < 12


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
        error = await pulling.failure(within_s=12)
    assert isinstance(error, SourceError)
    assert f"partition {topic}-0" in str(error)


async def test_messages_of_every_compression_and_size_are_read(kafka: Broker) -> None:
    settings = {"max.message.bytes": "9000000"}
    topics = {unique_name(codec): codec for codec in ("gzip", "snappy", "lz4", "zstd")}
    new = {
        name: NewTopic(name, 1, 1, topic_configs={**settings, "compression.type": codec})
        for name, codec in topics.items()
    }
    await create_topics(kafka.bootstrap, new)
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
    topic, mine, other = unique_name("press"), group(), group()
    await create_topics(broker.bootstrap, {topic: 1})
    await deny(broker, GROUP, mine, READ)
    async with Pulling(source_of(broker.bootstrap, topic, group=mine)) as pulling:
        error = await pulling.failure()
    assert isinstance(error, SourceError)
    assert f"grant READ on group {mine}" in str(error)
    async with Pulling(source_of(broker.bootstrap, topic, group=other)) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        await deny(broker, TOPIC, topic, READ)
        error = await pulling.failure()
    assert isinstance(error, SourceError)
    assert f"grant READ and DESCRIBE on topic {topic}" in str(error)


async def test_partitions_added_while_it_reads_end_it(kafka: Broker, topic: str) -> None:
    source = source_of(kafka.bootstrap, topic, group=group())
    async with Pulling(source) as pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        async with admin_of(kafka.bootstrap) as admin:
            await admin.create_partitions({topic: NewPartitions(2)})
        error = await pulling.failure()
    assert isinstance(error, SourceError)
    assert f"topic {topic} has more partitions than the 1 it had" in str(error)
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


@pytest.mark.parametrize("outage", ["paused", "killed"])
async def test_close_returns_while_the_broker_is_away(own_broker: Callable[..., Broker], outage: str) -> None:
    broker = await asyncio.to_thread(own_broker)
    topic = unique_name("press")
    await create_topics(broker.bootstrap, {topic: 2})
    before = our_tasks()
    pulling = Pulling(source_of(broker.bootstrap, topic, group=group()))
    async with pulling:
        await pulling.until(lambda: pulling.is_caught_up(f"{topic}-0"))
        if outage == "paused":
            broker.pause()
        else:
            await asyncio.to_thread(broker.kill)
        await asyncio.sleep(1.0)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 8.0  # the request time-out is 3 s, aiokafka's 40 s
    assert our_tasks() <= before
