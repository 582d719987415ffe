"""The three monitors: one that follows the plant, one that stays as it is, and one that learns naively.

All three are the product's own pipeline; they differ in what becomes of the sequences they judged.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np

from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.learn.live.learner import Learner
from streamad.learn.parts import store_for, versions_of
from streamad.learn.store.records import mark_of
from streamad.learn.training.from_recordings import train_model
from streamad.messages import Feedback, ModelRef
from streamad.plant import Plant
from streamad.ports import Clock
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.events import Emit
from streamad.types import Window, WindowSet

Kind = Literal["streamad", "frozen", "naive"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Follower(Protocol):
    """What becomes of a monitor's judged sequences."""

    def judged(self, sequence: JudgedSequence) -> None:
        """Take a committed sequence."""
        ...

    async def answered(self, feedback: Feedback) -> None:
        """Hear what an operator says of an alert."""
        ...

    async def settle(self) -> None:
        """Return once all that the sequences judged so far call for is done."""
        ...

    async def close(self) -> None:
        """End."""
        ...


class _Following:
    """streamad's own learner. With ``settings`` that never make a training due, its first model stays for ever."""

    def __init__(self, batcher: MicroBatcher, settings: Settings, folder: Path, *, clock: Clock, emit: Emit) -> None:
        plant = Plant(settings, folder, clock)
        self._learner = Learner(
            batcher,
            plant,
            store=store_for(plant),
            versions=versions_of(plant),
            emit=emit,
        )
        self._running = asyncio.create_task(self._learner.run())

    def judged(self, sequence: JudgedSequence) -> None:
        """Hand a judged sequence to the learner."""
        self._learner.judged(sequence)

    async def answered(self, feedback: Feedback) -> None:
        """Mark the sequence of an alert in the inlier store."""
        await self._learner.mark(mark_of(feedback))

    async def settle(self) -> None:
        """Wait for gate, store, drift and guard, for a training that they call for, and for its model's swap."""
        await self._learner.settle()

    async def close(self) -> None:
        """End the learner."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._learner.close(wait=False)


class _Naive:
    """Trains on the newest windows that did not alert and calibrates on some of them; every new model takes over."""

    def __init__(self, batcher: MicroBatcher, settings: Settings, folder: Path, *, clock: Clock, emit: Emit) -> None:
        assert settings.learning is not None
        self._batcher = batcher
        self._settings = settings
        self._learning = settings.learning
        self._versions = versions_of(Plant(settings, folder, clock))
        self._clock = clock
        self._emit = emit
        self._kept: list[tuple[str, Window]] = []
        self._n_new = 0

    def judged(self, sequence: JudgedSequence) -> None:
        """Keep the window where nothing was noticed."""
        if sequence.window is not None and sequence.verdict.decision != "anomalous":
            self._kept.append((sequence.verdict.verdict_id, sequence.window))
            self._n_new += 1

    async def answered(self, feedback: Feedback) -> None:
        """Ignore what operators say."""

    async def settle(self) -> None:
        """Train where enough is new, as often as streamad does where nothing drifts."""
        is_first = self._batcher.model is None
        wanted = self._learning.first_training if is_first else self._learning.after_inliers
        assert wanted is not None
        if self._n_new < (wanted if is_first else wanted / (1 - self._learning.reserve)):
            return
        self._n_new = 0
        version = await asyncio.to_thread(self._train)
        await self._batcher.swap(self._versions.load())
        self._emit("model_promoted", f"{version}", model=ModelRef(self._batcher.name, version), level="info")

    async def close(self) -> None:
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
            settings=self._settings,
            registry=self._versions.registry,
            clock=self._clock,
        )


def follower_of(
    kind: Kind, batcher: MicroBatcher, settings: Settings, folder: Path, *, clock: Clock, emit: Emit
) -> Follower:
    """Return what makes a monitor the one it is."""
    make: type[_Naive | _Following] = _Naive if kind == "naive" else _Following
    return make(batcher, settings, folder, clock=clock, emit=emit)
