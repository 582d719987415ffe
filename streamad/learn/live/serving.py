"""The models of a run whose learning is a process of its own: swapped in as the registry names them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import Batchers, MicroBatcher
from streamad.learn.feedback.reader import Unread
from streamad.learn.live.in_service import InService
from streamad.learn.live.learner import cold_start_text
from streamad.learn.live.live_learning import models_at_work
from streamad.learn.parts import versions_of
from streamad.learn.process.service import ModelState
from streamad.plant import Plant
from streamad.system.opening import read_state
from streamad.system.untrusted_json import decode_json
from streamad.telemetry.events import EventLog
from streamad.telemetry.metrics import ServedCounters

_LOOK_S = 1.0


class Learning(Protocol):
    """The learner that a run has started, None where somebody else starts it."""

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

    ``learner`` is the process that the run starts (``learning.process: here``). ``status`` is the file in which it says
    how far it is, read once a second, so that verdicts before the first model can say it.
    """

    n_malformed_feedback = 0
    unread: Unread | None = None

    def __init__(
        self, plant: Plant, events: EventLog, learner: Learning | None = None, status: Path | None = None
    ) -> None:
        assert plant.settings.learning is not None
        self.counters: dict[str, ServedCounters] = {}
        self._plant = plant
        self._events = events
        self._learner = learner
        self._status = status
        self._first_training = plant.settings.learning.first_training
        self._states: dict[str, ModelState] = {}
        self._in_service: dict[str, InService] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> Batchers:
        """Return the batchers that score; start the learner. Raises what ``models_at_work`` does."""
        try:
            batchers = await models_at_work(self._plant, may_learn=True, on_new=self._add, emit=self._events.emit)
            if self._learner is not None:
                await self._learner.begin()
        except BaseException:
            await self.close(wait=False)
            raise
        if self._status is not None:
            self._tasks.append(asyncio.create_task(self._follow_status()))
        return batchers

    def _add(self, name: str, batcher: MicroBatcher) -> None:
        counters = self.counters.setdefault(name, ServedCounters())
        versions = versions_of(self._plant, name)
        emit = self._events.emit
        served = InService(batcher, versions, self._plant.clock, emit=emit, counters=counters)
        self._in_service[name] = served
        batcher.learning = lambda: self._cold_start(name)
        self._tasks.append(asyncio.create_task(served.watch.run()))

    def _cold_start(self, name: str) -> str:
        """Return how far the first model of ``name`` is, if the learner has said it; it may lag."""
        if (state := self._states.get(name)) is None:
            return "no model yet: streamad learn trains the first one"
        n_kept = state.accepted + state.reserve
        return cold_start_text(n_kept, self._first_training, is_training=bool(state.training))

    async def _follow_status(self) -> None:
        while True:
            self._states = await asyncio.to_thread(self._read_status)
            await self._plant.clock.sleep(_LOOK_S)

    def _read_status(self) -> dict[str, ModelState]:
        assert self._status is not None
        with suppress(OSError, msgspec.DecodeError):
            return decode_json(read_state(self._status), dict[str, ModelState])
        return {}

    @property
    def versions(self) -> Mapping[str, str | None]:
        """Return the version in service of each model, None before the first one."""
        return {name: counters.version for name, counters in self.counters.items()}

    @property
    def progress(self) -> str:
        """Return as a short text what is being learned, "" if nothing is known."""
        for name, served in self._in_service.items():
            state = self._states.get(name, ModelState())
            if state.training:
                return state.training
            if served.champion is None:
                return f"learning, {self._cold_start(name)}"
        return ""

    def judged(self, sequence: JudgedSequence) -> None:
        """Do nothing: the learner reads what is committed."""

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
                    await served.watch.look()
        finally:
            if learner is not None:
                await learner.close()
            self._learner = None
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
            for served in self._in_service.values():
                served.watch.close()
