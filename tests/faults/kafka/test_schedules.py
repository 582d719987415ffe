"""Random schedules of workers in one process on a real broker, which now and then freezes: each message once."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streamad.errors import CheckpointError
from streamad.judge.scoring import MicroBatcher
from streamad.learn.parts import versions_of
from streamad.learn.serving.models import explainer_for
from streamad.partition_progress import Progress
from streamad.plant import Plant
from streamad.plugins import ConnectorContext
from streamad.ports import Committer
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import load_settings
from streamad.system.clock import SystemClock
from streamad_connectors.kafka import KafkaSource
from streamad_connectors.kafka.client.options import KafkaSinkOptions, KafkaSourceOptions
from streamad_connectors.kafka.client.stopping import discard
from streamad_connectors.kafka.writing.sink import KafkaSink
from tests.support.kafka.broker import Broker, Message, new_topic, unique_name
from tests.support.kafka.faults import KafkaPlants
from tests.support.kafka.plant import ROLES, KafkaPlant, Traffic, traffic
from tests.support.kafka.source import Pulling, source_of
from tests.support.runtime.pipeline import line
from tests.support.waiting import LIMIT_S

N_PARTITIONS = 3
RUN = {"commit_interval": "50ms"}
OPTIONS = {"heartbeat_interval": "300ms", "request_timeout": "1500ms", "transaction_timeout": "3s"}


def start(plant: KafkaPlant) -> Worker:
    """Start a worker of the plant in this process."""
    settings, clock = load_settings(plant.config), SystemClock()
    context = ConnectorContext(settings.channel_specs, clock, plant=plant.name)
    options = KafkaSourceOptions.model_validate(plant.options)
    source = KafkaSource(f"{plant.bootstrap}/{plant.topic}", options, context)
    sinks = {role: KafkaSink(f"{plant.bootstrap}/{plant.output(role)}", KafkaSinkOptions(), context) for role in ROLES}
    committer = source.committer(sinks)
    own = Plant(settings, plant.folder, clock)
    batcher = MicroBatcher(versions_of(own).load(), clock, settings.run)
    explainer = explainer_for(own)
    pipeline = Pipeline(
        settings, source, committer, batcher, clock, explainer=explainer, with_verdicts=True, with_windows=True
    )
    clients: list[AIOKafkaConsumer | AIOKafkaProducer] = []
    token = CLIENTS.set(clients)  # the worker's tasks inherit it
    worker = Worker(source, committer, batcher, pipeline, asyncio.create_task(pipeline.run()), clients)
    CLIENTS.reset(token)
    return worker


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
        await asyncio.wait_for(self.task, LIMIT_S)
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

    plant: KafkaPlant
    broker: Broker
    rng: random.Random
    workers: list[Worker] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    async def step(self) -> None:
        rng, workers = self.rng, self.workers
        chance = rng.random()
        if not workers or (len(workers) < 3 and chance < 0.35):
            self.steps.append("join")
            workers.append(start(self.plant))
        elif len(workers) > 1 and chance < 0.6:
            worker = workers.pop(rng.randrange(len(workers)))
            goes_well = rng.random() < 0.5
            self.steps.append("leave" if goes_well else "vanish")
            await (worker.stop() if goes_well else worker.vanish())
        else:
            away_s = rng.choice([0.2, 1.0, 2.0])
            self.steps.append(f"freeze {away_s:g} s")
            self.broker.pause()
            await asyncio.sleep(away_s)
            self.broker.resume()
        await asyncio.sleep(rng.random() * 1.5)
        for worker in workers:
            worker.check()


async def test_workers_that_come_and_go_on_a_broker_that_freezes(unstable_kafka: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(unstable_kafka.bootstrap, partitions=N_PARTITIONS, options=OPTIONS, run=RUN)
    schedule = Schedule(plant, unstable_kafka, random.Random(1))
    flow = plant.flow(traffic(1, partitions=N_PARTITIONS, streams=12, sequences=12), per_s=100)
    try:
        for _ in range(8):
            await schedule.step()
        await flow.finish()
        expected = await plant.expected()
        await plant.until_judged(expected)
        for worker in schedule.workers:
            worker.check()
            await worker.stop()
        schedule.workers.clear()
        difference = await plant.difference(expected)
    finally:
        async with AsyncExitStack() as stack:
            for worker in schedule.workers:
                stack.push_async_callback(worker.vanish)
    assert difference.is_none, (str(difference), schedule.steps)


async def test_one_that_fences_before_every_commit_ends_the_run(
    kafka: Broker, plants: KafkaPlants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore succeeds each time, which must not reset the committer's count of fences."""
    run = {**RUN, "commit_interval": "1s"}
    plant = await plants.make(kafka.bootstrap, partitions=N_PARTITIONS, options=OPTIONS, run=run)
    worker, stranger = start(plant), start(plant)
    stranger.task.cancel()  # no member of the group: nobody takes its partition away
    partition = f"{plant.topic}-0"
    opened = [Message(line("s", "s-0", [float(i)]), b"s", 0) for i in range(300)]
    plant.flow(Traffic(opened), per_s=10)
    restored = asyncio.Event()
    restore = worker.committer.restore

    async def watched(name: str) -> Progress | None:
        progress = await restore(name)
        if name == partition:
            restored.set()
        return progress

    monkeypatch.setattr(worker.committer, "restore", watched)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not worker.task.done():
                fenced = asyncio.ensure_future(restored.wait())
                await asyncio.wait({worker.task, fenced}, return_when=asyncio.FIRST_COMPLETED)
                fenced.cancel()
                restored.clear()
                await stranger.committer.restore(partition)
        with pytest.raises(CheckpointError, match="another process commits for"):
            await worker.task
    finally:
        await worker.vanish()
        await stranger.vanish()


async def test_a_partition_taken_away_before_it_was_sought_begins_nowhere(kafka: Broker) -> None:
    """A place made up for it would be committed as its first one, and bind its next owner."""
    topic, group = await new_topic(kafka, 2), unique_name("group")
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
