"""Workers that share partitions without a broker: what outlives them, and random schedules of their lives."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from streamad.errors import PartitionLost
from streamad.judge.scoring import MicroBatcher
from streamad.messages import Event, OutputRecord, Role
from streamad.partition_progress import Progress, ProgressUpdate, merge
from streamad.ports import ClaimLog, Committer, Sink, Topics
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.types import (
    PartitionAssigned,
    PartitionRevoked,
    Rebalanced,
    Record,
    RecordBatch,
    SourceEvent,
)
from tests.support.runtime.claims import ClaimReader, ClaimTopic
from tests.support.runtime.pipeline import (
    TickingClock,
    explainer_of,
    model_of,
    steps,
)
from tests.support.waiting import LIMIT_S

RUN = {"commit_interval": "1ms", "batch_wait": 0, "batch_windows": 2}
TICK_S = 0.0001


@dataclass(slots=True)
class Reading:
    """One partition of one worker, as its source knows it."""

    name: str
    next_offset: int = 0
    is_ready: bool = False
    is_offered: bool = False
    version: int = 0


class Broker:
    """What outlives the workers: logs, committed progress and outputs, and who may commit (the epochs)."""

    def __init__(self, partitions: Mapping[str, Sequence[Record]], rng: random.Random) -> None:
        self.logs = {name: list(records) for name, records in partitions.items()}
        self.ends = dict.fromkeys(partitions, 0)
        self.progress: dict[str, Progress] = {}
        self.epochs = Counter[str]()
        self.outputs: list[OutputRecord] = []
        self.events: list[Event] = []
        self.rng = rng
        self.claims = ClaimTopic(self.pause)
        self.share_failing = 0.0
        self.n_failed = self.n_fenced = self.n_late = self.n_unclaimed = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def publish(self, every: int) -> None:
        """Let more and more of the logs be read, one record at a time."""
        while any(self.ends[name] < len(log) for name, log in self.logs.items()):
            await self.pause(every)
            name = self.rng.choice(list(self.logs))
            self.ends[name] = min(len(self.logs[name]), self.ends[name] + 1)

    def has_judged(self, n: int, count: Callable[[Sequence[OutputRecord]], int]) -> bool:
        """Return whether all is read, and the outputs ``count`` at least ``n``."""
        ends = {name: progress.next_offset for name, progress in self.progress.items()}
        return ends == {name: len(log) for name, log in self.logs.items()} and count(self.outputs) >= n

    async def pause(self, most: int = 12) -> None:
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)

    def apply(self, update: ProgressUpdate, outputs: Sequence[OutputRecord], epoch: int) -> None:
        """Commit; raises PartitionLost where a newer owner has come."""
        if self.epochs[update.partition] != epoch:
            self.n_fenced += 1
            raise PartitionLost(update.partition, "fenced", fenced=True)
        verdicts = [output for output in outputs if output.role == "verdicts"]
        self.n_unclaimed += sum(update.partition not in self.claims.living(verdict.key) for verdict in verdicts)
        self.outputs += [output for output in outputs if output.role != "events"]
        self.events += [output.message for output in outputs if isinstance(output.message, Event)]
        self.progress[update.partition] = merge(self.progress.get(update.partition), update)

    def apply_later(self, update: ProgressUpdate, outputs: Sequence[OutputRecord], epoch: int) -> None:
        """Commit what a worker that gave up had sent: at any time, unless a newer owner comes before."""

        async def later() -> None:
            await self.pause(200)
            with contextlib.suppress(PartitionLost):
                self.apply(update, outputs, epoch)
                self.n_late += 1

        task = asyncio.create_task(later())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class FencingLedger:
    """One worker's committer: ``restore`` fences all former owners, commits fail or are in doubt by chance."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._epochs: dict[str, int] = {}
        self._under_way: set[str] = set()
        self.max_item_bytes: int | None = None

    async def owing(self) -> Mapping[str, Progress]:
        return {}

    async def restore(self, partition: str) -> Progress | None:
        broker = self._broker
        self._epochs.pop(partition, None)
        await broker.pause()
        broker.epochs[partition] += 1
        epoch = broker.epochs[partition]
        await broker.pause(40)
        progress = broker.progress.get(partition)
        await broker.pause()
        self._epochs[partition] = epoch
        return progress

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        partition, broker = update.partition, self._broker
        assert partition not in self._under_way, "one commit of a partition at a time"
        epoch = self._epochs.get(partition)
        if epoch is None:
            raise PartitionLost(partition, "not ours")
        self._under_way.add(partition)
        try:
            await broker.pause()
            if broker.rng.random() < broker.share_failing:
                self._epochs.pop(partition, None)
                broker.n_failed += 1
                if broker.rng.random() < 0.6:
                    broker.apply(update, outputs, epoch)
                await broker.pause()
                raise PartitionLost(partition, "in doubt")
            broker.apply(update, outputs, epoch)
            outputs = ()
            await broker.pause()
        except asyncio.CancelledError:
            if self._epochs.pop(partition, None) is not None and outputs:
                broker.apply_later(update, outputs, epoch)
            raise
        except PartitionLost:
            self._epochs.pop(partition, None)
            raise
        finally:
            self._under_way.discard(partition)

    async def release(self, partition: str) -> None:
        assert partition not in self._under_way
        await self._broker.pause()
        self._epochs.pop(partition, None)

    async def close(self) -> None:
        return


