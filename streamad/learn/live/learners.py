"""The learners of all models of a run."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Collection, Mapping

from streamad.errors import StoreError, StreamadError
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.learn.live.learner import Learner
from streamad.learn.parts import known_models, may_be_added, store_for, stored_names, versions_of
from streamad.learn.store.records import Inliers, Mark
from streamad.plant import Plant
from streamad.safe_text import described
from streamad.system.tasks import Backoff
from streamad.system.threads import LoneThread, in_thread
from streamad.telemetry.events import Emit
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import LearningCounters

_SHOWN = 3
_FIRST_PAUSE_US = 10_000_000
_LONGEST_PAUSE_US = 3_600_000_000
_STEADY_US = 600_000_000


class Learners:
    """Makes a learner for each batcher and passes each judged sequence to the learner of its model.

    One learner trains at a time. A learner that fails unexpectedly emits an event and starts again after 10 s, 20 s,
    ... an hour (10 s again after ten minutes without a failure); scoring goes on. ``counters`` gets one entry for each
    model. Use it inside one running event loop.
    """

    def __init__(self, plant: Plant, emit: Emit, counters: dict[str, LearningCounters]) -> None:
        self._plant = plant
        self._clock = plant.clock
        self._emit = emit
        self._counters = counters
        self._turns = asyncio.Semaphore(1)
        self._learners: dict[str, Learner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._marking = LoneThread("streamad-marking")
        self._others: dict[str, Inliers] = {}
        self._is_stopping = False
        self._is_closed = False

    def add(self, name: str, batcher: MicroBatcher) -> None:
        """Begin live learning of the model behind ``batcher``. Raises ConfigError, PluginError, StoreError."""
        learner = Learner(
            batcher,
            self._plant,
            store=store_for(self._plant, name),
            versions=versions_of(self._plant, name),
            emit=self._emit,
            counters=self._counters.setdefault(name, LearningCounters()),
            turns=self._turns,
        )
        self._learners[name] = learner
        self._tasks[name] = asyncio.create_task(self._follow(name, learner))
        if self._is_stopping:
            learner.request_stop()

    async def begun(self) -> None:
        """Return once the learners so far have read their stores, or ten seconds have passed."""
        await asyncio.gather(*(learner.begun() for learner in self._learners.values()))

    def judged(self, sequence: JudgedSequence) -> None:
        """Take a committed sequence; returns at once."""
        if (learner := self._learners.get(sequence.model_name)) is not None:
            learner.judged(sequence)

    async def wait_until_trained(self) -> None:
        """Return once ``Learner.wait_until_trained`` has returned for each model."""
        await asyncio.gather(*(learner.wait_until_trained() for learner in self._learners.values()))

    async def mark(self, mark: Mark, model: str | None = None) -> None:
        """Store an operator's mark with ``model``, or with each model of the plant if none or an unknown one is named.

        Models that this worker has not loaded are included. Raises StoreError, RegistryError if the mark could not be
        stored, or if there is no model yet: then repeat the call, which does no harm.
        """
        for name in (model,) if model in self._learners else await self._models_for(model):
            if (learner := self._learners.get(name)) is not None:
                await learner.mark(mark)
            else:
                await in_thread(self._marking, self._mark, name, mark)

    def _mark(self, name: str, mark: Mark) -> None:
        """Store a mark with a model that this worker has not loaded."""
        if name not in self._others:
            self._others[name] = store_for(self._plant, name)
        self._others[name].mark(mark)
        self._others[name].tidy_marks()

    async def _models_for(self, model: str | None) -> Collection[str]:
        """Return the models whose stores keep a mark for ``model``. Raises StoreError, RegistryError."""
        stored = await in_thread(self._marking, stored_names, self._plant)
        known = await in_thread(self._marking, known_models, self._plant, {*stored, *self._learners})
        if model is not None and (model in known or may_be_added(self._plant.settings, model, known)):
            return (model,)
        if not known:
            raise StoreError("there is no model yet that could store an operator's mark: it waits for the first one")
        return known

    @property
    def progress(self) -> str:
        """Return as a short text what the models are learning, or "" if nothing."""
        texts = {name: learner.progress for name, learner in self._learners.items()}
        parts = [text if len(texts) == 1 else f"{name} {text}" for name, text in texts.items() if text]
        return ", ".join(parts[:_SHOWN] + ([f"{len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else []))

    @property
    def versions(self) -> Mapping[str, str | None]:
        """Return the version in service of each model, None before the first one."""
        return {name: counters.version for name, counters in self._counters.items()}

    def request_stop(self) -> None:
        """Begin no more training and end the one that runs: it resumes at the next start."""
        self._is_stopping = True
        for learner in self._learners.values():
            learner.request_stop()

    async def close(self, *, wait: bool) -> None:
        """Store what was judged; then, if ``wait``, train what is due, until ``request_stop``.

        Never raises; safe to call twice.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._marking.shutdown(cancel_futures=True)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*(self._close(name, learner, wait=wait) for name, learner in self._learners.items()))

    async def _follow(self, name: str, learner: Learner) -> None:
        """Run ``learner``, again after each failure."""
        pause = Backoff(_FIRST_PAUSE_US, _LONGEST_PAUSE_US)
        while True:
            began_us = self._clock.monotonic_us()
            try:
                await learner.run()
            except Exception as error:  # noqa: BLE001 - the champion must go on judging whatever learning does
                if self._clock.monotonic_us() - began_us >= _STEADY_US:
                    pause.reset()
                self._report_failure(
                    name,
                    error,
                    f"learns nothing, and takes no other version, for {pause.pause_us / 1e6:.0f} s, then tries again",
                )
            await self._clock.sleep(pause.pause_us / 1e6)
            pause.failed()

    async def _close(self, name: str, learner: Learner, *, wait: bool) -> None:
        try:
            await learner.close(wait=wait)
        except Exception as error:  # noqa: BLE001 - the others' end must not depend on it
            self._report_failure(name, error, "did not stop cleanly; unsaved sequences are lost")

    def _report_failure(self, name: str, error: Exception, so: str) -> None:
        trace = "".join(traceback.format_exception(error))
        get_logger().error("learning failed", model=name, traceback=trace)
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        what = str(error) if isinstance(error, StreamadError) else described(error)
        self._emit("learning_failed", f"{name} {so}: {what}; scoring goes on", level="error")
