"""When a model trains, and what an operator hears of it: triggers and requests to the training process, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from streamad.drift.lasting_change import Changed
from streamad.errors import RegistryError, StreamadError
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.child import Retrainer
from streamad.learn.trainer.requests import (
    TrainingFailed,
    TrainingOutcome,
    TrainingReason,
    TrainingRequest,
    TrainingResult,
)
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.learn.trainer.triggers import Triggers
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.settings.learning import LearningSettings
from streamad.system.threads import in_thread
from streamad.telemetry.events import Emit
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import LearningCounters

_RELEARN_AGAIN_US = 3_600_000_000
_GRACE_SHARE = 0.8
_STATUS_S = 1.0
_LOOKS = 10  # into the store, while the sequences that after_inliers asks for come in

_WHY: Mapping[TrainingReason, str] = {
    "first": "first training",
    "schedule": "scheduled training",
    "inliers": "training after new inliers",
    "drift": "training after drift",
    "command": "training asked for",
    "relearn": "learning anew",
}


@dataclass(frozen=True, slots=True)
class Need:
    """What decides whether to train: sequences accepted and reserved, and what has become of the plant.

    ``alert_share``: of the latest sequences; a change that they no longer show is none to learn.
    """

    n_stored: int
    has_model: bool
    changed: Changed | None = None
    alert_share: float = 0.0


class StoreCounts(Protocol):
    """What the inlier store holds by now; called in a thread."""

    def kept_since(self, since_us: int) -> int:
        """Return how many sequences that ended since ``since_us`` are stored. Raises StoreError."""
        ...

    def accepted_since(self, stored_us: int) -> int:
        """Return how many accepted sequences were stored after ``stored_us``, by whomever. Raises StoreError."""
        ...


class Trainings:
    """Trains the model ``name`` when it is due, asked for, or was interrupted; one training at a time.

    ``counters`` count them; ``on_new`` is called after a promotion. Files are read in ``thread``, ``stored`` too;
    ``turns`` is shared by those that take turns.
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
        on_new: Callable[[], None],
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
        self._on_new = on_new
        self._n_accepted = 0
        self._n_new = 0
        self._counted_at: int | None = None
        self._trained_us: int | None = None
        self._drifted: str | None = None
        self._is_overtaken = False
        self._is_blind = False
        self._relearned_us: int | None = None
        self._looked_us: int | None = None
        self._triggers: Triggers | None = None
        self._status = TrainingStatus()
        grace_s = max(0.5, _GRACE_SHARE * settings.run.stop_timeout / 1e6)
        self._retrainer = Retrainer(plant, name, self.ended, turns=turns, grace_s=grace_s)

    @property
    def is_running(self) -> bool:
        """Return whether a training was started here and has not ended."""
        return self._retrainer.is_running

    @property
    def progress(self) -> str:
        """Return how far the training is that runs here, "" where none does; never how far a former one was."""
        if not self.is_running:
            return ""
        status = self._status
        if status.state != "running" or status.pid is None or status.pid != self._retrainer.pid:
            return "training, starting"
        fit = f", fit {status.fit}/{status.n_fits}" if status.n_fits > 1 else ""
        epoch = f", epoch {status.epoch}/{status.n_epochs}" if status.n_epochs else ""
        return f"training{fit}{epoch}"

    def accepted(self, n: int) -> None:
        """Note that ``n`` more sequences may train."""
        self._n_accepted += n

    def drifted(self, what: str) -> None:
        """Note that something has drifted."""
        self._drifted = what

    async def start_due(self, need: Need, before: Callable[[], Awaitable[None]]) -> None:
        """Start what is to be trained now, if anything, after ``before``. Does nothing while a training runs here."""
        if self.is_running:
            return
        try:
            triggers = await self._known_triggers()
            request = (
                await in_thread(self._thread, self._retrainer.waiting)
                or await self._due(triggers, need)
                or await self._relearning(need)
            )
        except StreamadError as error:
            if not self._is_blind:  # once for an outage
                get_logger().warning("cannot see what is to be trained", model=self._name, error=str(error))
            self._is_blind = True
            return
        self._is_blind = False
        if request is None:
            return
        await before()
        get_logger().info("training", model=self._name, reason=request.reason, detail=request.detail)
        self._status = TrainingStatus(state="running", request=request)
        self._retrainer.start(request)

    def ended(self, result: TrainingResult) -> None:
        """Tell what came of a training."""
        if self._triggers is not None:
            self._triggers.ended(result, self._clock.now_us())
        why = _WHY[result.request.reason]
        if isinstance(result, TrainingFailed):
            if result.kind == "failed":
                self._counters.trainings += 1
                self._emit("training_failed", f"{self._name} ({why}): {result.error}")
            else:
                self._is_overtaken = self._is_overtaken or result.kind == "refused"
                get_logger().info("training ended", model=self._name, kind=result.kind, reason=result.error)
            return
        self._trained(self._clock.now_us())
        self._counters.trainings += 1
        self._counters.promotions += result.promoted
        self._emit(
            "model_promoted" if result.promoted else "model_not_promoted",
            f"{self._name} {result.version or '(no version)'} ({why}): {result.reason}",
            model=None if result.version is None else ModelRef(self._name, result.version),
            figures=result.figures,
            level="info" if result.promoted else "warning",
        )
        if result.promoted:
            self._on_new()

    async def watch(self) -> None:
        """Follow how far a training is, until cancelled."""
        while True:
            await self._clock.sleep(_STATUS_S)
            if self.is_running:
                try:
                    self._status = await in_thread(self._thread, read_status, self._registry, self._name)
                except RegistryError as error:
                    get_logger().debug("training status", model=self._name, error=str(error))

    async def wait(self) -> None:
        """Return once no training runs here."""
        await self._retrainer.wait()

    async def close(self) -> None:
        """End what runs here: it goes on at the next start. Safe to call twice."""
        await self._retrainer.close()

    async def _known_triggers(self) -> Triggers:
        if self._triggers is None:
            status = await in_thread(self._thread, read_status, self._registry, self._name)
            self._trained_us = status.last_ended_us
            self._triggers = Triggers(self._settings, self._clock.now_us(), status.last_ended_us)
        return self._triggers

    def _trained(self, at_us: int) -> None:
        """Count anew from the training that ended at ``at_us``."""
        self._trained_us = at_us
        self._n_accepted = self._n_new = 0
        self._counted_at = None
        self._is_overtaken = False

    async def _follow_others(self) -> None:
        """After a refusal, take over the training of another worker, as soon as it has come to its end."""
        status = await in_thread(self._thread, read_status, self._registry, self._name)
        ended_us = status.last_ended_us
        if isinstance(status.last, TrainingOutcome) and ended_us is not None and ended_us > (self._trained_us or 0):
            self._trained(ended_us)

    async def _due(self, triggers: Triggers, need: Need) -> TrainingRequest | None:
        if self._is_overtaken:
            await self._follow_others()
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
        """Look how many may train that were stored since the last training: before a restart, too, and by others."""
        after = self._settings.after_inliers
        if after is None or (self._counted_at is not None and self._n_accepted < self._counted_at + after / _LOOKS):
            return
        self._counted_at = self._n_accepted
        self._n_new = await in_thread(self._thread, self._stored.accepted_since, self._trained_us or 0)

    async def _relearning(self, need: Need) -> TrainingRequest | None:
        """Return the request that a lasting change calls for, once enough was seen of the new state and it lasts."""
        now_us, changed = self._clock.monotonic_us(), need.changed
        if self._settings.relearn != "auto" or changed is None:
            return None
        if need.alert_share <= self._settings.drift.changed_share:
            return None
        if self._relearned_us is not None and now_us - self._relearned_us < _RELEARN_AGAIN_US:
            return None
        if self._looked_us is not None and now_us - self._looked_us < self._settings.flush_interval:
            return None
        self._looked_us = now_us
        wanted = min(self._settings.first_training, self._settings.max_aside)
        found = await in_thread(self._thread, self._stored.kept_since, changed.since_us)
        if found < wanted:
            return None
        self._relearned_us = now_us
        return TrainingRequest(
            reason="relearn",
            requested_us=self._clock.now_us(),
            since_us=changed.since_us,
            detail=f"the plant has changed, {found} sequences since",
        )