class SharedSource:
    """One worker's source, as the Kafka source behaves: eager rebalances, batches read ahead, seeks that take time."""

    options_model = BaseModel

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.readings: dict[str, Reading] = {}
        self._events: deque[SourceEvent] = deque()
        self._closed = False
        self._claims: ClaimReader | None = None

    def committer(self, sinks: Mapping[Role, Sink]) -> Committer:
        return FencingLedger(self._broker)

    def topics(self, sinks: Mapping[Role, Sink]) -> Topics:
        raise NotImplementedError

    def claims(self, on_news: Callable[[], None]) -> ClaimLog:
        self._claims = ClaimReader(self._broker.claims, on_news)
        return self._claims

    def assign(self, names: Iterable[str]) -> None:
        """Take over a new assignment."""
        ours = set(names)
        for name in sorted(self.readings.keys() - ours):
            reading = self.readings.pop(name)
            self._drop(name, RecordBatch, PartitionAssigned)
            if reading.is_offered:
                self._events.append(PartitionRevoked(name))
        for name in sorted(ours - self.readings.keys()):
            self.readings[name] = Reading(name)
            self._events.append(PartitionAssigned(name))
        self._events.append(Rebalanced(tuple(sorted(ours))))

    def _drop(self, name: str, *kinds: type[RecordBatch | PartitionAssigned]) -> None:
        left = [event for event in self._events if not (isinstance(event, kinds) and event.partition == name)]
        self._events = deque(left)

    async def batches(self) -> AsyncIterator[SourceEvent]:
        while not self._closed:
            if not self._events or self._broker.rng.random() < 0.5:
                self._poll()
            if not self._events:
                await self._broker.pause()
                await asyncio.sleep(0)
                continue
            event = self._events.popleft()
            if isinstance(event, PartitionAssigned):
                self.readings[event.partition].is_offered = True
            yield event

    def _poll(self) -> None:
        rng = self._broker.rng
        for reading in self.readings.values():
            end = self._broker.ends[reading.name]
            if not reading.is_ready or rng.random() < 0.3:
                continue
            first, after = reading.next_offset, min(end, reading.next_offset + rng.randrange(1, 9))
            records = tuple(self._broker.logs[reading.name][first:after])
            if records or rng.random() < 0.1:
                reading.next_offset = max(first, after)
                batch = RecordBatch(reading.name, records, reading.next_offset, after >= end, first, end)
                self._events.append(batch)

    async def seek(self, partition: str, offset: int | None) -> int:
        reading = self.readings.get(partition)
        if reading is None:
            return offset or 0
        reading.version += 1
        version, reading.is_ready = reading.version, False
        self._drop(partition, RecordBatch)
        await self._broker.pause()
        begin = offset or 0
        if self.readings.get(partition) is reading and reading.version == version:
            reading.next_offset, reading.is_ready = begin, True
        await self._broker.pause()
        return begin

    async def close(self) -> None:
        self._closed = True
        if self._claims is not None:
            await self._claims.close()


