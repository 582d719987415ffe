"""The broker that the tests of Kafka rely on: what it keeps, what it hides, and that it ends with the test run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from tests.support.kafka import broker as support
from tests.support.kafka.broker import (
    Broker,
    Message,
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
