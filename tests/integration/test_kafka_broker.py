"""The broker that the tests of Kafka rely on: what it keeps, what it hides, and that it ends with the test run."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, ProducerFenced, TopicAlreadyExistsError
from aiokafka.structs import OffsetAndMetadata

from tests.support.kafka import broker as support
from tests.support.kafka.broker import (
    Broker,
    Message,
    admin_of,
    create_topics,
    jars_or_skip,
    produce,
    read_committed,
    unique_name,
)

StartBroker = Callable[..., Broker]
ROOT = support.SCRIPT.parents[1]
WAIT_S = 30


def producer_of(broker: Broker, transactional_id: str | None = None) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        transactional_id=transactional_id or unique_name("producer"),
        retry_backoff_ms=20,
    )


async def values(broker: Broker, topic: str) -> list[tuple[int, bytes | None]]:
    return [(record.partition, record.value) for record in await read_committed(broker.bootstrap, topic)]


async def test_only_committed_records_are_read_as_committed(kafka: Broker) -> None:
    topic = unique_name("transactions")
    await create_topics(kafka.bootstrap, {topic: 2})
    async with producer_of(kafka) as producer:
        for value in (b"committed", b"aborted"):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            await (producer.commit_transaction() if value == b"committed" else producer.abort_transaction())
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=1)
        await produce(kafka.bootstrap, topic, [Message(b"behind the open one", partition=1)])

        assert await values(kafka, topic) == [(0, b"committed")]
        everything = await support.read(kafka.bootstrap, topic, isolation_level="read_uncommitted")
        assert [record.value for record in everything] == [b"committed", b"aborted", b"open", b"behind the open one"]

        await producer.commit_transaction()
        assert await values(kafka, topic) == [(0, b"committed"), (1, b"open"), (1, b"behind the open one")]


async def test_what_a_commit_has_returned_for_is_read(kafka: Broker) -> None:
    topic = unique_name("markers")
    await create_topics(kafka.bootstrap, {topic: 1})
    async with producer_of(kafka) as producer:
        for n in range(1, 11):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"%d" % n)
            assert len(await values(kafka, topic)) == n


async def test_offsets_commit_with_the_transaction_and_a_successor_fences(kafka: Broker) -> None:
    topic, group, name = unique_name("topic"), unique_name("group"), unique_name("producer")
    await create_topics(kafka.bootstrap, {topic: 1})
    partition = TopicPartition(topic, 0)
    async with producer_of(kafka, name) as first:
        async with first.transaction():
            await first.send_offsets_to_transaction({partition: OffsetAndMetadata(7, "hint")}, group)
        await first.begin_transaction()
        await first.send_and_wait(topic, b"of a zombie")
        await first.send_offsets_to_transaction({partition: OffsetAndMetadata(8, "")}, group)
        async with producer_of(kafka, name):
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
    async with admin_of(kafka.bootstrap) as admin:
        offsets = await admin.list_consumer_group_offsets(group, partitions=[partition])
    assert offsets == {partition: OffsetAndMetadata(7, "hint")}
    assert await values(kafka, topic) == []


async def test_a_static_member_comes_back_without_a_rebalance(kafka: Broker) -> None:
    topic, group = unique_name("topic"), unique_name("group")
    await create_topics(kafka.bootstrap, {topic: 2})
    await produce(kafka.bootstrap, topic, [Message(b"0", partition=0), Message(b"1", partition=1)])

    async def generation_of_a_visit() -> int:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=kafka.bootstrap,
            group_id=group,
            group_instance_id="worker-1",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        found: set[bytes | None] = set()
        async with asyncio.timeout(WAIT_S), consumer:
            while found != {b"0", b"1"}:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found |= {record.value for record in records}
            generation: int = consumer._coordinator.generation  # noqa: SLF001 - published nowhere
            return generation

    assert await generation_of_a_visit() == await generation_of_a_visit()


async def test_topics_keep_their_settings_and_times_find_offsets(kafka: Broker) -> None:
    topic = unique_name("topic")
    new = NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "3000000", "retention.ms": "-1"})
    await create_topics(kafka.bootstrap, {topic: new})
    with pytest.raises(TopicAlreadyExistsError, match=topic):
        await create_topics(kafka.bootstrap, {topic: 1})
    await produce(kafka.bootstrap, topic, [Message(b"x", timestamp_ms=1_700_000_000_000 + n * 1000) for n in range(5)])

    async with admin_of(kafka.bootstrap) as admin:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": None, "retention.ms": None})
        (response,) = await admin.describe_configs([wanted])
    ((code, _, _, name, entries),) = response.resources
    assert (code, name) == (0, topic)
    assert {entry[0]: entry[1] for entry in entries} == {"max.message.bytes": "3000000", "retention.ms": "-1"}

    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap) as consumer:
        found = await consumer.offsets_for_times({partition: 1_700_000_002_500})
        after = await consumer.offsets_for_times({partition: 1_700_000_004_001})
    assert found[partition].offset == 3
    assert after == {partition: None}


async def test_a_restart_keeps_port_data_and_settings(own_broker: StartBroker) -> None:
    broker = own_broker({"message.max.bytes": "2000"})
    topic, large = unique_name("topic"), unique_name("large")
    await create_topics(
        broker.bootstrap, {topic: 1, large: NewTopic(large, 1, 1, topic_configs={"max.message.bytes": "9000"})}
    )
    await produce(broker.bootstrap, topic, [b"kept"])
    port, pid = broker.port, broker.pid

    await asyncio.to_thread(broker.restart)

    assert (broker.port, broker.pid == pid) == (port, False)
    assert await values(broker, topic) == [(0, b"kept")]
    assert (await produce(broker.bootstrap, large, [b"x" * 8000]))[0].offset == 0
    with pytest.raises(MessageSizeTooLargeError):
        await produce(broker.bootstrap, topic, [b"x" * 8000])
    await asyncio.to_thread(broker.stop)
    assert not broker.is_running
    broker.kill()  # ending what has ended does nothing


async def test_sigkill_loses_nothing_committed(own_broker: StartBroker) -> None:
    broker = own_broker()
    topic, name = unique_name("topic"), unique_name("producer")
    await create_topics(broker.bootstrap, {topic: 2})
    producer = producer_of(broker, name)
    await producer.start()
    async with producer.transaction():
        for partition in (0, 1):
            await producer.send_and_wait(topic, b"committed", partition=partition)
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"open when it died", partition=1)

    broker.kill()
    assert not broker.is_running
    await asyncio.to_thread(broker.start)

    assert await values(broker, topic) == [(0, b"committed"), (1, b"committed")]
    async with asyncio.timeout(WAIT_S), producer_of(broker, name) as successor, successor.transaction():
        await successor.send_and_wait(topic, b"by the successor", partition=1)
    assert await values(broker, topic) == [(0, b"committed"), (1, b"committed"), (1, b"by the successor")]
    with pytest.raises(ProducerFenced):
        await producer.commit_transaction()
    await producer.stop()


async def test_a_paused_broker_answers_after_it_resumes(own_broker: StartBroker) -> None:
    broker = own_broker()
    topic = unique_name("topic")
    await create_topics(broker.bootstrap, {topic: 1})
    broker.pause()
    writing = asyncio.create_task(produce(broker.bootstrap, topic, [b"patient"]))
    done, _ = await asyncio.wait({writing}, timeout=0.5)
    assert not done
    assert broker.is_running
    broker.resume()
    assert [where.offset for where in await writing] == [0]


def test_the_broker_ends_with_a_test_run_that_is_killed(kafka_jars: Path, tmp_path: Path) -> None:
    run = f"""
