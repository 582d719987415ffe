"""The trainings of one model: triggers and requests start the process, its results become events."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import msgspec

from streamad.decisions.recording import LEARNER, DecisionLog
from streamad.drift.lasting_change import Changed
from streamad.errors import ArtifactError, RegistryError, StreamadError
from streamad.learn.parts import effort_of
from streamad.learn.promotion.review import waiting_version
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import TrainingReason, TrainingRequest
from streamad.learn.trainer.child import Child
from streamad.learn.trainer.results import TrainingFailed, TrainingOutcome, TrainingResult
from streamad.learn.trainer.status import TrainingStatus, progress_of, read_status
from streamad.learn.trainer.triggers import Triggers, failed_on_request
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.settings.learning import LearningSettings
from streamad.system.tasks import Backoff
from streamad.system.threads import in_thread
from streamad.telemetry.events import Emit, Level
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import LearningCounters
from streamad.types import from_us

_RELEARN_AGAIN_US = 3_600_000_000
_GRACE_SHARE = 0.8
_STATUS_S = 1.0
_CHANGED_AGAIN_US = 10_000_000
_RETRY_US = 10_000_000
_LONGEST_PAUSE_US = 3_600_000_000

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


class Trainings:
    """Trains the model ``name`` when it is due, requested, or was interrupted; one training at a time.

    ``counters`` count them. Files and ``store`` are read in ``thread``; models that share ``turns`` train one after the
    other. A request is answered once its training has ended with a result, so a kill at any moment repeats none.
    """

    def __init__(
        self,
        name: str,
        plant: Plant,
        registry: Registry,
        *,
        store: InlierStore,
        thread: Executor,
        emit: Emit,
        counters: LearningCounters,
        turns: asyncio.Semaphore,
    ) -> None:
        settings = plant.settings
        assert settings.learning is not None
        # Above 15 attributes: ten are given; the others are when the next training is due and what the present one
        # waits for, which one loop decides: apart, each change of one would have to be told to the other.
        self._name = name
        self._plant = plant
        self._settings: LearningSettings = settings.learning
        self._registry = registry
        self._store = store
        self._thread = thread
        self._clock = plant.clock
        self._emit = emit
        self._counters = counters
        self._turns = turns
        self._n_accepted = 0
        self._drifted: str | None = None
        self._is_outage = False
        self._is_closed = False
        self._relearned_us: int | None = None
        self._counted_changed_us: int | None = None
        self._effort_known_of: str | None = None
        self._triggers: Triggers | None = None
        self._status = TrainingStatus()
        self._task: asyncio.Task[None] | None = None
        self._has_turn = False
        self._not_before_us = self._clock.monotonic_us()
        self._pause = Backoff(_RETRY_US, _LONGEST_PAUSE_US)
        self._child = Child(plant, name)
        self._grace_s = max(0.5, _GRACE_SHARE * settings.run.stop_timeout / 1e6)

    @property
    def is_running(self) -> bool:
        """Return whether a training was started here and has not ended."""
        return self._task is not None and not self._task.done()

    @property
    def progress(self) -> str:
        """Return the progress of the training that runs here, "" if none does; never that of a former one."""
        return progress_of(self._status, self._child.pid) if self.is_running else ""

    def accepted(self, n: int) -> None:
        """Count ``n`` more sequences that may train, once they are stored."""
        self._n_accepted += n

    def drifted(self, what: str) -> None:
        """Record a drift."""
        self._drifted = what

    async def start_due(self, need: Need, *, only_waiting: bool = False) -> None:
        """Start the training that is due, if any. Does nothing while one runs here.

        ``only_waiting``: one that a person has asked for, or whose process died.
        """
        if self.is_running or self._is_closed:
            return
        request = await (self._due_of_those_that_wait() if only_waiting else self.due(need))
        if request is not None and self.start(request):
            get_logger().info("training", model=self._name, reason=request.reason, detail=request.detail)

    def start(self, request: TrainingRequest) -> bool:
        """Start a training; False if one runs here, or after ``close``."""
        if self.is_running or self._is_closed:
            return False
        self._status = TrainingStatus(state="running", request=request)
        self._has_turn = False
        self._task = asyncio.create_task(self._train(request))
        return True

    async def due(self, need: Need) -> TrainingRequest | None:
        """Return the training that is to start now: one that waits, else one that is due, else relearning."""
        try:
            triggers = await self._known_triggers()
            if await in_thread(self._thread, self._is_trained_elsewhere):
                return None
            request = (
                await in_thread(self._thread, self.waiting)
                or self._triggered(triggers, need)
                or await self._relearning(need)
            )
        except StreamadError as error:
            if not self._is_outage:  # log an outage once
                get_logger().warning("cannot see what is to be trained", model=self._name, error=str(error))
            self._is_outage = True
            return None
        self._is_outage = False
        return request

    async def _due_of_those_that_wait(self) -> TrainingRequest | None:
        if await in_thread(self._thread, self._is_trained_elsewhere):
            return None
        waiting = await in_thread(self._thread, self.waiting)
        return waiting if waiting is not None and await in_thread(self._thread, self.is_waiting) else None

    def has_first(self) -> bool:
        """Return whether a first version was made; it may wait for people, and then it is not made again.

        Raises RegistryError.
        """
        if self._registry.current(self._name) is not None:
            return True
        return self._registry.needs_approvals and waiting_version(self._registry, self._name, None) is not None

    def is_waiting(self) -> bool:
        """Return whether a training that a person has asked for, or whose process died, has no result yet.

        Raises RegistryError, StoreError.
        """
        status = read_status(self._registry, self._name)
        if status.state == "running" or _is_interrupted(status):
            return True
        done = "" if status.last is None else status.last.request.id
        return any(each.reason != "effort" and each.id != done for each in self._store.requests())

    def _is_trained_elsewhere(self) -> bool:
        """Return whether a process works that was not started here: that of a killed learner saves how far it is."""
        return read_status(self._registry, self._name).state == "running"

    def waiting(self) -> TrainingRequest | None:
        """Return an interrupted training, else the first request without an answer; none for a while after a failure.

        A request whose training has ended with a result is answered first, so that it is not trained twice. Raises
        RegistryError, StoreError.
        """
        status = read_status(self._registry, self._name)
        requests = self._store.requests()
        if status.last is not None and any(each.id == status.last.request.id for each in requests):
            self._store.answered(status.last.request.id)
        self._ask_for_the_effort()
        if self._clock.monotonic_us() < self._not_before_us:
            return None
        if _is_interrupted(status):
            return status.request
        waiting = next(iter(self._store.requests()), None)
        # It trains on what is stored now, not when it was asked for.
        return None if waiting is None else msgspec.structs.replace(waiting, requested_us=self._clock.now_us())

    def _ask_for_the_effort(self) -> None:
        """After a quick first training ask for one with the configured effort, once for each such version."""
        version = self._registry.current(self._name)
        if version is None or version == self._effort_known_of:
            return
        if (effort := effort_of(self._plant.settings.model)) in (None, "quick"):
            return
        try:
            record = self._registry.manifest(self._name, version).learning
        except (ArtifactError, RegistryError):
            return
        if record is not None and record.reason == "first":
            detail = f"effort {effort}, after a quick first training"
            now_us = self._clock.now_us()
            self._store.ask(
                TrainingRequest(id=f"effort-{version}", reason="effort", requested_us=now_us, detail=detail)
            )
        self._effort_known_of = version

    async def _train(self, request: TrainingRequest) -> None:
        async with self._turns:
            self._has_turn = True
            result = await self._child.train(request)
        if isinstance(result, TrainingFailed):
            self._not_before_us = self._clock.monotonic_us() + self._pause.pause_us
            self._pause.failed()
        else:
            self._pause.reset()
        self.ended(result)
        if isinstance(result, TrainingFailed) and result.kind == "failed" and request.reason in ("command", "relearn"):
            # Also one whose process never began, and so has written nothing: it must not hold up later requests.
            await in_thread(self._thread, self._store.answered, request.id)

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
            elif not self._is_closed:
                self._emit("training_interrupted", f"{self._name} ({why}): {result.error}")
            return
        self._n_accepted = 0
        self._counters.trainings += 1
        self._counters.promotions += result.promoted
        self._counters.not_promoted += not result.promoted
        model = None if result.version is None else ModelRef(self._name, result.version)
        kind = "waits_for_review" if result.waits else "model_promoted" if result.promoted else "model_not_promoted"
        self._emit(
            kind,
            f"{self._name} {result.version or '(no version)'} ({why}): {result.reason}",
            model=model,
            figures=result.figures,
            level="info" if result.promoted else "warning",
        )
        self._ended_without_looks(result.version, result.without_looks)
        self._ended_with_marks(result)

    def _ended_without_looks(self, version: str | None, why: str) -> None:
        if why:
            model = None if version is None else ModelRef(self._name, version)
            text = f"{self._name} {version or '(no version)'} warns of no running sequence: {why}"
            self._emit("no_looks", text, model=model, level="warning")

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
        self._ended_without_looks(second.version, second.without_looks)

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
        if self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """End what runs here, in the grace that it has to save its state, or by SIGKILL; it resumes at the next start.

        Safe to call twice.
        """
        self._is_closed = True
        if self._task is None:
            return
        if not self._has_turn:
            self._task.cancel()
        self._child.end()
        await asyncio.wait({self._task}, timeout=self._grace_s)
        self._child.send(signal.SIGKILL)
        await self.wait()

    async def _known_triggers(self) -> Triggers:
        if self._triggers is None:
            status = await in_thread(self._thread, read_status, self._registry, self._name)
            trained_us = status.last_ended_us
            # Those of before this start count, too; ``accepted`` has counted a part of them.
            self._n_accepted = await in_thread(self._thread, self._store.count_accepted_after, trained_us or 0)
            self._triggers = Triggers(
                self._settings, self._clock.now_us(), None if failed_on_request(status.last) else trained_us
            )
        return self._triggers

    def _triggered(self, triggers: Triggers, need: Need) -> TrainingRequest | None:
        drifted, self._drifted = self._drifted, None
        return triggers.due(
            self._clock.now_us(),
            n_accepted_new=self._n_accepted,
            n_stored=need.n_stored,
            has_model=need.has_model,
            drifted=drifted,
        )

    async def _relearning(self, need: Need) -> TrainingRequest | None:
        """Return the request to learn a lasting change, once enough sequences show it and the latest still do."""
        settings, now_us, changed = self._settings, self._clock.monotonic_us(), need.changed
        if settings.relearn != "auto" or changed is None or need.alert_share <= settings.drift.changed_share:
            return None
        if _is_within(now_us, self._relearned_us, _RELEARN_AGAIN_US):
            return None
        if _is_within(now_us, self._counted_changed_us, _CHANGED_AGAIN_US):
            return None
        self._counted_changed_us = now_us
        found = await in_thread(self._thread, self._store.count_since, changed.since_us)
        if found < min(settings.first_training, settings.limit("aside")):
            return None
        why = f"the plant has changed, {found} sequences since"
        decided = LEARNER.decides("relearn", self._name, why, since=from_us(changed.since_us))
        await asyncio.to_thread(DecisionLog(self._plant).record, LEARNER, decided)
        self._relearned_us = now_us
        return TrainingRequest(
            reason="relearn", requested_us=self._clock.now_us(), since_us=changed.since_us, detail=why
        )


def _is_interrupted(status: TrainingStatus) -> bool:
    """Return whether a training has no result: a stop at its very end may say so of one that has."""
    return status.state == "interrupted" and (status.last is None or status.last.request != status.request)


def _is_within(now_us: int, then_us: int | None, span_us: int) -> bool:
    return then_us is not None and now_us - then_us < span_us
