"""Subscriptions to a real topic: each committed message, where the group left off, through outages, with an end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from streamad import subscribe
from streamad.errors import SourceError
from streamad.messages import Alert, Attribution, Event, ModelRef, OutputRecord, Role, Verdict
from streamad.outputs.subscribing import Messages
from streamad_connectors.kafka.writing.messages import encode
from tests.support.kafka.broker import Broker, Message, admin_of, new_topic, produce, unique_name
from tests.support.runtime.cli import streamad
from tests.support.waiting import IN_TIME_S, LIMIT_S

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def alert(n: int, stream: str = "s") -> Alert:
    return Alert(
        alert_id=f"id-{stream}-{n}",
        stream=stream,
        sequence=f"{n}",
        reason="marker",
        start_time=NOW,
        end_time=NOW,
        n_samples=3,
        score=2.5,
        p_value=0.01,
        false_alarm_rate=0.02,
        tail="empirical",
        model=ModelRef("m", "0001"),
        created_at=NOW,
    )


def stored(message: Alert | Attribution | Verdict | Event, role: Role = "alerts", key: str = "s") -> Message:
    (found,) = encode(OutputRecord(role, key, message), "t", 900_000)
    return Message(found.value, found.key, headers=found.headers)


VERDICT = Verdict(
    verdict_id="v-1",
    stream="s",
    sequence="9",
    decision="unscorable",
    reason="gap",
    start_time=NOW,
    end_time=NOW,
    n_samples=1,
    detail="partial",
    created_at=NOW,
)
EVENT = Event(kind="k", message="m", created_at=NOW)


def url_of(broker: Broker, topic: str) -> str:
    return f"kafka://{broker.bootstrap}/{topic}"


async def take(messages: Messages[Alert], n: int) -> list[str]:
    async with asyncio.timeout(LIMIT_S):
        return [(await anext(messages)).sequence for _ in range(n)]


async def put(broker: Broker, topic: str, *numbers: int) -> None:
    await produce(broker.bootstrap, topic, [stored(alert(n)) for n in numbers])


async def committed(broker: Broker, topic: str, group: str, partition: int = 0) -> int | None:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        offset: int | None = await consumer.committed(TopicPartition(topic, partition))
        return offset
    finally:
        await consumer.stop()


async def test_a_group_begins_with_the_earliest_message_and_goes_on_where_it_left_off(
    kafka: Broker, topic: str
) -> None:
    group = unique_name("group")
    await put(kafka, topic, 0, 1, 2)
    async with subscribe(url_of(kafka, topic), group=group) as alerts:
        assert await take(alerts, 2) == ["0", "1"]
    assert await committed(kafka, topic, group) == 2  # leaving the block without an error says that 1 is done
    await put(kafka, topic, 3)
    async with subscribe(url_of(kafka, topic), group=group) as alerts:
        assert await take(alerts, 2) == ["2", "3"]


async def test_the_message_at_hand_comes_again_after_an_error(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    await put(kafka, topic, 0, 1, 2)

    async def fails() -> None:
        async with subscribe(url_of(kafka, topic), group=group) as alerts:
            await take(alerts, 2)
            raise RuntimeError("while 1 was at hand")

    with pytest.raises(RuntimeError, match="at hand"):
        await fails()
    async with subscribe(url_of(kafka, topic), group=group) as alerts:
        assert await take(alerts, 2) == ["1", "2"]


async def test_a_loop_left_by_break_closes_the_connection_and_the_message_at_hand_comes_again(
    kafka: Broker, topic: str
) -> None:
    group = unique_name("group")
    await put(kafka, topic, 0, 1)
    before = asyncio.all_tasks()
    async with asyncio.timeout(LIMIT_S):
        async for found in subscribe(url_of(kafka, topic), group=group):
            if found.sequence == "1":
                break
    async with asyncio.timeout(LIMIT_S):
        while asyncio.all_tasks() - before:  # noqa: ASYNC110 - the loop's own hook closes it, and tells nobody
            await asyncio.sleep(0.01)
    assert await committed(kafka, topic, group) == 1


async def test_offsets_are_committed_while_it_waits_not_only_at_the_end(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    await put(kafka, topic, 0, 1)
    async with subscribe(url_of(kafka, topic), group=group) as alerts:
        assert await take(alerts, 2) == ["0", "1"]
        waiting = asyncio.ensure_future(take(alerts, 1))
        async with asyncio.timeout(LIMIT_S):
            while await committed(kafka, topic, group) != 2:
                pass
        await put(kafka, topic, 2)
        assert await waiting == ["2"]


async def test_without_a_group_reading_begins_with_what_comes(kafka: Broker, topic: str) -> None:
    await put(kafka, topic, 0)
    async with subscribe(url_of(kafka, topic)) as alerts:
        first = asyncio.ensure_future(take(alerts, 1))
        n = 0
        while not first.done():
            n += 1
            await put(kafka, topic, n)
        begun = int((await first)[0])
        assert begun >= 1
        assert await take(alerts, n - begun) == [str(i) for i in range(begun + 1, n + 1)]


async def test_a_time_out_while_waiting_loses_nothing(kafka: Broker, topic: str) -> None:
    async with subscribe(url_of(kafka, topic), start="earliest") as alerts:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(alerts)
        await put(kafka, topic, 0)
        assert await take(alerts, 1) == ["0"]


async def test_start_overrides_where_reading_begins(kafka: Broker, topic: str) -> None:
    await put(kafka, topic, 0, 1)
    async with subscribe(url_of(kafka, topic), start="earliest") as alerts:
        assert await take(alerts, 2) == ["0", "1"]
    group = unique_name("group")
    async with subscribe(url_of(kafka, topic), group=group, start="latest") as alerts:
        waiting = asyncio.ensure_future(take(alerts, 1))
        async with asyncio.timeout(LIMIT_S):  # where it began counts for the next time, though no message came
            while await committed(kafka, topic, group) != 2:
                pass
        waiting.cancel()
        await asyncio.wait([waiting])
    await put(kafka, topic, 2)
    async with subscribe(url_of(kafka, topic), group=group, start="latest") as alerts:
        assert await take(alerts, 1) == ["2"]


async def test_only_committed_messages_come(kafka: Broker, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=unique_name("id")) as producer:
        for n, ends in enumerate(["abort", "commit"]):
            await producer.begin_transaction()
            message = stored(alert(n))
            await producer.send_and_wait(topic, message.value, message.key, headers=list(message.headers))
            await (producer.abort_transaction() if ends == "abort" else producer.commit_transaction())
        async with subscribe(url_of(kafka, topic), start="earliest") as alerts:
            assert await take(alerts, 1) == ["1"]


async def test_types_are_known_with_and_without_the_header(kafka: Broker, topic: str) -> None:
    messages = [
        stored(EVENT, "events"),
        stored(VERDICT),
        stored(alert(1)),
        Message(b"no message"),
        Message(b'{"a": 1}'),
    ]
    await produce(kafka.bootstrap, topic, [*messages, *(Message(each.value) for each in messages[:3])])
    url = url_of(kafka, topic)
    async with asyncio.timeout(LIMIT_S):
        async with subscribe(url, of=(Alert, Verdict), start="earliest") as both:
            assert [await anext(both) for _ in range(4)] == [VERDICT, alert(1)] * 2
        async with subscribe(url, of=Event, start="earliest") as events:
            assert [await anext(events) for _ in range(2)] == [EVENT, EVENT]
        async with subscribe(url, start="earliest") as alerts:
            assert [await anext(alerts) for _ in range(2)] == [alert(1), alert(1)]


async def test_what_cannot_be_read_is_passed_over_with_a_warning_that_names_the_place(
    kafka: Broker, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = Message(b'{"alert_id": 3}', headers=[("streamad-message", b"alert")])
    await produce(kafka.bootstrap, topic, [broken, stored(alert(1))])
    async with subscribe(url_of(kafka, topic), start="earliest") as alerts:
        assert await take(alerts, 1) == ["1"]
    assert f"{topic}-0, offset 0" in capfd.readouterr().err


async def test_two_programs_of_a_group_share_the_partitions_and_each_message_comes_to_one(kafka: Broker) -> None:
    topic, group = await new_topic(kafka, 2), unique_name("group")
    got: dict[int, list[str]] = {0: [], 1: []}

    async def read(who: int) -> None:
        async for found in subscribe(url_of(kafka, topic), group=group):
            got[who].append(found.sequence)

    readers = [asyncio.ensure_future(read(who)) for who in (0, 1)]
    n = 0
    async with asyncio.timeout(LIMIT_S * 2):
        while not (got[0] and got[1]):
            await produce(kafka.bootstrap, topic, [stored(alert(n + i), key=f"k{n + i}") for i in range(4)])
            n += 4
        # Both have a partition now: what comes from here on comes once.
        begun = n
        await produce(kafka.bootstrap, topic, [stored(alert(n + i), key=f"k{n + i}") for i in range(40)])
        n += 40
        while len({text for who in got for text in got[who]}) < n:  # noqa: ASYNC110 - two other tasks fill it
            await asyncio.sleep(0.01)
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    later = [text for who in got for text in got[who] if int(text) >= begun]
    assert sorted(later, key=int) == [str(i) for i in range(begun, n)]


async def test_messages_deleted_before_they_were_read_are_skipped_with_a_warning(
    kafka: Broker, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    group = unique_name("group")
    await put(kafka, topic, 0, 1, 2, 3)
    async with subscribe(url_of(kafka, topic), group=group) as alerts:
        assert await take(alerts, 1) == ["0"]
    async with admin_of(kafka.bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=3)})
    async with subscribe(url_of(kafka, topic), group=group) as alerts:
        assert await take(alerts, 1) == ["3"]
    assert "deleted before they were read" in capfd.readouterr().err


async def test_an_outage_is_survived_with_one_warning_and_nothing_is_lost_or_repeated(
    unstable_kafka: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    broker, topic, group = unstable_kafka, await new_topic(unstable_kafka), unique_name("group")
    await put(broker, topic, 0)
    async with subscribe(url_of(broker, topic), group=group, options={"request_timeout": "2s"}) as alerts:
        assert await take(alerts, 1) == ["0"]
        waiting = asyncio.ensure_future(anext(alerts))
        await asyncio.to_thread(broker.kill)
        err = ""
        async with asyncio.timeout(LIMIT_S):
            while "waiting for the brokers" not in err:
                await asyncio.sleep(0.05)
                err += capfd.readouterr().err
        await asyncio.to_thread(broker.start)
        await put(broker, topic, 1, 2)
        async with asyncio.timeout(LIMIT_S * 2):
            assert (await waiting).sequence == "1"
        assert await take(alerts, 1) == ["2"]
    err += capfd.readouterr().err
    assert err.count('"warning"') + err.count("[warning") == 2, err  # away, and back
    assert await committed(broker, topic, group) == 3


@pytest.mark.parametrize("outage", ["kill", "pause"])
async def test_close_is_bounded_while_the_broker_is_away(unstable_kafka: Broker, outage: str) -> None:
    topic, group = await new_topic(unstable_kafka), unique_name("group")
    await put(unstable_kafka, topic, 0)
    async with subscribe(url_of(unstable_kafka, topic), group=group, options={"request_timeout": "1s"}) as alerts:
        assert await take(alerts, 1) == ["0"]
        await asyncio.to_thread(getattr(unstable_kafka, outage))
        started = time.monotonic()
    assert time.monotonic() - started < IN_TIME_S


async def test_the_tail_of_a_plant_whose_sink_shares_the_source_s_brokers(
    kafka: Broker, topic: str, tmp_path: Path
) -> None:
    await produce(
        kafka.bootstrap, topic, [stored(alert(0)), stored(VERDICT), stored(EVENT, "events"), stored(alert(1))]
    )
    plant = {
        "name": "press",
        "channels": [{"name": "temp"}],
        "source": {"url": f"kafka://{kafka.bootstrap}/samples"},
        "sinks": {"alerts": f"kafka:///{topic}", "options": {"kafka": {"max_message_bytes": "100KB"}}},
        "window": {"length": 8},
        "model": {"name": "press"},
    }
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(plant))
    outcome = await asyncio.to_thread(
        streamad, "alerts", "tail", "--group", unique_name("desk"), "--limit", "3", cwd=tmp_path
    )
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == [
        "ALERT s 0  score 2.500  p 0.0100  id id-s-0",
        "UNSCORABLE s 9  partial",
        "ALERT s 1  score 2.500  p 0.0100  id id-s-1",
    ]


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < IN_TIME_S


async def test_no_broker_or_no_topic_is_an_error_with_advice(kafka: Broker) -> None:
    options = {"request_timeout": "1s"}
    async with in_time():
        with pytest.raises(SourceError, match=r"kafka 127\.0\.0\.1:1: no broker can be reached"):
            await anext(subscribe("kafka://127.0.0.1:1/alerts", options=options))
        missing = unique_name("missing")
        with pytest.raises(SourceError, match=f"topic {missing} does not exist: run `streamad topics create"):
            await anext(subscribe(url_of(kafka, missing), options=options))
        with pytest.raises(SourceError, match=f"topic {missing} does not exist: run `streamad topics create"):
            await anext(subscribe(url_of(kafka, missing), options=options, group="g"))


@pytest.mark.parametrize("group", [None, "g"])
async def test_a_broker_that_accepts_and_never_answers_is_one_error_in_one_time_out(group: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with in_time():
            with pytest.raises(SourceError, match=f"kafka 127.0.0.1:{port}: no answer within 1 s to: read topic a"):
                await anext(subscribe(f"kafka://127.0.0.1:{port}/a", options={"request_timeout": "1s"}, group=group))
