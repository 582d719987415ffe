"""The Kafka feed against a real broker: every record once, in order by key, at its time, and bounded."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamad.errors import OutputError
from streamad.plugins import ConnectorContext, connect_feed
from streamad.ports import Feed, FeedRecord
from streamad.testing import ManualClock
from tests.support.kafka.broker import Broker, Message, new_topic, produce, read_committed
from tests.support.waiting import IN_TIME_S

CONTEXT = ConnectorContext((), ManualClock())


def feed_of(broker: Broker, topic: str, **options: Any) -> Feed:
    return connect_feed(f"kafka://{broker.bootstrap}/{topic}", options, CONTEXT)


async def test_every_record_arrives_once_in_order_by_key_where_the_client_s_own_hash_puts_it(kafka: Broker) -> None:
    topic, reference = await new_topic(kafka, 5), await new_topic(kafka, 5)
    keys = [f"reactor-{i}".encode() for i in range(20)]
    records = [FeedRecord(f"{n}".encode() * 40, key, 1_700_000_000_123_456 + n) for n in range(3_000) for key in keys]
    feed = feed_of(kafka, topic)
    for first in range(0, len(records), 7_777):
        await feed.send(records[first : first + 7_777])
    await feed.flush()
    await feed.close()
    found: dict[bytes, list[bytes | None]] = {}
    place: dict[bytes, set[int]] = {}
    for record in await read_committed(kafka.bootstrap, topic):
        assert record.key is not None
        found.setdefault(record.key, []).append(record.value)
        place.setdefault(record.key, set()).add(record.partition)
        assert record.timestamp == 1_700_000_000_123 + (456 + int(record.value[: len(record.value) // 40])) // 1_000
    assert found == {key: [f"{n}".encode() * 40 for n in range(3_000)] for key in keys}
    sent = await produce(kafka.bootstrap, reference, [Message(b"", key) for key in keys])
    assert place == {key: {where.partition} for key, where in zip(keys, sent, strict=True)}


async def test_records_without_a_key_go_around_in_turn_and_one_without_a_time_gets_the_present(kafka: Broker) -> None:
    topic = await new_topic(kafka, 3)
    feed = feed_of(kafka, topic)
    before = time.time()
    await feed.send([FeedRecord(b"%d" % n) for n in range(9)])
    await feed.close()  # flushes
    records = await read_committed(kafka.bootstrap, topic)
    assert [(record.partition, record.value) for record in records] == [
        (partition, b"%d" % n) for partition in range(3) for n in range(partition, 9, 3)
    ]
    assert all(before - 1 <= record.timestamp / 1e3 <= time.time() + 1 for record in records)


async def test_what_was_flushed_is_there_before_close_and_small_sends_join(kafka: Broker, topic: str) -> None:
    feed = feed_of(kafka, topic)
    for n in range(10):
        await feed.send([FeedRecord(b"%d" % n, b"k")])
    await feed.flush()
    assert [record.value for record in await read_committed(kafka.bootstrap, topic)] == [b"%d" % n for n in range(10)]
    await feed.flush()
    await feed.close()
    await feed.close()


async def test_a_flush_after_many_small_records_returns_when_all_are_there(kafka: Broker) -> None:
    topic = await new_topic(kafka, 4)
    records = [
        FeedRecord(b'{"stream": "s", "values": {"a": 1.5}, "time": %d}' % n, b"%d" % (n % 8), n) for n in range(50_000)
    ]
    feed = feed_of(kafka, topic)
    await feed.send(records)
    await feed.flush()
    found = await read_committed(kafka.bootstrap, topic)
    await feed.close()
    assert sorted(record.timestamp for record in found) == [n // 1000 for n in range(50_000)]
    assert {record.value for record in found} == {record.value for record in records}


async def test_a_large_record_fits_and_one_too_large_is_an_error(kafka: Broker, topic: str) -> None:
    feed = feed_of(kafka, topic)
    await feed.send([FeedRecord(b"a"), FeedRecord(b"x" * 950_000), FeedRecord(b"b")])
    with pytest.raises(OutputError, match=f"topic {topic}: a record takes 1000[0-9]{{3}} bytes, 1000000 at most"):
        await feed.send([FeedRecord(b"x" * 1_000_000)])
    await feed.close()
    sizes = [len(record.value or b"") for record in await read_committed(kafka.bootstrap, topic)]
    assert sizes == [1, 950_000, 1]


@pytest.mark.parametrize("outage", ["stop", "kill"])
async def test_an_outage_longer_than_any_time_out_loses_and_repeats_nothing(
    unstable_kafka: Broker, outage: str
) -> None:
    broker, topic = unstable_kafka, await new_topic(unstable_kafka, 3)
    feed = feed_of(broker, topic, request_timeout="1s")
    keys = [b"%d" % key for key in range(6)]
    await feed.send([FeedRecord(b"0", key) for key in keys])
    await feed.flush()
    with capture_logs() as logs:
        await asyncio.to_thread(getattr(broker, outage))
        delivering = asyncio.ensure_future(_send_all(feed, keys))
        began = time.monotonic()
        while not ours(logs):  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.05)
        assert 4 < time.monotonic() - began < IN_TIME_S
        assert not delivering.done()
        await asyncio.to_thread(broker.start)
        await delivering
        await feed.close()
    assert ours(logs) == ["waiting for the brokers", "the brokers are back"]
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in await read_committed(broker.bootstrap, topic):
        found.setdefault(record.key, []).append(record.value)
    assert found == {key: [b"0", *(b"%d" % n + b"x" * 2_000 for n in range(1, 2_000))] for key in keys}


def ours(logs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was logged, less the lines of aiokafka."""
    return [line["event"] for line in logs if line["event"] != "aiokafka"]


async def _send_all(feed: Feed, keys: list[bytes]) -> None:
    # Several batches for each partition: the second has to wait for the first.
    await feed.send([FeedRecord(b"%d" % n + b"x" * 2_000, key) for n in range(1, 2_000) for key in keys])
    await feed.flush()


async def test_close_ends_a_wait_for_brokers_that_are_away(unstable_kafka: Broker) -> None:
    topic = await new_topic(unstable_kafka)
    feed = feed_of(unstable_kafka, topic, request_timeout="1s")
    await feed.send([FeedRecord(b"a")])
    await feed.flush()
    await asyncio.to_thread(unstable_kafka.kill)
    await feed.send([FeedRecord(b"b")])
    flushing = asyncio.ensure_future(feed.flush())
    await asyncio.wait({flushing}, timeout=1)
    started = time.monotonic()
    await feed.close()
    assert time.monotonic() - started < IN_TIME_S
    with pytest.raises(OutputError, match=f"could not write topic {topic} within 4 s: no broker can be reached"):
        await flushing


async def test_a_broker_that_accepts_and_never_answers_is_one_error_in_one_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        feed = connect_feed(f"kafka://127.0.0.1:{port}/in", {"request_timeout": "1s"}, CONTEXT)
        started = time.monotonic()
        with pytest.raises(OutputError, match=f"kafka 127.0.0.1:{port}: no answer within 1 s to: write topic in"):
            await feed.send([FeedRecord(b"a")])
        await feed.close()
        assert time.monotonic() - started < IN_TIME_S