@dataclass(eq=False)
class Worker:
    """A pipeline that runs until stopped in good order, or abandoned."""

    source: SharedSource
    pipeline: Pipeline
    batcher: MicroBatcher
    task: asyncio.Task[None]

    @classmethod
    def start(cls, broker: Broker, settings: Settings, tick_s: float) -> Worker:
        clock = TickingClock(tick_s)
        source = SharedSource(broker)
        batcher = MicroBatcher(model_of(), clock, settings.run)
        pipeline = Pipeline(
            settings,
            source,
            FencingLedger(broker),
            batcher,
            clock,
            explainer=explainer_of(settings, clock),
            with_verdicts=True,
            with_windows=True,
        )
        return cls(source, pipeline, batcher, asyncio.create_task(pipeline.run()))

    async def stop(self) -> None:
        self.pipeline.request_stop()
        await asyncio.wait_for(self.task, LIMIT_S)
        await self._end()

    async def abandon(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._end()

    async def _end(self) -> None:
        await self.source.close()
        await self.batcher.close()


@dataclass
class Schedule:
    """Workers come, go, vanish and take partitions from each other at random moments."""

    broker: Broker
    rng: random.Random
    settings: Settings
    publish_every: int
    tick_s: float = TICK_S
    workers: list[Worker] = field(default_factory=list)

    def share(self) -> None:
        """Give every partition an owner; now and then a former one learns of it late, and goes on for a while."""
        owners = {name: self.rng.choice(self.workers) for name in self.broker.logs}
        for worker in self.workers:
            ours = {name for name, owner in owners.items() if owner is worker}
            if self.rng.random() < 0.3:
                ours |= worker.source.readings.keys()
            worker.source.assign(ours)

    def settle(self) -> None:
        """Let everyone keep what is its own, and give one owner to what has none or several."""
        if not self.workers:
            self.workers.append(Worker.start(self.broker, self.settings, self.tick_s))
        held = {worker: set(worker.source.readings) for worker in self.workers}
        for name in self.broker.logs:
            owners = [worker for worker in self.workers if name in held[worker]]
            owner = self.rng.choice(owners or self.workers)
            for worker in self.workers:
                held[worker] = held[worker] | {name} if worker is owner else held[worker] - {name}
        for worker, ours in held.items():
            worker.source.assign(ours)

    async def step(self) -> None:
        chance = self.rng.random()
        if len(self.workers) < 3 and (not self.workers or chance < 0.2):
            self.workers.append(Worker.start(self.broker, self.settings, self.tick_s))
            self.share()
        elif len(self.workers) > 1 and chance < 0.4:
            worker = self.workers.pop(self.rng.randrange(len(self.workers)))
            await (worker.stop() if self.rng.random() < 0.5 else worker.abandon())
            self.share()
        elif chance < 0.6:
            self.share()
            if self.rng.random() < 0.5:
                await steps(self.rng.randrange(20))
                self.share()  # taken back before it was given up
        await steps(self.rng.randrange(60))
        for worker in self.workers:
            assert not worker.task.done(), worker.task.exception()

    async def run(self, n_steps: int, n_outputs: int, count: Callable[[Sequence[OutputRecord]], int] = len) -> None:
        """Do ``n_steps``, then let one assignment stay until all is judged: ``count`` of outputs at least."""
        publishing = asyncio.create_task(self.broker.publish(self.publish_every))
        try:
            for _ in range(n_steps):
                await self.step()
            self.settle()
            await publishing
            self.broker.share_failing = 0.0
            async with asyncio.timeout(LIMIT_S):
                while not self.broker.has_judged(n_outputs, count):
                    await asyncio.sleep(0)
                    for worker in self.workers:
                        assert not worker.task.done(), worker.task.exception()
            for worker in self.workers:
                await worker.stop()
        finally:
            publishing.cancel()
            for worker in self.workers:
                await worker.abandon()
