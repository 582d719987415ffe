"""A plant that learns, for tests in one process: messages, versions that differ, a pipeline that learns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamad.judge.bank import Batchers
from streamad.judge.judging import JudgedSequence
from streamad.learn.parts import registry_of, store_for, versions_of
from streamad.learn.process.service import PlantLearner
from streamad.learn.process.state import state_file
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry
from streamad.learn.serving.serving import Serving
from streamad.learn.store.inliers import InlierStore
from streamad.learn.training.from_recordings import train_model
from streamad.messages import Event, Role, Share, Verdict
from streamad.outputs.reader import Received
from streamad.plant import Plant
from streamad.ports import Clock, Source
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.events import EventLog
from streamad.telemetry.metrics import LearningCounters, ServedCounters
from streamad.testing import ListSink
from streamad.types import Record, RecordBatch, WindowSet
from tests.support.kafka.child import PLUGINS
from tests.support.learning.plant import taken_as_proved
from tests.support.runtime.pipeline import CHANNELS, ROLES, START_US, L, settings_of

assert PLUGINS.is_dir()  # importing it makes the detector known
NAME = "default"
QUIET: dict[str, Any] = {"schedule": None, "on_drift": False, "drift": {"enabled": False}}


class LearningPlant:
    """A folder with a registry and a store. Sequences are drawn by their number: the same number, the same sequence."""

    def __init__(self, folder: Path, *, options: Mapping[str, Any] | None = None, **sections: Any) -> None:
        self.folder = folder
        given = {
            "model": {"detector": "mean", "device": "cpu", "options": dict(options or {}), "references": []},
            "alerts": {"false_alarm_rate": 0.05},
            "learning": QUIET,
        }
        self.settings: Settings = settings_of(**{**given, **sections})

    @property
    def plant(self) -> Plant:
        return Plant(self.settings, self.folder, SystemClock())

    @property
    def registry(self) -> Registry:
        return registry_of(self.plant)

    @property
    def versions(self) -> RegistryVersions:
        return versions_of(self.plant)

    def values(self, number: int, *, level: float = 0.0, seed: int = 0) -> list[list[float]]:
        """One sequence's samples [n, C]; an ordinary one has the level 0."""
        rng = np.random.default_rng([number, seed])
        course = np.sin(np.linspace(0, 3, L))[:, None] * np.array([1.0, 5.0, 20.0])
        values = course + level + rng.normal(0, 0.3, (L, len(CHANNELS))) + rng.normal(0, 0.3, len(CHANNELS))
        return np.round(values, 4).tolist()  # type: ignore[no-any-return]

    def message(self, number: int, *, level: float = 0.0, **more: Any) -> bytes:
        """A whole sequence as one message, one minute after the one before."""
        times = [START_US / 1e6 + 60 * number + step for step in range(L)]
        values = self.values(number, level=level)
        content = {"stream": f"s{number % 3}", "sequence": f"B-{number}", "times": times, "values": values}
        return json.dumps({**content, "end": True, **more}).encode()

    def records(self, numbers: range, **more: Any) -> tuple[Record, ...]:
        return tuple(Record(number, self.message(number, **more)) for number in numbers)

    def train(self, seed: int = 0, n: int = 60, *, promote: bool = True, name: str = NAME) -> str:
        """Publish a version trained on sequences of its own."""
        values = np.array([self.values(i, seed=seed + 1) for i in range(n)], dtype=np.float32).transpose(0, 2, 1)
        data = WindowSet(np.ascontiguousarray(values), np.full(n, L, np.int64), tuple(f"T{seed}-{i}" for i in range(n)))
        settings = self.settings.model_copy(update={"model": self.settings.model.model_copy(update={"name": name})})
        return train_model(
            data,
            self.versions.detector,
            settings=settings,
            registry=self.registry,
            clock=SystemClock(),
            prove=taken_as_proved,
            promote=promote,
        )

    def promote(self, version: str) -> None:
        self.registry.promote(NAME, version, expected=self.registry.current(NAME))

    def damage(self, version: str) -> Path:
        """Change a byte of the version's model, as a disk does."""
        path = self.registry.folder(NAME, version) / "mean.npz"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        return path

    def store(self, name: str = NAME) -> InlierStore:
        """What is in the store now."""
        store = store_for(self.plant, name)
        store.open()
        return store

    def stored(self, share: Share, name: str = NAME) -> set[str]:
        return {one.sequence for one in self.store(name).read(share)}


