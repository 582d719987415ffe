"""Random schedules of workers in one process on a real broker, which now and then freezes: each message once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streamad.errors import CheckpointError
from streamad.judge.scoring import MicroBatcher
from streamad.messages import Role
from streamad.partition_progress import Progress
from streamad.plugins import ConnectorContext
from streamad.ports import Committer
from streamad.runtime.pipeline import Pipeline
from streamad.system.clock import SystemClock
from streamad.testing import ListSource
from streamad.types import ChannelSpec, PartitionAssigned, Record, RecordBatch
from streamad_connectors.kafka import KafkaSource
from streamad_connectors.kafka.client.options import KafkaSinkOptions, KafkaSourceOptions, progress_topic_of
from streamad_connectors.kafka.client.stopping import discard
from streamad_connectors.kafka.writing.sink import KafkaSink
from tests.support.kafka.broker import Broker, Message, create_topics, produce, read_committed, unique_name
from tests.support.kafka.plant import traffic
from tests.support.kafka.source import Pulling, source_of
from tests.support.runtime.pipeline import CHANNELS, ROLES, TickingClock, line, model_of, run_pipeline, settings_of

WRITTEN: tuple[Role, ...] = ("alerts", "attributions", "verdicts", "dead_letters", "late")
N_PARTITIONS = 3
STOP_S = 15.0
LIMIT_S = 60.0

Outputs = dict[str, Counter[str]]


class Plant:
    """The topics of one test, and workers in this process."""

    def __init__(self, bootstrap: str, *, commit_interval: str = "50ms", **options: Any) -> None:
        self.bootstrap = bootstrap
        self.settings = settings_of(
            sequences={"allowed_lateness": "20s"},
            run={"commit_interval": commit_interval, "batch_wait": "5ms", "batch_windows": 8, "stop_timeout": "5s"},
        )
        self.topic = unique_name("in")
        self.group = unique_name("group")
        self.outputs = {role: unique_name(role.replace("_", "-")) for role in ROLES}
        self.options = {
            "group": self.group,
            "session_timeout": "3s",
            "heartbeat_interval": "300ms",
            "request_timeout": "1500ms",
            "transaction_timeout": "3s",
            **options,
        }
        self.workers: list[Worker] = []

    async def create(self) -> None:
        progress = progress_topic_of(self.group, self.topic)
        outputs = dict.fromkeys(self.outputs.values(), 1)
        await create_topics(self.bootstrap, {self.topic: N_PARTITIONS, progress: N_PARTITIONS, **outputs})

    def start(self) -> Worker:
        """Start a worker."""
        context = ConnectorContext(tuple(map(ChannelSpec, CHANNELS)), SystemClock(), plant="test")
        options = KafkaSourceOptions.model_validate(self.options)
        source = KafkaSource(f"{self.bootstrap}/{self.topic}", options, context)
        sinks = {
            role: KafkaSink(f"{self.bootstrap}/{topic}", KafkaSinkOptions(), context)
            for role, topic in self.outputs.items()
        }
        committer = source.committer(sinks)
        batcher = MicroBatcher(model_of(), SystemClock(), self.settings.run)
        pipeline = Pipeline(self.settings, source, committer, batcher, SystemClock(), explain=True, with_verdicts=True)
        clients: list[AIOKafkaConsumer | AIOKafkaProducer] = []
        token = CLIENTS.set(clients)  # the worker's tasks inherit it
        worker = Worker(source, committer, batcher, pipeline, asyncio.create_task(pipeline.run()), clients)
        CLIENTS.reset(token)
        self.workers.append(worker)
        return worker

    async def expected(self) -> Outputs:
        """What one undisturbed run writes."""
        logs: dict[int, list[Record]] = {number: [] for number in range(N_PARTITIONS)}
        for record in await read_committed(self.bootstrap, self.topic):
            found = Record(record.offset, record.value or b"", record.timestamp * 1000, record.key)
            logs[record.partition].append(found)
        script: list[PartitionAssigned | RecordBatch] = []
        for number, records in logs.items():
            name = f"{self.topic}-{number}"
            script += [PartitionAssigned(name), RecordBatch(name, tuple(records), len(records))]
        run = await run_pipeline(ListSource(script), self.settings, clock=TickingClock(0.0001))
        return {role: Counter(plain(msgspec.json.encode(m)) for m in run.messages(role)) for role in WRITTEN}

    async def written(self) -> Outputs:
        """What the output topics hold under read_committed."""
        return {
            role: Counter(plain(r.value or b"null") for r in await read_committed(self.bootstrap, self.outputs[role]))
            for role in WRITTEN
        }

    async def until_judged(self, expected: Outputs) -> None:
        wanted = expected["verdicts"].total()
        async with asyncio.timeout(LIMIT_S):
            while len(await read_committed(self.bootstrap, self.outputs["verdicts"])) < wanted:
                await asyncio.sleep(0.2)
                for worker in self.workers:
                    worker.check()


def plain(message: bytes) -> str:
    content = json.loads(message)
    content.pop("created_at", None)
    return json.dumps(content, sort_keys=True)


CLIENTS: ContextVar[list[AIOKafkaConsumer | AIOKafkaProducer]] = ContextVar("clients")


@pytest.fixture(autouse=True)
def _remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the aiokafka clients of each worker, so that it can vanish."""
    for kind in (AIOKafkaConsumer, AIOKafkaProducer):

        def remember(client: Any, *arguments: Any, _init: Any = kind.__init__, **options: Any) -> None:
            _init(client, *arguments, **options)
            CLIENTS.get([]).append(client)

        monkeypatch.setattr(kind, "__init__", remember)


