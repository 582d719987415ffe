"""The trainings of one model in service: triggers and requests start the process, its results become events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from streamad.drift.lasting_change import Changed
from streamad.errors import RegistryError, StreamadError
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.child import Child
from streamad.learn.trainer.requests import (
    TrainingFailed,
    TrainingOutcome,
    TrainingReason,
    TrainingRequest,
    TrainingResult,
)
from streamad.learn.trainer.status import TrainingStatus, progress_of, read_status
from streamad.learn.trainer.triggers import Triggers, failed_on_request
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.settings.learning import LearningSettings
from streamad.system.threads import in_thread
from streamad.telemetry.events import Emit, Level
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import LearningCounters

_RELEARN_AGAIN_US = 3_600_000_000
_GRACE_SHARE = 0.8
_STATUS_S = 1.0
_COUNTS = 10  # of the store, per ``after_inliers``

_WHY: Mapping[TrainingReason, str] = {
    "first": "first training",
    "effort": "training with the configured effort",
    "schedule": "scheduled training",
    "inliers": "training after new inliers",
    "drift": "training after drift",
    "command": "requested training",
    "relearn": "relearning",
}


@dataclass(frozen=True, slots=True)
class Need:
    """The inputs of the decision to train: sequences accepted and reserved, and whether the plant has changed for good.

    ``alert_share``: of the latest sequences; a change that they no longer show is not learned.
    """

    n_stored: int
    has_model: bool
    changed: Changed | None = None
    alert_share: float = 0.0


class StoreCounts(Protocol):
    """Counts of the inlier store; called in a thread."""

    def kept_since(self, since_us: int) -> int:
        """Return how many sequences that ended since ``since_us`` are stored. Raises StoreError."""
        ...

    def accepted_since(self, stored_us: int) -> int:
        """Return how many accepted sequences were stored after ``stored_us``, by any worker. Raises StoreError."""
        ...


class Trainings:
    """Trains the model ``name`` when it is due, requested, or was interrupted; one training at a time.

    ``counters`` count them; ``on_promoted`` is called after a promotion. Files and ``stored`` are read in
    ``thread``; models that share ``turns`` train one after the other.
    """

    def __init__(
        self,
        name: str,
        plant: Plant,
        registry: Registry,
        *,
        stored: StoreCounts,
        thread: Executor,
        emit: Emit,
        counters: LearningCounters,
        on_promoted: Callable[[], None],
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        settings = plant.settings
        assert settings.learning is not None
        self._name = name
        self._settings: LearningSettings = settings.learning
        self._registry = registry
        self._stored = stored
        self._thread = thread
        self._clock = plant.clock
        self._emit = emit
        self._counters = counters
        self._on_promoted = on_promoted
        self._n_accepted = 0
        self._n_new = 0
        self._counted_at: int | None = None
        self._trained_us: int | None = None
        self._drifted: str | None = None
        self._is_overtaken = False
        self._is_outage = False
        self._relearned_us: int | None = None
        self._counted_changed_us: int | None = None
        self._triggers: Triggers | None = None
        self._status = TrainingStatus()
        grace_s = max(0.5, _GRACE_SHARE * settings.run.stop_timeout / 1e6)
        self._child = Child(plant, name, self.ended, turns=turns, grace_s=grace_s)

    @property
    def is_running(self) -> bool:
        """Return whether a training was started here and has not ended."""
        return self._child.is_running

    @property
    def progress(self) -> str:
        """Return the progress of the training that runs here, "" if none does; never that of a former one."""
        return progress_of(self._status, self._child.pid) if self.is_running else ""

    def accepted(self, n: int) -> None:
        """Count ``n`` more sequences that may train."""
        self._n_accepted += n

    def drifted(self, what: str) -> None:
        """Record a drift."""
        self._drifted = what

    async def start_due(self, need: Need, before: Callable[[], Awaitable[None]]) -> None:
        """Start the training that is due, if any, after ``before``. Does nothing while one runs here."""
        request = None if self.is_running else await self.due(need)
        if request is None:
            return
        await before()
        get_logger().info("training", model=self._name, reason=request.reason, detail=request.detail)
        self._status = TrainingStatus(state="running", request=request)
        self._child.start(request)

    async def due(self, need: Need) -> TrainingRequest | None:
        """Return the training that is to start now: one that waits, else one that is due, else relearning."""
        try:
            triggers = await self._known_triggers()
            request = (
                await in_thread(self._thread, self._child.waiting)
                or await self._triggered(triggers, need)
                or await self._relearning(need)
            )
        except StreamadError as error:
            if not self._is_outage:  # log an outage once
                get_logger().warning("cannot see what is to be trained", model=self._name, error=str(error))
            self._is_outage = True
            return None
        self._is_outage = False
        return request

    def ended(self, result: TrainingResult) -> None:
        """Record and emit the result of a training."""
        if self._triggers is not None:
            self._triggers.ended(result, self._clock.now_us())
        why = _WHY[result.request.reason]
        if isinstance(result, TrainingFailed):
            if result.kind == "failed":
                self._counters.trainings += 1
                self._counters.failed += 1
                self._emit("training_failed", f"{self._name} ({why}): {result.error}")
            else:
                self._is_overtaken = self._is_overtaken or result.kind == "refused"
                get_logger().info("training ended", model=self._name, kind=result.kind, reason=result.error)
            return
        self._count_from(self._clock.now_us())
        self._counters.trainings += 1
        self._counters.promotions += result.promoted
        self._counters.not_promoted += not result.promoted
        model = None if result.version is None else ModelRef(self._name, result.version)
        self._emit(
            "model_promoted" if result.promoted else "model_not_promoted",
            f"{self._name} {result.version or '(no version)'} ({why}): {result.reason}",
            model=model,
            figures=result.figures,
            level="info" if result.promoted else "warning",
        )
        if result.promoted:
            self._on_promoted()
        self._ended_with_marks(result)

    def _ended_with_marks(self, result: TrainingOutcome) -> None:
        """Emit what operators' marks have done in a training."""
        if result.n_capped:
            self._emit("feedback_capped", f"{self._name}: {result.capped}", level="warning")
        second = result.second
        if second is None:
            return
        model = None if second.version is None else ModelRef(self._name, second.version)
        kind = "waits_for_review" if second.waits else "model_promoted" if second.promoted else "model_not_promoted"
        text = f"{self._name} {second.version or '(no version)'} (with operators' marks): {second.reason}"
        self._counters.promotions += second.promoted
        level: Level = "info" if second.promoted else "warning"
        self._emit(kind, text, model=model, figures=second.figures, level=level)
        if second.promoted:
            self._on_promoted()

    async def watch(self) -> None:
        """Read the progress of a training once a second, until cancelled."""
        while True:
            await self._clock.sleep(_STATUS_S)
            if self.is_running:
                try:
                    self._status = await in_thread(self._thread, read_status, self._registry, self._name)
                except RegistryError as error:
                    get_logger().debug("training status", model=self._name, error=str(error))

    async def wait(self) -> None:
        """Return once no training runs here."""
        await self._child.wait()

    async def close(self) -> None:
        """End what runs here: it resumes at the next start. Safe to call twice."""
        await self._child.close()

    async def _known_triggers(self) -> Triggers:
        if self._triggers is None:
            status = await in_thread(self._thread, read_status, self._registry, self._name)
            self._trained_us = status.last_ended_us
            tried_us = None if failed_on_request(status.last) else status.last_ended_us
            self._triggers = Triggers(self._settings, self._clock.now_us(), tried_us)
        return self._triggers

    def _count_from(self, at_us: int) -> None:
        """Count accepted sequences anew, from the training that ended at ``at_us``."""
        self._trained_us = at_us
        self._n_accepted = self._n_new = 0
        self._counted_at = None
        self._is_overtaken = False

    async def _triggered(self, triggers: Triggers, need: Need) -> TrainingRequest | None:
        if self._is_overtaken:  # another worker trains: count from the end of its training
            status = await in_thread(self._thread, read_status, self._registry, self._name)
            ended_us = status.last_ended_us or 0
            if isinstance(status.last, TrainingOutcome) and ended_us > (self._trained_us or 0):
                self._count_from(ended_us)
        await self._count_new()
        drifted, self._drifted = self._drifted, None
        return triggers.due(
            self._clock.now_us(),
            n_accepted_new=max(self._n_accepted, self._n_new),
            n_stored=need.n_stored,
            has_model=need.has_model,
            drifted=drifted,
        )

    async def _count_new(self) -> None:
        """Count the accepted sequences since the last training in the store: of before a restart and of others, too."""
        after = self._settings.after_inliers
        if after is None or (self._counted_at is not None and self._n_accepted < self._counted_at + after / _COUNTS):
            return
        self._counted_at = self._n_accepted
        self._n_new = await in_thread(self._thread, self._stored.accepted_since, self._trained_us or 0)

    async def _relearning(self, need: Need) -> TrainingRequest | None:
        """Return the request to learn a lasting change, once enough sequences show it and the latest still do."""
        settings, now_us, changed = self._settings, self._clock.monotonic_us(), need.changed
        if settings.relearn != "auto" or changed is None or need.alert_share <= settings.drift.changed_share:
            return None
        if _is_within(now_us, self._relearned_us, _RELEARN_AGAIN_US):
            return None
        if _is_within(now_us, self._counted_changed_us, settings.flush_interval):
            return None
        self._counted_changed_us = now_us
        found = await in_thread(self._thread, self._stored.kept_since, changed.since_us)
        if found < min(settings.first_training, settings.max_aside):
            return None
        self._relearned_us = now_us
        return TrainingRequest(
            reason="relearn",
            requested_us=self._clock.now_us(),
            since_us=changed.since_us,
            detail=f"the plant has changed, {found} sequences since",
        )


def _is_within(now_us: int, then_us: int | None, span_us: int) -> bool:
    return then_us is not None and now_us - then_us < span_us
