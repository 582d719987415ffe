"""Random schedules of workers that share partitions without a broker: whatever happens in between, the same outputs."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel

from streamad.errors import PartitionLost
from streamad.judge.scoring import MicroBatcher
from streamad.messages import LateRecord, OutputRecord, Role, Verdict
from streamad.partition_progress import Progress, ProgressUpdate, merge
from streamad.ports import Committer, Sink, Topics
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource
from streamad.types import (
    PartitionAssigned,
    PartitionRevoked,
    Rebalanced,
    Record,
    RecordBatch,
    SourceEvent,
    SourceNotice,
)
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import (
    Run,
    TickingClock,
    explainer_of,
    line,
    messy_recordings,
    model_of,
    records_of,
    run_pipeline,
    settings_of,
    steps,
    until,
)

RUN = {"commit_interval": "1ms", "batch_wait": 0, "batch_windows": 2}
TICK_S = 0.0001
PATIENCE_S = 20.0


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
        self.rng = rng
        self.share_failing = 0.0
        self.n_failed = self.n_fenced = self.n_late = 0
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

    def apply(self, update: ProgressUpdate, outputs: Iterable[OutputRecord], epoch: int) -> None:
        """Commit; raises PartitionLost where a newer owner has come."""
        if self.epochs[update.partition] != epoch:
            self.n_fenced += 1
            raise PartitionLost(update.partition, "fenced", fenced=True)
        self.outputs += [output for output in outputs if output.role != "events"]
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

    def committer(self, sinks: Mapping[Role, Sink]) -> Committer:
        return FencingLedger(self._broker)

    def topics(self, sinks: Mapping[Role, Sink]) -> Topics:
        raise NotImplementedError

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
        await asyncio.wait_for(self.task, PATIENCE_S)
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
            async with asyncio.timeout(PATIENCE_S):
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


def partitions_of(seed: int, *, is_messy: bool) -> dict[str, list[Record]]:
    """Three partitions; the last records move each partition's clock on, so that all is cut by the records' times.

    Where they are not messy each record is a sequence, so that nothing is open between two records.
    """
    found = {}
    for number in range(3):
        if is_messy:
            messages = messy_recordings(100 * seed + number, streams=[f"{number}-a", f"{number}-b"], sequences=5)
        else:
            messages = [line(f"{number}-a", f"a-{i}", [10.0 * i, 10.0 * i + 1], end=True) for i in range(40)]
        times_s = [0.1 * i for i in range(len(messages))]
        for name, time_s in (("tick", 1e4), ("tock", 2e4)):
            messages.append(line(f"{name}-{number}", None, [time_s, time_s + 1], end=True))
            times_s.append(time_s)
        found[f"in-{number}"] = records_of(messages, timestamps_s=times_s)
    return found


async def calm(partitions: Mapping[str, Sequence[Record]], settings: Settings) -> list[OutputRecord]:
    """What one undisturbed run writes; as on a broker, no partition ends."""
    script: list[PartitionAssigned | RecordBatch] = []
    for name, records in partitions.items():
        script += [PartitionAssigned(name), RecordBatch(name, tuple(records), len(records))]
    run = await run_pipeline(ListSource(script), settings, clock=TickingClock(TICK_S))
    return [record for role, sink in run.sinks.items() for record in sink.records if role != "events"]


def said(outputs: Iterable[OutputRecord]) -> Counter[tuple[Role, str]]:
    return Counter((record.role, repr(record.message).split("created_at")[0]) for record in outputs)


def orders(outputs: Iterable[OutputRecord]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in outputs:
        if record.role == "verdicts":
            found.setdefault(record.key, []).append(repr(record.message).split("created_at")[0])
    return found


@pytest.mark.parametrize("is_messy", [True, False])
@pytest.mark.parametrize("seed", range(20))
async def test_any_schedule_of_rebalances_writes_the_outputs_of_an_undisturbed_run(seed: int, is_messy: bool) -> None:
    partitions = partitions_of(seed, is_messy=is_messy)
    settings = settings_of(sequences={"allowed_lateness": "3s" if is_messy else 0}, run=RUN)
    expected = await calm(partitions, settings)
    rng = random.Random(seed)
    broker = Broker(partitions, rng)
    broker.share_failing = rng.choice([0.0, 0.1, 0.4])
    await Schedule(broker, rng, settings, 10 if is_messy else 40).run(60, len(expected))
    lost, more = said(expected) - said(broker.outputs), said(broker.outputs) - said(expected)
    assert not lost, lost
    assert not more, more
    assert orders(broker.outputs) == orders(expected)


def long_ones(seed: int) -> dict[str, list[Record]]:
    """Three partitions of long sequences, no time twice: each of their samples can be told from the others."""
    rng = random.Random(seed)
    found = {}
    for number in range(3):
        lanes = [
            [
                line(f"{number}-{lane}", f"{i}", [100.0 * i + 2 * part, 100.0 * i + 2 * part + 1], end=part == 7)
                for i in range(4)
                for part in range(8)
            ]
            for lane in range(3)
        ]
        messages = []
        while any(lanes):
            messages.append(rng.choice([lane for lane in lanes if lane]).pop(0))
        times_s = [0.1 * i for i in range(len(messages))]
        messages += [line(f"tick-{number}", "t", [1e6 + i], end=True) for i in range(2)]
        found[f"in-{number}"] = records_of(messages, timestamps_s=[*times_s, 1e4, 2e4])
    return found


ENDS = {  # settings of the sequences, records published, length of a tick
    "gap": ({"end": ["marker", "gap"], "gap": "2s", "allowed_lateness": "500ms"}, 60, 0.05),
    "memory": ({"end": ["marker", "change"], "max_buffered_bytes": 3_000}, 40, TICK_S),
}


@pytest.mark.parametrize(("reason", "seed"), [("gap", n) for n in range(10)] + [("memory", n) for n in range(8)])
async def test_ends_that_no_record_caused_lose_and_repeat_no_sample(reason: str, seed: int) -> None:
    """The moment decides where the clock or the memory limit cuts; each sample is in one verdict or late, once."""
    sequences, publish_every, tick_s = ENDS[reason]
    rng = random.Random(seed)
    broker = Broker(long_ones(seed), rng)
    broker.share_failing = rng.choice([0.0, 0.1, 0.4])
    schedule = Schedule(broker, rng, settings_of(sequences=sequences, run=RUN), publish_every, tick_s=tick_s)
    await schedule.run(60, 16 * 4 * 3 * 3, n_samples_in)
    told = samples_of(broker.outputs)
    assert len(told) == 4 * 3 * 3
    assert set(told.values()) == {16}
    verdicts = [output.message for output in broker.outputs if isinstance(output.message, Verdict)]
    assert reason in {verdict.reason for verdict in verdicts}


def samples_of(outputs: Iterable[OutputRecord]) -> Counter[tuple[str, str | None]]:
    """Count the samples of each sequence that were judged or told to be late, less those of the last records."""
    found = Counter[tuple[str, str | None]]()
    for output in outputs:
        message = output.message
        if isinstance(message, Verdict) and not message.stream.startswith("tick"):
            found[message.stream, message.sequence] += message.n_samples
        elif isinstance(message, LateRecord) and not message.stream.startswith("tick"):
            found[message.stream, message.sequence] += len(message.times)
    return found


def n_samples_in(outputs: Sequence[OutputRecord]) -> int:
    return samples_of(outputs).total()


# --- interleavings that were found to break it ---


def whole(number: int) -> bytes:
    return line("a", f"a-{number}", [10.0 * number + i for i in range(3)], end=True)


def batch(first: int, n: int) -> RecordBatch:
    records = tuple(Record(first + i, whole(first + i)) for i in range(n))
    return RecordBatch("p", records, first + n, True, first)


class Scripted(ListSource):
    """Delivers its script as it is: a test says what comes, before and after each seek."""

    def __init__(self, *script: SourceEvent) -> None:
        super().__init__(script, endless=True)
        self.sought: list[int | None] = []
        self.begin = 0

    async def seek(self, partition: str, offset: int | None) -> int:
        self.sought.append(offset)
        self._next[partition] = begin = self.begin if offset is None else offset
        self._changed.set()
        return begin

    def _rest(self, event: SourceEvent) -> SourceEvent:
        return event


async def run_to(
    n_verdicts: int,
    source: Scripted,
    *,
    has_happened: bool,
    when_lost: Callable[[], None] = lambda: None,
) -> Run:
    """Run until the first commit has failed, do ``when_lost``, let it be restored, and wait for the verdicts."""
    ledger = Ledger("restore p", failing={1: (PartitionLost("p", "in doubt"), has_happened)})
    may_restore = ledger.gates["restore p"]
    may_restore.set()

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: ledger.calls == ["restore p"])
        may_restore.clear()
        await until(lambda: ledger.calls.count("restore p") == 2)
        when_lost()
        await steps()
        may_restore.set()
        await until(lambda: len(run.verdicts) == n_verdicts, PATIENCE_S)
        await source.close()

    return await run_pipeline(source, committer=ledger, while_running=act)


@pytest.mark.parametrize("n_again", [2, 3])
@pytest.mark.parametrize("n_before", [1, 2, 3])
async def test_what_was_read_on_from_where_a_lost_partition_begins_again(n_before: int, n_again: int) -> None:
    """The commit in doubt had happened, up to what was read; what came next was under way already at the seek."""

    class Late(Scripted):
        async def seek(self, partition: str, offset: int | None) -> int:
            begin = await super().seek(partition, offset)
            if len(self.sought) == 2:
                self.feed(batch(1, n_before), batch(1, n_again), batch(1 + n_again, 3))
            return begin

    source = Late(PartitionAssigned("p"), batch(0, 1))
    run = await run_to(4 + n_again, source, has_happened=True)
    assert source.sought == [None, 1]
    assert [verdict.sequence for verdict in run.verdicts] == [f"a-{i}" for i in range(4 + n_again)]


async def test_what_comes_of_a_lost_partition_before_it_is_sought_is_not_kept() -> None:
    """A slow restore would pile it up in memory, and all of it comes again."""
    source = Scripted(PartitionAssigned("p"), batch(0, 1))

    def read_on() -> None:
        source.feed(batch(1, 3), batch(4, 3))

    run = await run_to(1, source, has_happened=True, when_lost=read_on)
    assert [verdict.sequence for verdict in run.verdicts] == ["a-0"]
    assert run.pipeline.counters.records == 1


async def test_a_partition_lost_before_its_first_commit_begins_where_it_began() -> None:
    """At "latest" the end has moved since: what came in between was read once, so it is read again."""
    source = Scripted(PartitionAssigned("p"), batch(5, 1))
    source.begin = 5

    def move_on() -> None:
        source.begin = 9

    feeding = asyncio.create_task(until(lambda: len(source.sought) == 2))
    feeding.add_done_callback(lambda _: source.feed(batch(5, 1)))
    run = await run_to(1, source, has_happened=False, when_lost=move_on)
    await feeding
    assert source.sought == [None, 5]
    assert [verdict.sequence for verdict in run.verdicts] == ["a-5"]


@pytest.mark.parametrize("has_happened", [True, False])
async def test_an_event_survives_a_failed_commit(has_happened: bool) -> None:
    """Once more if in doubt, never less than once."""
    source = Scripted(PartitionAssigned("p"), SourceNotice("low_watermark_old", "old", "p"), batch(0, 1))
    feeding = asyncio.create_task(until(lambda: len(source.sought) == 2))
    feeding.add_done_callback(lambda _: source.feed(batch(0, 1) if not has_happened else batch(1, 1)))
    run = await run_to(2 if has_happened else 1, source, has_happened=has_happened)
    await feeding
    assert len(run.messages("events")) == (2 if has_happened else 1)
