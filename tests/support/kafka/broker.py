"""A real Kafka broker for tests, and what tests say to it.

Three guards end a broker whatever becomes of the test run: the fixture's teardown, ``atexit``, and, where even that
does not run (SIGKILL, a crash), the kernel: on Linux a broker asks to be killed when the thread that started it ends.
That thread is one of this module's own, since a broker may be started from a thread that ends long before the run does
(``asyncio.to_thread``). All three go by the id of a process that this module started.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NodeNotReadyError, for_code
from aiokafka.protocol.admin import CreateAclsRequest
from aiokafka.structs import RecordMetadata

from tests.support.ports import free_ports
from tests.support.waiting import LIMIT_S

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "kafka"
SETTLE_S = 1.0
ROOMY_BYTES = 2 << 30

# Becomes the broker: asks for SIGKILL when the thread that started it ends (1 = PR_SET_PDEATHSIG; kept across exec),
# and ends itself where that was over before it asked. Not a preexec_fn: that runs Python in the fork of a process with
# threads, which may deadlock, and warns of it from Python 3.12 on.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the test run has ended")
os.execvp(sys.argv[2], sys.argv[2:])
"""
_starter = ThreadPoolExecutor(1, thread_name_prefix="kafka-starter")
_running: set[Broker] = set()
B = TypeVar("B", bound="Broker")


class KafkaUnavailableError(Exception):
    """Raised where this machine cannot have a broker; says what is missing."""


def fetch_jars() -> Path:
    """Return the folder of Kafka's jars, fetched if need be; raises KafkaUnavailableError."""
    done = subprocess.run(
        ["bash", SCRIPT, "fetch"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise KafkaUnavailableError(done.stderr.strip().splitlines()[-1].removeprefix("error: "))
    return Path(done.stdout.strip())


def jars_or_skip() -> Path:
    """Return the folder of Kafka's jars; where they cannot be had, skip the test, but fail it in CI."""
    try:
        return fetch_jars()
    except KafkaUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must test against a real Kafka: {reason}", pytrace=False)
        pytest.skip(f"needs a real Kafka: {reason}")


class Broker:
    """One Kafka node on 127.0.0.1 that keeps its port and data across restarts.

    Its methods block (a start takes seconds): where a client runs in the same event loop, use ``asyncio.to_thread``.
    ``settings`` override those of ``deploy/kafka/server.properties``; ``scram_users`` are passwords by user, of those
    who log in with SCRAM-SHA-256 or SCRAM-SHA-512 on a listener that the settings make.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, scram_users: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self._scram_users = dict(scram_users or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self.controller_port = free_ports(2)

    @property
    def bootstrap(self) -> str:
        """What clients take as ``bootstrap_servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process, which must have been started."""
        assert self._process is not None, "the broker was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it has joined its cluster and answers; the first time with empty data."""
        assert not self.is_running, f"the broker runs already (pid {self.pid})"
        command = ["bash", str(SCRIPT), "run", "--data", str(self.folder)]
        command += ["--port", str(self.port), "--controller-port", str(self.controller_port)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        for user, password in self._scram_users.items():
            command += ["--scram", f"{user}={password}"]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = _starter.submit(_spawn, command, self._log).result()
        _running.add(self)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it in good order (SIGTERM); one that does not end in time is killed, and the test fails."""
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            self._wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the broker did not stop within {LIMIT_S:.0f} s of SIGTERM\n{self.log_tail()}"
            ) from None

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), with what it started."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
            self._wait()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open and nothing answers from when this returns."""
        self._signal(signal.SIGSTOP)
        # The signal is taken by one thread, which stops the others: where it waits for a core, they still answer.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def recover(self) -> None:
        """Undo what a test has done to it: resume or start it; return once it answers."""
        if not self.is_running:
            self.start()
            return
        self.resume()
        self._wait_until_it_answers()

    def log_tail(self, n_lines: int = 30) -> str:
        """Return the last lines of the log."""
        if not self._log.exists():
            return "(no log)"
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-n_lines:])

    @property
    def _log(self) -> Path:
        return self.folder / "kafka.log"

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker was never started"
        self._process.send_signal(number)  # does nothing where the process has ended

    def _wait(self) -> None:
        assert self._process is not None, "the broker was never started"
        self._process.wait(LIMIT_S)
        _running.discard(self)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not _answers(self.port):
            if not self.is_running:
                raise AssertionError(f"the broker ended while it started\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the broker did not answer within {LIMIT_S:.0f} s\n{self.log_tail()}")
            time.sleep(0.05)


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the terminal's Ctrl-C is for pytest, which then ends the broker
        )


@atexit.register
def _kill_all() -> None:
    for broker in list(_running):
        broker.kill()