import threading
from pathlib import Path
from tests.support.kafka.broker import Broker
broker = Broker(Path({str(tmp_path)!r}))
thread = threading.Thread(target=broker.start)  # its end must not end the broker
thread.start()
thread.join()
print(broker.pid, broker.is_running, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=support.SCRIPT.parents[1],
    ) as child:
        assert child.stdout is not None
        pid, is_running = child.stdout.readline().split()
        assert is_running == "True"
        assert "kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_text()
        os.kill(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while (command := Path(f"/proc/{pid}/cmdline")).exists() and command.read_text():  # a zombie's is empty
        assert time.monotonic() < deadline, "the broker outlived the test run"
        time.sleep(0.02)


@pytest.mark.parametrize(("missing", "what"), [("java", "Java 17"), ("mvn", "Maven")])
def test_a_machine_without_kafka_skips_tests_but_fails_them_in_ci(
    missing: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "flock", "id", "mkdir", "rm", "sed"):
        if (found := shutil.which(tool)) is not None:
            (tmp_path / "bin" / tool).symlink_to(found)
    if missing == "mvn":
        java = tmp_path / "bin" / "java"
        java.write_text("#!/bin/bash\necho 'java.specification.version = 17'\n")
        java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("STREAMAD_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception, match=f"needs a real Kafka: no {what} .*found.*install it"):
        jars_or_skip()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"CI must test against a real Kafka: no {what} .*found"):
        jars_or_skip()