class Committed(ListSink):
    """A sink of windows whose records a learner takes."""

    def __init__(self) -> None:
        super().__init__()
        self.n_taken = 0

    def new(self) -> list[Received[Any]]:
        """Return what was committed and not taken."""
        return [Received(each.message, "windows") for each in self.records[self.n_taken :]]


@dataclass
class LearningRun:
    """A pipeline and a learner of what it commits, while both run, and what has come out so far."""

    plant: LearningPlant
    pipeline: Pipeline
    serving: Serving
    learner: PlantLearner
    batchers: Batchers
    task: asyncio.Task[None]
    sinks: dict[Role, ListSink]
    windows: Committed
    judged: list[JudgedSequence] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    @property
    def counters(self) -> Mapping[str, ServedCounters]:
        return self.serving.counters

    def learned(self, name: str = NAME) -> LearningCounters:
        """What the learner counts of a model."""
        return self.learner.counters.setdefault(name, LearningCounters())

    @property
    def verdicts(self) -> list[Verdict]:
        return [one.verdict for one in self.judged]

    def messages(self, role: Role) -> list[Any]:
        """The committed messages of a role."""
        return [record.message for record in self.sinks[role].records]

    async def learn(self) -> None:
        """Let the learner take what is committed, and start what is due."""
        async with self.turn:  # one turn after the other
            if batch := self.windows.new():
                await self.learner.take(batch)
                self.windows.n_taken += len(batch)
            await self.learner.turn()

    async def end(self) -> None:
        """Wait for the end of the source, then for what is to be trained, as ``streamad run`` does."""
        await self.task
        await self.learn()
        await self.learner.train_to_the_end()
        await self.serving.close(wait=True)
        await self.pipeline.commit_events()


@asynccontextmanager
async def learning_run(
    plant: LearningPlant, source: Source, *, clock: Clock | None = None
) -> AsyncIterator[LearningRun]:
    """Run the plant on ``source``, a learner beside it; what was not ended in the block is ended after it."""
    clock = clock or SystemClock()
    windows = Committed()
    sinks: dict[Role, ListSink] = {**{role: ListSink() for role in ROLES}, "windows": windows}
    events: list[Event] = []
    judged: list[JudgedSequence] = []
    of_plant = Plant(plant.settings, plant.folder, clock)
    log = EventLog(plant.settings.name, clock, events.append)
    state = state_file(of_plant)
    serving = Serving(of_plant, log, state=state)
    learner = PlantLearner(of_plant, log.emit, state)
    batchers = await serving.begin()
    await learner.open()
    pipeline = Pipeline(
        plant.settings,
        source,
        UnsavedCommitter(sinks),
        batchers,
        clock,
        explainer=None,
        with_verdicts=True,
        with_windows=True,
        on_judged=lambda one, _: judged.append(one),
        events=log,
    )
    task = asyncio.create_task(pipeline.run())
    run = LearningRun(plant, pipeline, serving, learner, batchers, task, sinks, windows, judged, events)

    async def learn() -> None:
        while True:
            await run.learn()
            await asyncio.sleep(0.02)

    learning = asyncio.create_task(learn())
    run_end = run.end

    async def end() -> None:
        await task
        async with run.turn:  # a turn that is cut would store windows that nothing counts
            learning.cancel()
        await asyncio.gather(learning, return_exceptions=True)
        await run_end()

    run.end = end  # type: ignore[method-assign]
    try:
        yield run
    finally:
        for each in (task, learning):
            each.cancel()
        await asyncio.gather(task, learning, return_exceptions=True)
        await learner.close()
        await serving.close(wait=False)
        await batchers.close()


def batch(partition: str, records: tuple[Record, ...], *, caught_up: bool = False) -> RecordBatch:
    """Records as a source delivers them."""
    return RecordBatch(partition, records, records[-1].offset + 1, caught_up)
