"""The Kafka sink on its own, against a real broker: the law of sinks, and an end to every wait."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from streamad.errors import OutputError
from streamad.messages import Event, LateRecord, Origin, OutputRecord
from streamad.plugins import ConnectorContext, connect_sink
from streamad.ports import DurableSink, Sink
from streamad.testing import ManualClock, check_sink
from streamad.types import from_us
from tests.support.kafka.broker import Broker, new_topic, read_committed, unique_name
from tests.support.waiting import IN_TIME_S

CONTEXT = ConnectorContext((), ManualClock())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def event(text: str, stream: str = "s") -> OutputRecord:
    return OutputRecord("events", stream, Event(kind="test", message=text, stream=stream, created_at=NOW))


def sink_of(broker: Broker, topic: str, **options: Any) -> Sink:
    return connect_sink(f"kafka://{broker.bootstrap}/{topic}", options, CONTEXT)


async def texts(broker: Broker, topic: str) -> list[str]:
    records = await read_committed(broker.bootstrap, topic)
    return [json.loads(record.value or b"")["message"] for record in records]


async def test_it_obeys_the_law_of_sinks(kafka: Broker, topic: str) -> None:
    async def read_back() -> list[Any]:
        return [json.loads(record.value or b"") for record in await read_committed(kafka.bootstrap, topic)]

    await check_sink(lambda: sink_of(kafka, topic), read_back)
    assert not isinstance(sink_of(kafka, topic), DurableSink)  # what a broker has cannot be cut back


async def test_the_messages_of_a_stream_share_a_partition_in_order_with_key_and_headers(kafka: Broker) -> None:
    topic = await new_topic(kafka, 4)
    sink = sink_of(kafka, topic)
    streams = [f"stream-{i}" for i in range(12)]
    await sink.write([event(str(n), stream) for n in range(50) for stream in streams])
    await sink.flush()
    await sink.close()
    found: dict[str, list[tuple[int, str]]] = {}
    for record in await read_committed(kafka.bootstrap, topic):
        assert dict(record.headers)["streamad-message"] == b"event"
        found.setdefault((record.key or b"").decode(), []).append(
            (record.partition, json.loads(record.value or b"")["message"])
        )
    assert sorted(found) == sorted(streams)
    for messages in found.values():
        assert [text for _, text in messages] == [str(n) for n in range(50)]
        assert len({partition for partition, _ in messages}) == 1
    assert len({messages[0][0] for messages in found.values()}) > 1


async def test_a_late_record_too_large_for_the_topic_arrives_in_parts(kafka: Broker, topic: str) -> None:
    n = 60_000
    late = LateRecord(
        origin=Origin("in-0", 3),
        stream="s",
        sequence="q",
        cause="late",
        times=[from_us(i) for i in range(n)],
        values=[[i / 3, None] for i in range(n)],
        created_at=NOW,
    )
    sink = sink_of(kafka, topic)
    await sink.write([OutputRecord("late", "s", late)])
    await sink.flush()
    await sink.close()
    records = await read_committed(kafka.bootstrap, topic)
    assert len(records) > 2
    assert [value for record in records for value in json.loads(record.value or b"")["values"]] == late.values


async def test_close_delivers_what_was_written(kafka: Broker, topic: str) -> None:
    sink = sink_of(kafka, topic)
    await sink.write([event("a"), event("b")])
    await sink.close()
    assert await texts(kafka, topic) == ["a", "b"]


async def test_a_missing_topic_is_an_error_with_advice(kafka: Broker) -> None:
    topic = unique_name("missing")
    sink = sink_of(kafka, topic, request_timeout="500ms")
    with pytest.raises(OutputError, match=f"topic {topic} does not exist: run `streamad topics create"):
        await sink.write([event("a")])
    with pytest.raises(OutputError, match="does not exist"):  # it stays failed
        await sink.flush()
    await sink.close()


async def test_no_broker_is_an_error_at_once_and_close_takes_no_time() -> None:
    sink = connect_sink("kafka://127.0.0.1:1/out", {"request_timeout": "1s"}, CONTEXT)
    started = time.monotonic()
    with pytest.raises(OutputError, match=r"kafka 127\.0\.0\.1:1: no broker can be reached"):
        await sink.write([event("a")])
    await sink.close()
    assert time.monotonic() - started < IN_TIME_S


async def test_a_sink_that_never_wrote_connects_to_nothing() -> None:
    sink = connect_sink("kafka://127.0.0.1:1/out", {}, CONTEXT)
    await sink.flush()
    await sink.close()


async def test_messages_survive_a_restart_of_the_broker_once_and_in_order(unstable_kafka: Broker) -> None:
    broker, topic = unstable_kafka, await new_topic(unstable_kafka)
    sink = sink_of(broker, topic)
    await sink.write([event("a")])
    await sink.flush()
    await asyncio.to_thread(broker.kill)
    await sink.write([event("b"), event("c")])
    flushing = asyncio.ensure_future(sink.flush())
    await asyncio.to_thread(broker.start)
    await flushing
    await sink.close()
    assert await texts(broker, topic) == ["a", "b", "c"]


@pytest.mark.parametrize(("outage", "delivers"), [("kill", "flush"), ("pause", "flush"), ("kill", "close")])
async def test_a_broker_that_stays_away_is_an_error_in_time_and_close_is_bounded(
    unstable_kafka: Broker, outage: str, delivers: str
) -> None:
    topic = await new_topic(unstable_kafka)
    sink = sink_of(unstable_kafka, topic, request_timeout="500ms")
    await sink.write([event("a")])
    await sink.flush()
    await asyncio.to_thread(getattr(unstable_kafka, outage))
    started = time.monotonic()
    await sink.write([event("b")])
    with pytest.raises(OutputError, match=rf"kafka 127\.0\.0\.1:[0-9]+: could not write topic {topic} within 2 s"):
        await getattr(sink, delivers)()
    assert 1.5 < time.monotonic() - started < IN_TIME_S
    await sink.close()
    await sink.close()
    assert time.monotonic() - started < IN_TIME_S
