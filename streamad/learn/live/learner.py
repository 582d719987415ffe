"""The live learning of one model: gate, store, drift, training, swap.

The event loop only queues judged sequences. Store, gate and drift share one thread of the model, loading has another,
training a process. None of them delays scoring, and none of their failures ends it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from streamad.drift.plant_watch import Notice, PlantWatch
from streamad.errors import StoreError
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.learn.live.in_service import InService
from streamad.learn.live.keeper import Item, Keeper, NewChampion, ToKeep, drop_oldest
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.store.records import Inliers, Mark
from streamad.learn.trainer.trainings import Need, Trainings
from streamad.messages import ModelRef, Share
from streamad.plant import Plant
from streamad.system.clock import pause
from streamad.system.tasks import wait_for_either
from streamad.system.threads import LoneThread, in_thread
from streamad.telemetry.events import Emit
from streamad.telemetry.metrics import LearningCounters


def cold_start_text(n_kept: int, n_wanted: int, *, is_training: bool, unit: str = "") -> str:
    """Return the progress to a first model, "i of n" and perhaps ``unit``, i at most n.

    Examples:
        >>> cold_start_text(12, 200, is_training=False)
        '12 of 200'
        >>> cold_start_text(230, 200, is_training=True)
        '200 of 200, the first model is being trained'
        >>> cold_start_text(230, 200, is_training=True, unit="sequences")
        '200 of 200 sequences, the first model is being trained'
    """
    text = f"{min(n_kept, n_wanted)} of {n_wanted} {unit}".rstrip()
    return f"{text}, the first model is being trained" if is_training else text


_TURN_S = 1.0
_SHARD_SEQUENCES = 500
_BEGIN_S = 10.0
_LEAST_END_S = 1.0


class Learner:
    """Trains and swaps the model behind ``batcher`` by the sequences that it judged.

    Pass it every committed sequence (``judged``), run it beside the pipeline (``run``), then ``close`` it. Each
    sequence is offered to ``store`` at most once, after its commit, and is durable there after ``flush_interval``.
    Learners that share ``turns`` train one at a time.
    """

    def __init__(
        self,
        batcher: MicroBatcher,
        plant: Plant,
        *,
        store: Inliers,
        versions: RegistryVersions,
        emit: Emit,
        counters: LearningCounters,
        turns: asyncio.Semaphore,
    ) -> None:
        settings, clock = plant.settings, plant.clock
        assert settings.learning is not None
        self.name = batcher.name
        self.counters = counters
        self._batcher = batcher
        self._settings = settings.learning
        self._stop_timeout_us = settings.run.stop_timeout
        self._clock = clock
        self._emit = emit
        relearn = "streamad models relearn" + ("" if self.name == settings.model.name else f" --model {self.name}")
        self._plant = PlantWatch(settings.channel_specs, settings.learning.drift, relearn=relearn)
        self._keeper = Keeper(store, settings.learning, clock, self._plant, self._champion)
        self._in_service = InService(batcher, versions, clock, emit=emit, counters=counters, on_swap=self._on_swap)
        self._watch = self._in_service.watch
        self._thread = LoneThread("streamad-learning")
        self._trainings = Trainings(
            self.name,
            plant,
            versions.registry,
            stored=self._keeper,
            thread=self._thread,
            emit=emit,
            counters=self.counters,
            on_promoted=self._watch.wake,
            turns=turns,
        )
        self._inbox: deque[Item] = deque()
        self._held: Counter[Share] = Counter()
        self._flushed_us = clock.monotonic_us()
        self._is_failing = False
        self._begun = asyncio.Event()
        self._n_lost = 0
        self._n_given = 0
        self._given_up_us = 0
        self._n_in_batcher = 0
        self._n_at_store = 0  # in the thread, perhaps waiting for a store that does not open
        self._woken = asyncio.Event()
        self._stopped = asyncio.Event()
        self._one_turn = asyncio.Lock()
        self._turn: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        batcher.learning = self._next_of_cold_start

    def judged(self, sequence: JudgedSequence) -> None:
        """Take a committed sequence of this model; returns at once."""
        self._n_in_batcher = max(0, self._n_in_batcher - 1)
        if sequence.window is None:
            return
        self._n_given += 1
        if len(self._inbox) >= self._keeper.limit:  # the thread waits for a store that does not answer
            self._n_lost += drop_oldest(self._inbox)
        self._inbox.append(ToKeep(sequence.verdict, sequence.window, self._champion(), self._clock.now_us()))
        if len(self._inbox) >= _SHARD_SEQUENCES:
            self._woken.set()

    async def mark(self, mark: Mark) -> None:
        """Store an operator's mark; returns once it is durable. Raises StoreError."""
        await in_thread(self._thread, self._keeper.mark, mark)

    @property
    def progress(self) -> str:
        """Return as a short text what the model is learning, or "" if nothing."""
        learning = "" if self._batcher.model is not None else f"learning {self._cold_start()}"
        return self._trainings.progress or learning

    async def run(self) -> None:
        """Watch registry, trainings and queue until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._trainings.watch())
            group.create_task(self._turns())

    async def begun(self) -> None:
        """Return once the store was read, or ten seconds have passed."""
        await pause(_BEGIN_S, self._clock, self._begun)

    async def wait_until_trained(self) -> None:
        """Return once everything judged so far is stored, a training due by it is done, and its model in service.

        For a source that waits for the monitor: at full speed, a recorded year would end before the first training.
        """
        await self._take_turn(flush=True)
        await self._trainings.wait()
        await self._watch.look()

    def request_stop(self) -> None:
        """Begin no more training and end the one that runs: it resumes at the next start.

        From now on the store has ``run.stop_timeout`` to write what is queued.
        """
        if not self._stopped.is_set():
            self._given_up_us = self._clock.monotonic_us() + self._stop_timeout_us
        self._stopped.set()
        if self._ending is None:
            self._ending = asyncio.create_task(self._trainings.close())

    async def close(self, *, wait: bool) -> None:
        """Store what was judged; then, if ``wait``, train what is due and put the result into service.

        ``request_stop`` ends that wait and, ``run.stop_timeout`` later, the wait for the store. Call it after ``run``.
        """
        if not wait:
            self.request_stop()
        work, given_up = (asyncio.create_task(what()) for what in (self._finish, self._give_up))
        try:
            await asyncio.wait({work, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            else:
                self._report_unkept()
        finally:
            left = [task for task in (work, given_up, self._turn) if task is not None and not task.done()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.request_stop()
            assert self._ending is not None
            await self._ending
            self._watch.close()
            self._thread.shutdown(cancel_futures=True)

    async def _finish(self) -> None:
        if self._turn is not None:
            await asyncio.wait({self._turn})
        await self._take_turn(flush=True)
        await self._wait_for_training()
        if not self._stopped.is_set():
            await self._watch.look()

    async def _give_up(self) -> None:
        """Return when the store's time after a stop is over: at least a second, if the last verdicts took it all."""
        await self._stopped.wait()
        await self._clock.sleep(max(_LEAST_END_S, (self._given_up_us - self._clock.monotonic_us()) / 1e6))

    def _report_unkept(self) -> None:
        n = self._n_given - self._n_lost - self._keeper.n_taken + self._keeper.n_unwritten
        self.counters.unkept += n
        waited = f"has not answered within run.stop_timeout ({self._stop_timeout_us / 1e6:g} s)"
        self._notify(Notice("store_failed", f"the inlier store {waited}: {n} sequences are not kept", level="error"))

    async def _wait_for_training(self) -> None:
        done, watching = (asyncio.create_task(what()) for what in (self._trainings.wait, self._trainings.watch))
        await wait_for_either(self._stopped, done)
        for task in (done, watching):
            task.cancel()
        await asyncio.gather(done, watching, return_exceptions=True)

    async def _turns(self) -> None:
        while True:
            self._woken.clear()
            self._turn = asyncio.create_task(self._take_turn())
            await asyncio.shield(self._turn)  # if it were cancelled, its events would be lost
            await pause(_TURN_S, self._clock, self._woken)

    async def _take_turn(self, *, flush: bool = False) -> None:
        """Process the sequences judged since the last turn."""
        async with self._one_turn:
            await self._turned(flush=flush)

    async def _turned(self, *, flush: bool) -> None:
        items = list(self._inbox)
        self._inbox.clear()
        self._n_in_batcher = self._n_in_batcher if items else 0  # after a failed commit some were judged twice
        waits = bool(items) or self._keeper.n_unwritten > 0 or self._is_failing
        since_us = self._clock.monotonic_us() - self._flushed_us
        is_due = since_us >= self._settings.flush_interval or len(items) >= _SHARD_SEQUENCES
        is_cold = is_due and self._batcher.model is None
        if waits or is_cold or not self._begun.is_set():
            await self._work(items, flush=flush or is_due)
            self._begun.set()
        if (alarm := self._plant.alarm(self._clock.monotonic_us())) is not None:
            self._notify(alarm)
        if not self._stopped.is_set():
            await self._train()

    async def _work(self, items: list[Item], *, flush: bool) -> None:
        if flush:
            self._flushed_us = self._clock.monotonic_us()
        self._n_at_store += sum(isinstance(item, ToKeep) for item in items)
        work = await in_thread(self._thread, self._keeper.work, items, flush=flush)
        self._n_at_store = work.n_waiting
        for share, n in work.kept.items():
            self.counters.count(share, n)
        self.counters.unkept = self._n_lost + work.n_dropped
        self._held = work.held or self._held
        self._trainings.accepted(work.kept["accepted"])
        self.counters.drifts += len(work.drifts)
        for drift in work.drifts:
            notice = self._plant.drift_notice(drift)
            self._trainings.drifted(notice.message)
            self._notify(notice)
        for problem in work.problems:
            self._notify(Notice("store_problem", f"not used: {problem}"))
        self._on_store(work.failure)

    def _on_store(self, failure: StoreError | None) -> None:
        if failure is not None and not self._is_failing:
            self._notify(Notice("store_failed", f"{failure}; scoring goes on, sequences wait in memory", level="error"))
        if failure is None and self._is_failing:
            self._notify(Notice("store_back", "the inlier store takes sequences again", level="info"))
        self._is_failing = failure is not None

    async def _train(self) -> None:
        need = Need(
            n_stored=self._held["accepted"] + self._held["reserve"],
            has_model=self._batcher.model is not None,
            changed=self._plant.changed,
            alert_share=self._plant.alert_share,
        )
        await self._trainings.start_due(need, lambda: self._work([], flush=True))  # the trainer reads what is stored

    def _on_swap(self) -> None:
        self._inbox.append(NewChampion())

    def _champion(self) -> ModelRef | None:
        return self._in_service.champion

    def _next_of_cold_start(self) -> str:
        """Count one more sequence without a model, and return the detail of its verdict."""
        self._n_in_batcher += 1
        return self._cold_start()

    def _cold_start(self) -> str:
        held = self._held["accepted"] + self._held["reserve"]
        n = held + self._n_at_store + len(self._inbox) + self._n_in_batcher
        return cold_start_text(n, self._settings.first_training, is_training=self._trainings.is_running)

    def _notify(self, notice: Notice) -> None:
        self._emit(notice.kind, notice.message, model=self._champion(), figures=notice.figures, level=notice.level)
