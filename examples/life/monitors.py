"""The three monitors: one that follows the plant, one that stays as it is, and one that learns naively.

All three are the product's own pipeline; they differ in what becomes of the sequences they judged.
"""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol, get_args

import numpy as np

from streamad.judge.bank import Batchers
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.learn.parts import store_for, versions_of
from streamad.learn.process.service import PlantLearner
from streamad.learn.serving.serving import Serving
from streamad.learn.store.records import Mark
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.from_recordings import train_model
from streamad.messages import ModelRef
from streamad.outputs.reader import Received
from streamad.plant import Plant
from streamad.telemetry.events import EventLog
from streamad.testing import ListSink, ManualClock
from streamad.types import Window, WindowSet

Kind = Literal["streamad", "frozen", "naive"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Learning(Protocol):
    """How a monitor uses judged sequences: as the product does, or in another way."""

    windows: ListSink
    """Where the pipeline commits its windows."""

    async def begin(self) -> Batchers:
        """Return the batchers that score, and begin to learn."""
        ...

    def judged(self, sequence: JudgedSequence) -> None:
        """Take a committed sequence."""
        ...

    async def mark(self, mark: Mark) -> None:
        """Take an operator's mark on an alert."""
        ...

    async def wait_until_trained(self) -> None:
        """Return once everything judged so far has had its effect: a training, a swap."""
        ...

    async def close(self) -> None:
        """End."""
        ...


class _Following:
    """The product: workers commit windows, a learner stores them and trains, and the registry names what serves.

    ``streamad learn`` is a process that follows a file or a topic; here it takes what was committed when it is told to,
    because the feed waits for each training.
    """

    def __init__(self, plant: Plant, clock: ManualClock, events: EventLog) -> None:
        self.windows = ListSink()
        self._clock = clock
        self._serving = Serving(plant, events)
        self._learner = PlantLearner(plant, events.emit)
        self._store = store_for(plant)
        self._versions = versions_of(plant)

    async def begin(self) -> Batchers:
        """Return the batchers that score, and open the store."""
        batchers = await self._serving.begin()
        await self._learner.open()
        return batchers

    def judged(self, sequence: JudgedSequence) -> None:
        """Do nothing: its window is committed."""

    async def mark(self, mark: Mark) -> None:
        """Store it, as the learner does with a message from the place of marks."""
        await asyncio.to_thread(self._store.mark, mark)

    async def wait_until_trained(self) -> None:
        """Learn what was committed, train what is due, and wait until the promoted version judges."""
        taken, self.windows.records = self.windows.records, []
        await self._learner.take([Received(each.message, "windows") for each in taken])
        await self._learner.train_to_the_end()
        while self._versions.current() not in self._serving.versions.values():
            self._clock.advance(1.0)  # a worker looks once a second
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """End a training that runs, and the worker's loads."""
        await self._learner.close()
        await self._serving.close(wait=False)
        self._store.close()


class _Naive:
    """Trains on the newest windows that did not alert and calibrates on some of them; every new model takes over."""

    def __init__(self, plant: Plant, events: EventLog) -> None:
        settings = plant.settings
        assert settings.learning is not None
        self.windows = ListSink()
        self._plant = plant
        self._learning = settings.learning
        self._versions = versions_of(plant)
        self._batcher = MicroBatcher(None, plant.clock, settings.run, name=settings.model.name)
        self._events = events
        self._kept: list[tuple[str, Window]] = []
        self._n_new = 0

    async def begin(self) -> Batchers:
        """Return the one model's batcher."""
        return self._batcher

    def judged(self, sequence: JudgedSequence) -> None:
        """Keep the window unless it alerted."""
        if sequence.window is not None and sequence.verdict.decision != "anomalous":
            self._kept.append((sequence.verdict.verdict_id, sequence.window))
            self._n_new += 1

    async def mark(self, mark: Mark) -> None:
        """Ignore it."""

    async def wait_until_trained(self) -> None:
        """Train when enough windows are new, as often as streamad does while nothing drifts."""
        is_first = self._batcher.model is None
        wanted = self._learning.first_training if is_first else self._learning.after_inliers
        assert wanted is not None
        if self._n_new < (wanted if is_first else wanted / (1 - self._learning.reserve)):
            return
        self._n_new = 0
        version = await asyncio.to_thread(self._train)
        await self._batcher.swap(self._versions.load())
        self._events.emit("model_promoted", f"{version}", model=ModelRef(self._batcher.name, version), level="info")

    async def close(self) -> None:
        """Do nothing: nothing runs."""

    def _train(self) -> str:
        n = self._learning.limit("accepted") + self._learning.limit("reserve") // 2
        self._kept = self._kept[-n:]
        windows = [window for _, window in self._kept]
        data = WindowSet(
            np.stack([window.values for window in windows]),
            np.array([window.length for window in windows], dtype=np.int64),
            tuple(id for id, _ in self._kept),
        )
        return train_model(
            data,
            self._versions.detector,
            settings=self._plant.settings,
            registry=self._versions.registry,
            clock=self._plant.clock,
            prove=proved_in_new_process,
        )


def learning_of(kind: Kind, plant: Plant, clock: ManualClock, events: EventLog) -> Learning:
    """Return the way in which a monitor of this kind learns; ``clock`` is that of the plant."""
    return _Naive(plant, events) if kind == "naive" else _Following(plant, clock, events)
