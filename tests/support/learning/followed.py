"""A learner of a small plant on a clock that the test moves, and a gate that holds up its calls of the store."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.learn.live.learners import Learners
from streamad.messages import Decision, ModelRef
from streamad.plant import Plant
from streamad.telemetry.metrics import LearningCounters
from streamad.testing import ManualClock
from tests.support.learning.inlier_cases import judged_as
from tests.support.learning.store import NAME, QUIET, LearningPlant
from tests.support.runtime.pipeline import CHANNELS, START_US, L, steps, until

SMALL: dict[str, Any] = {"first_training": 50, "min_training": 20}


class Followed:
    """A learner on a clock that the test moves, and what it has told."""

    def __init__(self, plant: LearningPlant, *, cold: bool = False, first: int = 0) -> None:
        if not cold:
            plant.train()
        self.plant = plant
        self.clock = ManualClock(START_US)
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        model = None if cold else plant.versions.load()
        self.batcher = MicroBatcher(model, self.clock, plant.settings.run, name=NAME)
        self.counters: dict[str, LearningCounters] = {}
        following = Plant(plant.settings, plant.folder, self.clock)
        self.learners = Learners(following, self.emit, self.counters)
        self.learners.add(NAME, self.batcher)
        self._next = first
        self._down_until_us = 0

    def emit(self, kind: str, message: str, **more: Any) -> None:
        if kind == "learning_failed" and (pause := re.search(r"for (\d+) s, then tries again", message)):
            self._down_until_us = self.clock.monotonic_us() + int(pause[1]) * 1_000_000
        self.told.append((kind, message, more))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.told]

    def judge(self, n: int, *, decision: Decision = "normal", level: float = 0.0, version: str | None = None) -> None:
        """Hand over ``n`` judged sequences, of the champion or of ``version``."""
        for _ in range(n):
            self._next += 1
            self.learners.judged(judged_sequence(self._next, decision, level, version or self.counters[NAME].version))

    async def turn(self, seconds: float = 1.0) -> None:
        """Let time pass, and the learner do what is due by then."""
        await self.rest()
        self.clock.advance(seconds)
        await self.rest()

    async def rest(self) -> None:
        """Return once the learner has nothing more to do before its clock moves."""
        await steps()
        await until(lambda: self.clock.n_sleepers == (1 if self.clock.monotonic_us() < self._down_until_us else 3))
        await steps()

    def stored(self) -> set[str]:
        """The sequences that may train or calibrate, as another process sees them."""
        return self.plant.stored("accepted") | self.plant.stored("reserve")


def judged_sequence(number: int, decision: Decision, level: float, version: str | None) -> JudgedSequence:
    p_value = {"normal": 0.06 + 0.94 * random.Random(number).random(), "anomalous": 0.001}.get(decision)
    verdict, window = judged_as(
        number,
        len(CHANNELS),
        L,
        end_us=START_US + number * 1_000_000,
        level=level,
        decision=decision,
        score=None if p_value is None else 1.0,
        p_value=p_value,
        model=None if version is None else ModelRef(NAME, version),
    )
    return JudgedSequence(verdict, window=window, model_name=NAME)


@asynccontextmanager
async def followed(
    folder: Path, *, cold: bool = False, first: int = 0, backend: str = "torchscript", **learning: Any
) -> AsyncIterator[Followed]:
    """A learner; ``first`` sequences were judged in a run before."""
    model = {"detector": "mean", "device": "cpu", "references": [], "backend": backend}
    plant = LearningPlant(folder, model=model, learning={**QUIET, **learning})
    following = Followed(plant, cold=cold, first=first)
    await following.learners.begun()
    try:
        yield following
    finally:
        await following.learners.close(wait=False)
        await following.batcher.close()


class Gate:
    """While it is closed, calls wait in it; ``is_waited_at`` once one does."""

    def __init__(self) -> None:
        self._open, self._waited_at = threading.Event(), threading.Event()
        self._open.set()
        self.is_waited_at = self._waited_at.is_set
        self.close, self.open = self._open.clear, self._open.set

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` behind the gate."""

        def gated(*args: Any, **more: Any) -> Any:
            if not self._open.is_set():
                self._waited_at.set()
                assert self._open.wait(60)
            return call(*args, **more)

        return gated
