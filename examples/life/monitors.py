"""The three monitors: one that follows the plant, one that stays as it is, and one that learns naively.

All three are the product's own pipeline; they differ in what becomes of the sequences they judged.
"""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol, get_args

import numpy as np

from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import Batchers, MicroBatcher
from streamad.learn.live.live_learning import LiveLearning
from streamad.learn.parts import versions_of
from streamad.learn.store.records import Mark
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.from_recordings import train_model
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.telemetry.events import EventLog
from streamad.types import Window, WindowSet

Kind = Literal["streamad", "frozen", "naive"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Learning(Protocol):
    """How a monitor uses judged sequences: the product's ``LiveLearning``, or another way."""

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

    async def close(self, *, wait: bool) -> None:
        """End."""
        ...


class _Naive:
    """Trains on the newest windows that did not alert and calibrates on some of them; every new model takes over."""

    def __init__(self, plant: Plant, events: EventLog) -> None:
        settings = plant.settings
        assert settings.learning is not None
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

    async def close(self, *, wait: bool) -> None:
        """Do nothing: nothing runs."""

    def _train(self) -> str:
        n = self._learning.max_accepted + self._learning.max_reserve // 2
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


def learning_of(kind: Kind, plant: Plant, events: EventLog) -> Learning:
    """Return the way in which a monitor of this kind learns."""
    return _Naive(plant, events) if kind == "naive" else LiveLearning(plant, events)