@dataclass(eq=False)
class Worker:
    """A member of the group: stops gracefully, or vanishes with its sockets cut and no message to the broker."""

    source: KafkaSource
    committer: Committer
    batcher: MicroBatcher
    pipeline: Pipeline
    task: asyncio.Task[None]
    clients: list[AIOKafkaConsumer | AIOKafkaProducer]

    def check(self) -> None:
        assert not self.task.done(), repr(self.task.exception())

    async def stop(self) -> None:
        self.pipeline.request_stop()
        await asyncio.wait_for(self.task, STOP_S)
        await self.close()

    async def vanish(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        for client in self.clients:
            await discard(client)
        await self.close()

    async def close(self) -> None:
        await self.source.close()
        await self.committer.close()
        await self.batcher.close()


@dataclass
class Schedule:
    """Workers join, leave and vanish; the broker freezes for a moment, or for longer than a commit may take."""

    plant: Plant
    broker: Broker
    rng: random.Random
    said: list[str] = field(default_factory=list)

    async def step(self) -> None:
        rng, workers = self.rng, self.plant.workers
        chance = rng.random()
        if not workers or (len(workers) < 3 and chance < 0.35):
            self.said.append("join")
            self.plant.start()
        elif len(workers) > 1 and chance < 0.6:
            worker = workers.pop(rng.randrange(len(workers)))
            goes_well = rng.random() < 0.5
            self.said.append("leave" if goes_well else "vanish")
            await (worker.stop() if goes_well else worker.vanish())
        else:
            away_s = rng.choice([0.2, 1.0, 2.0])
            self.said.append(f"freeze {away_s:g} s")
            self.broker.pause()
            await asyncio.sleep(away_s)
            self.broker.resume()
        await asyncio.sleep(rng.random() * 1.5)
        for worker in workers:
            worker.check()


async def feed(plant: Plant, messages: Sequence[Message], seconds: float) -> None:
    step = max(1, int(len(messages) / (seconds / 0.1)))
    for first in range(0, len(messages), step):
        await produce(plant.bootstrap, plant.topic, messages[first : first + step])
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", [1])
async def test_workers_that_come_and_go_on_a_broker_that_freezes(own_broker: Callable[..., Broker], seed: int) -> None:
    broker = await asyncio.to_thread(own_broker)
    rng = random.Random(seed)
    plant = Plant(broker.bootstrap)
    await plant.create()
    schedule = Schedule(plant, broker, rng)
    messages = traffic(seed, partitions=N_PARTITIONS, streams=12, sequences=12).messages
    feeding = asyncio.create_task(feed(plant, messages, 6.0))
    try:
        for _ in range(8):
            await schedule.step()
        await feeding
        expected = await plant.expected()
        await plant.until_judged(expected)
        for worker in plant.workers:
            await worker.stop()
        plant.workers.clear()
        written = await plant.written()
    finally:
        feeding.cancel()
        async with AsyncExitStack() as stack:
            for worker in plant.workers:
                stack.push_async_callback(worker.vanish)
    for role in WRITTEN:
        lost, more = expected[role] - written[role], written[role] - expected[role]
        assert (lost, more) == (Counter(), Counter()), (role, schedule.said)


async def test_one_that_fences_before_every_commit_ends_the_run(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore succeeds each time, which must not reset the committer's count of fences."""
    plant = Plant(kafka.bootstrap, commit_interval="1s")
    await plant.create()
    worker, stranger = plant.start(), plant.start()
    stranger.task.cancel()  # no member of the group: nobody takes its partition away
    partition = f"{plant.topic}-0"
    opened = [Message(line("s", "s-0", [float(i)]), b"s", 0) for i in range(300)]
    feeding = asyncio.create_task(feed(plant, opened, 30.0))
    restored = asyncio.Event()
    restore = worker.committer.restore

    async def watched(name: str) -> Progress | None:
        progress = await restore(name)
        if name == partition:
            restored.set()
        return progress

    monkeypatch.setattr(worker.committer, "restore", watched)
    try:
        async with asyncio.timeout(30.0):
            while not worker.task.done():
                fenced = asyncio.ensure_future(restored.wait())
                await asyncio.wait({worker.task, fenced}, return_when=asyncio.FIRST_COMPLETED)
                fenced.cancel()
                restored.clear()
                await stranger.committer.restore(partition)
        with pytest.raises(CheckpointError, match="another process commits for"):
            await worker.task
    finally:
        feeding.cancel()
        await worker.vanish()
        await stranger.vanish()


async def test_a_partition_taken_away_before_it_was_sought_begins_nowhere(kafka: Broker) -> None:
    """A place made up for it would be committed as its first one, and bind its next owner."""
    topic, group = unique_name("in"), unique_name("group")
    await create_topics(kafka.bootstrap, {topic: 2})
    async with Pulling(source_of(kafka.bootstrap, topic, group=group, start="latest"), seeks=False) as first:
        await first.until(lambda: len(first.assigned()) == 2)
        async with Pulling(source_of(kafka.bootstrap, topic, group=group), seeks=False) as second:
            await second.until(lambda: len(second.assigned()) == 1)
            await first.until(lambda: len(first.assigned()) == 1)
            (lost,) = second.assigned()
            seeking = asyncio.create_task(first.source.seek(lost, None))
            (kept,) = first.assigned()
            assert await first.source.seek(kept, None) == 0
            assert not seeking.done()
            seeking.cancel()
