"""The models of a run in a plant that learns: swapped in as the registry names them, with how far the learner is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from streamad.judge.bank import Batchers
from streamad.judge.scoring import MicroBatcher
from streamad.learn.parts import versions_of
from streamad.learn.process.state import LearnerState, ModelState, StateFile, cold_start_text
from streamad.learn.registry.hot_swap import ModelWatch
from streamad.learn.serving.models import models_at_work
from streamad.plant import Plant
from streamad.telemetry.events import EventLog
from streamad.telemetry.metrics import ServedCounters

_LOOK_S = 1.0


class Learning(Protocol):
    """The learner that a run has started."""

    async def begin(self) -> None:
        """Start it."""

    async def finish(self) -> None:
        """Return once it has learned all that is committed, and has ended. Raises StreamadError if it cannot."""

    def request_stop(self) -> None:
        """Let it end soon: what it has not learned, it learns at its next start."""

    async def close(self) -> None:
        """End it; safe to call twice."""


class Serving:
    """Keeps each model of a run on the version that the registry names; what is learned, the learner decides.

    ``learner`` is the process that the run starts (``learning.process: here``), None if somebody else starts it.
    ``state`` is the file in which it says how far it is, read once a second: verdicts before the first model say it.
    """

    def __init__(
        self, plant: Plant, events: EventLog, learner: Learning | None = None, state: StateFile | None = None
    ) -> None:
        assert plant.settings.learning is not None
        self.counters: dict[str, ServedCounters] = {}
        self._plant = plant
        self._events = events
        self._learner = learner
        self._state = state
        self._first_training = plant.settings.learning.first_training
        self._said = LearnerState()
        self._in_service: dict[str, ModelWatch] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> Batchers:
        """Return the batchers that score; start the learner. Raises what ``models_at_work`` does."""
        try:
            batchers = await models_at_work(self._plant, may_learn=True, on_new=self._add, emit=self._events.emit)
            if self._learner is not None:
                if self._state is not None:  # what a former learner has said is none of this one's
                    self._said = await asyncio.to_thread(self._state.read)
                await self._learner.begin()
        except BaseException:
            await self.close(wait=False)
            raise
        if self._state is not None:
            self._tasks.append(asyncio.create_task(self._follow_state(self._state)))
        return batchers

    def _add(self, name: str, batcher: MicroBatcher) -> None:
        counters = self.counters.setdefault(name, ServedCounters())
        versions = versions_of(self._plant, name, measured=True)
        emit = self._events.emit
        served = ModelWatch(batcher, versions, self._plant.clock, emit=emit, counters=counters)
        self._in_service[name] = served
        batcher.learning = lambda: self._cold_start(name)
        self._tasks.append(asyncio.create_task(served.run()))

    def _cold_start(self, name: str) -> str:
        """Return how far the first model of ``name`` is, if the learner has said it; it may lag."""
        if (state := self._said.models.get(name)) is None:
            return "no model yet: streamad learn trains the first one"
        n_kept = state.accepted + state.reserve
        return cold_start_text(n_kept, self._first_training, is_training=bool(state.training))

    async def _follow_state(self, file: StateFile) -> None:
        while True:
            await self._look(file)
            await self._plant.clock.sleep(_LOOK_S)

    async def _look(self, file: StateFile) -> None:
        """Read how far the learner is; the run that has started it counts what it does, so that no two do."""
        said = await asyncio.to_thread(file.read)
        before, self._said = self._said, said  # after the wait: another look may have come first
        if self._learner is None:
            return
        for name, counters in self.counters.items():
            counters.learned = self._said.models.get(name, ModelState()).counters
        for kind, n in self._said.events.items():
            known = before.events.get(kind, 0)
            self._events.counts[kind] += n - known if n >= known else n  # else it was started again

    @property
    def versions(self) -> Mapping[str, str | None]:
        """Return the version in service of each model, None before the first one."""
        return {name: counters.version for name, counters in self.counters.items()}

    @property
    def progress(self) -> str:
        """Return as a short text what is being learned, "" if nothing is known."""
        for name, served in self._in_service.items():
            state = self._said.models.get(name, ModelState())
            if state.training:
                return state.training
            if served.champion is None:
                return f"learning, {self._cold_start(name)}"
        return ""

    def request_stop(self) -> None:
        """End the wait for the learner: what it has not learned, it learns at its next start."""
        if self._learner is not None:
            self._learner.request_stop()

    async def close(self, *, wait: bool) -> None:
        """End the learner; if ``wait``, first let it learn all that is committed, and put the result into service.

        Raises StreamadError if it could not. Safe to call twice.
        """
        learner = self._learner
        try:
            if learner is not None and wait:
                await learner.finish()
                for served in self._in_service.values():
                    await served.look()
        finally:
            if learner is not None:
                await learner.close()
                if self._state is not None:
                    await self._look(self._state)
            self._learner = None
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
            for served in self._in_service.values():
                served.close()