def _answers(port: int) -> bool:
    """Ask for the metadata of no topic (API 3, version 1), as ``scripts/kafka`` does; a broker must be in it."""
    request = struct.pack(">hhihi", 3, 1, 7, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            reply = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(reply) == 12 and struct.unpack(">ii", reply[4:])[1] > 0


def scratch_folder() -> Path:
    """Return a new folder for a broker's data: in memory where there is room for it, which spares slow disks."""
    memory = Path("/dev/shm")
    is_roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOMY_BYTES
    return Path(tempfile.mkdtemp(prefix="streamad-kafka-", dir=memory if is_roomy else None))


# --- what tests say to a broker ---


@dataclass(frozen=True)
class Message:
    """One record to produce; without a partition its key decides, as in production."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


def unique_name(prefix: str) -> str:
    """Return a name (of a topic, group or transactional id) that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def running(make: Callable[[Path], B]) -> Iterator[B]:
    """Start the broker that ``make`` returns for a new folder; end it and delete the folder afterwards."""
    folder = scratch_folder()
    broker = make(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder)


def new_broker(settings: Mapping[str, str] | None = None) -> contextlib.AbstractContextManager[Broker]:
    """Start a broker with data of its own, for a ``with`` block."""
    return running(lambda folder: Broker(folder / "kafka", settings))


@contextlib.asynccontextmanager
async def admin_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Give an admin client, started."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def new_topic(broker: Broker, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
    """Create a topic that no other test has; return its name when each partition has a leader."""
    name = unique_name("topic")
    await create_topics(broker.bootstrap, {name: NewTopic(name, partitions, 1, topic_configs=dict(settings or {}))})
    return name


async def configure(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    """Set the ``settings`` of ``topic``; all others become the broker's defaults."""
    async with admin_of(bootstrap) as admin:
        (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))])
    assert [code for code, *_ in answer.resources] == [0], answer


async def set_right(
    bootstrap: str, user: str, resource: int, name: str, operation: int, *, allow: bool = True, prefix: bool = False
) -> None:
    """Allow or deny ``user`` an operation on a resource: CreateAcls (KIP-290), by the numbers of its protocol."""
    request = CreateAclsRequest(resource, name, 4 if prefix else 3, f"User:{user}", "*", operation, 3 if allow else 2)
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        answer = await client.send(client.get_random_node(), request)
    finally:
        await client.close()
    assert answer.creation_responses[0][0] == 0, answer


async def create_topics(bootstrap: str, topics: Mapping[str, int | NewTopic]) -> None:
    """Create topics, given as name and number of partitions or in full; return when each partition has a leader."""
    new = [NewTopic(name, what, 1) if isinstance(what, int) else what for name, what in topics.items()]
    async with asyncio.timeout(LIMIT_S):
        while not await _has_controller(bootstrap):  # noqa: ASYNC110 - only the broker knows
            await asyncio.sleep(0.02)
    async with asyncio.timeout(LIMIT_S), admin_of(bootstrap) as admin:
        response = await admin.create_topics(new)
        for name, code, *_ in response.topic_errors:
            if code:
                raise for_code(code)(f"could not create the topic {name}")
        while not _are_led(await admin.describe_topics([topic.name for topic in new]), new):  # noqa: ASYNC110 - only the broker knows
            await asyncio.sleep(0.02)


async def _has_controller(bootstrap: str) -> bool:
    """Return whether the broker names a controller: one that has just started names none, and aiokafka stumbles."""
    async with admin_of(bootstrap) as admin:
        try:
            return bool((await admin.describe_cluster()).get("controller_id", -1) >= 0)
        except NodeNotReadyError:
            return False


def _are_led(described: list[dict[str, object]], topics: list[NewTopic]) -> bool:
    led = {}
    for topic in described:
        partitions = topic["partitions"]
        assert isinstance(partitions, list)
        led[topic["topic"]] = sum(partition["leader"] >= 0 for partition in partitions)
    return all(led.get(topic.name) == topic.num_partitions for topic in topics)


async def produce(bootstrap: str, topic: str, records: Iterable[bytes | Message]) -> list[RecordMetadata]:
    """Write records in order, outside any transaction; return where they lie."""
    async with (
        asyncio.timeout(LIMIT_S),
        AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer,
    ):
        sent = []
        for record in records:
            message = record if isinstance(record, Message) else Message(record)
            sent.append(
                await producer.send(
                    topic, message.value, message.key, message.partition, message.timestamp_ms, list(message.headers)
                )
            )
        return [await each for each in sent]


async def read(
    bootstrap: str, topic: str, *, isolation_level: Literal["read_committed", "read_uncommitted"]
) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """Return what a topic holds from its start to the end as it is now, partition by partition in order of offset.

    ``read_committed`` ends before the oldest transaction that is still open (the last stable offset). A commit returns
    some milliseconds before that moves (KIP-98: the coordinator writes the markers afterwards), so where one seems to
    be open, ``read_committed`` waits up to SETTLE_S for its end.
    """
    consumer = AIOKafkaConsumer(  # without a group it is assigned every partition
        topic, bootstrap_servers=bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
    )
    async with asyncio.timeout(LIMIT_S), consumer:
        partitions = sorted(consumer.assignment())
        assert partitions, f"there is no topic {topic}"
        ends = await _settled_ends(consumer, bootstrap, partitions)
        found: dict[TopicPartition, list[ConsumerRecord[bytes | None, bytes | None]]] = {p: [] for p in partitions}
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                found[partition] += [record for record in records if record.offset < ends[partition]]
    return [record for partition in partitions for record in found[partition]]


async def _settled_ends(
    consumer: AIOKafkaConsumer, bootstrap: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_uncommitted") as uncommitted:
        full: dict[TopicPartition, int] = await uncommitted.end_offsets(partitions)
    deadline = time.monotonic() + SETTLE_S
    while True:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        if all(ends[partition] >= full[partition] for partition in partitions) or time.monotonic() > deadline:
            return ends
        await asyncio.sleep(0.01)


async def read_committed(bootstrap: str, topic: str) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """Return what a consumer that reads only committed records finds, from the start to the present end."""
    return await read(bootstrap, topic, isolation_level="read_committed")
