"""The learning of one model: committed windows into its store, drift, and the trainings that are due."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor

from streamad.drift.plant_watch import Notice, PlantWatch
from streamad.learn.registry.places.place import RegistryAwayError
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, StoredSequence, TrainingRequest
from streamad.learn.trainer.trainings import Need, Trainings
from streamad.messages import ModelRef, Request, Share
from streamad.plant import Plant
from streamad.system.threads import in_thread
from streamad.telemetry.events import Emit
from streamad.telemetry.metrics import LearningCounters
from streamad.types import to_us

WARM_UP_BYTES = 1 << 28
"""A larger reserve is not shown to the drift monitor at the start."""


class ModelLearner:
    """Learns the model ``name``: one call at a time, files in ``thread``.

    ``take`` stores a slice of committed sequences and shows them to the drift monitor, which first sees the reserve of
    former runs, so that a restart forgets neither usual values nor a change of the plant. ``train_due`` starts what is
    due. The share of a sequence is that of its record, decided at its commit. Learners that share ``turns`` train one
    at a time.
    """

    def __init__(
        self,
        name: str,
        plant: Plant,
        store: InlierStore,
        registry: Registry,
        *,
        thread: Executor,
        emit: Emit,
        counters: LearningCounters,
        turns: asyncio.Semaphore,
    ) -> None:
        settings = plant.settings
        assert settings.learning is not None
        self.name = name
        self.counters = counters
        self._clock = plant.clock
        self._store = store
        self._registry = registry
        self._thread = thread
        self._emit = emit
        relearn = "streamad models relearn" + ("" if name == settings.model.name else f" --model {name}")
        self._watch = PlantWatch(settings.channel_specs, settings.learning.drift, relearn=relearn)
        self._serves: str | None = None
        self._known_problems: set[str] = set()
        self.trainings = Trainings(
            name,
            plant,
            registry,
            store=store,
            thread=thread,
            emit=emit,
            counters=counters,
            turns=turns,
        )

    async def open(self) -> None:
        """Open the store and show the reserve to the drift monitor. Raises StoreError, RegistryError."""
        await in_thread(self._thread, self._opened)

    async def take(self, sequences: Sequence[tuple[StoredSequence, Share]]) -> None:
        """Store a slice; it is durable on return. Those that are known are not seen again. Raises StoreError."""
        shares, drifts = await in_thread(self._thread, self._taken, sequences)
        for share, n in shares.items():
            self.counters.count(share, n)
        self.trainings.accepted(shares["accepted"])
        self.counters.drifts += len(drifts)
        for notice in drifts:
            self.trainings.drifted(notice.message)
            self._notify(notice)
        if (alarm := self._watch.alarm(self._clock.monotonic_us())) is not None:
            self._notify(alarm)
        for problem in await in_thread(self._thread, lambda: self._store.problems):
            if problem not in self._known_problems:
                self._known_problems.add(problem)
                self._notify(Notice("store_problem", f"not used: {problem}"))

    async def mark(self, mark: Mark) -> None:
        """Store an operator's mark; it is durable on return. Raises StoreError."""
        await in_thread(self._thread, self._store.mark, mark)

    async def ask(self, request: Request, by: str) -> int:
        """Do what the person ``by`` asks: keep a request to train until it is answered, or delete sequences.

        Return how many were deleted. It is durable on return, and nothing if the same was asked before. Raises
        StoreError.
        """
        return await in_thread(self._thread, self._asked, request, by)

    async def is_waiting(self) -> bool:
        """Return whether a training that a person has asked for, or whose process died, has no result yet.

        Raises StoreError, RegistryError.
        """
        return await in_thread(self._thread, self.trainings.is_waiting)

    async def train_due(self, *, only_waiting: bool = False) -> None:
        """Start the training that is due, if any and none runs; ``only_waiting``: that waits for a result."""
        held = self._store.counts()
        need = Need(
            n_stored=held["accepted"] + held["reserve"],
            has_model=await in_thread(self._thread, self.trainings.has_first),
            changed=self._watch.changed,
            alert_share=self._watch.alert_share,
        )
        await self.trainings.start_due(need, only_waiting=only_waiting)

    async def close(self) -> None:
        """End the training that runs, which resumes at the next start, and close the store; safe to call twice."""
        await self.trainings.close()
        await in_thread(self._thread, self._store.close)

    @property
    def held(self) -> dict[Share, int]:
        """Return how many sequences each share has."""
        return self._store.counts()

    # --- in the thread ---

    def _opened(self) -> None:
        self._store.open()
        self._serves = self._champion()
        if self._store.counts()["reserve"] * self._store.window_bytes > WARM_UP_BYTES:
            return
        for one in self._store.read("reserve"):
            if not one.only_marked:  # words must not change what is usual
                self._show(one)

    def _taken(self, sequences: Sequence[tuple[StoredSequence, Share]]) -> tuple[Counter[Share], list[Notice]]:
        """Return how many sequences were new, by share, and the drifts that they show."""
        serves = self._champion()
        if serves != self._serves:
            self._serves = serves
            self._watch.restart()
        new = [(one, share) for one, share in sequences if self._store.offer(one, share)]
        self._store.flush()
        self._store.tidy_marks()
        notices = [notice for one, _ in new for notice in self._show(one)]
        return Counter(share for _, share in new), notices

    def _champion(self) -> str | None:
        """Return the version in service, or the last one while its store is away: windows are kept meanwhile."""
        try:
            return self._registry.current_or_none(self.name)
        except RegistryAwayError:
            return self._serves

    def _asked(self, request: Request, by: str) -> int:
        if request.action == "purge":
            before_us = None if request.before is None else to_us(request.before)
            return self._store.purge(
                before_us=before_us, ids=request.ids, share=request.share, request_id=request.request_id
            )
        since_us = None if request.since is None else to_us(request.since)
        detail = request.note or f"streamad models {request.action}"
        self._store.ask(
            TrainingRequest(
                id=request.request_id,
                reason="relearn" if request.action == "relearn" else "command",
                requested_us=self._clock.now_us(),
                since_us=since_us,
                detail=f"{detail}, by {by}" if by else detail,
            )
        )
        return 0

    def _show(self, one: StoredSequence) -> list[Notice]:
        p_value = one.p_value if one.model_version == self._serves else None
        drifts = self._watch.add(one.time_us, one.window, p_value, is_alert=one.decision == "anomalous")
        return list(map(self._watch.drift_notice, drifts))

    def _notify(self, notice: Notice) -> None:
        model = None if self._serves is None else ModelRef(self.name, self._serves)
        self._emit(notice.kind, notice.message, model=model, figures=notice.figures, level=notice.level)
