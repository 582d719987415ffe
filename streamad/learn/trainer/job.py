"""The job of the training process: lock the model's training, open the store, retrain, report the result."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import traceback
from contextlib import suppress
from functools import partial

import msgspec

from streamad.errors import (
    ConfigError,
    DetectorError,
    OutputError,
    Problem,
    StreamadError,
)
from streamad.learn.parts import detector_for, registry_of, store_for
from streamad.learn.registry.owed import owed_versions
from streamad.learn.registry.pruning import prune
from streamad.learn.trainer.challenge import Workshop
from streamad.learn.trainer.child import TrainerSpec
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.trainer.results import SecondOutcome, TrainingFailed, TrainingOutcome, TrainingResult
from streamad.learn.trainer.retrain import Retraining, decided_before
from streamad.learn.trainer.status import StatusWriter, TrainingStatus, lock_of, written_status
from streamad.plant import Plant
from streamad.plugins import plugin_failure
from streamad.ports import Clock
from streamad.safe_text import text_of
from streamad.system.files import writing
from streamad.system.locks import locked
from streamad.system.opening import STATE_FOLDER
from streamad.telemetry.logs import get_logger

MAX_ATTEMPTS = 3
_LOCK_S = 30.0


def run_job(spec: TrainerSpec, clock: Clock) -> TrainingResult:
    """Do the training of ``spec`` and return its result. Every failure is a result, KeyboardInterrupt too."""
    failed = partial(TrainingFailed, model=spec.model, request=spec.request)
    try:
        return _Job(spec, clock).run()
    except StreamadError as error:
        return failed(error=one_line(error))
    except KeyboardInterrupt:
        return failed(error="the training was interrupted before it had begun", kind="interrupted")


def one_line(error: BaseException) -> str:
    """Return the text of ``error`` on one line; that of a foreign error with its kind."""
    text = " ".join(text_of(error).split())
    return text if isinstance(error, StreamadError) else f"the training failed: {type(error).__name__}: {text}"


class _Job:
    def __init__(self, spec: TrainerSpec, clock: Clock) -> None:
        if spec.settings.learning is None:
            problem = "is not set: without it, models are trained by `streamad train` alone"
            raise ConfigError([Problem("learning", problem)])
        self._spec = spec
        self._clock = clock
        self._learning = spec.settings.learning
        self._plant = Plant(spec.settings, spec.base_dir, clock)
        self._registry = registry_of(self._plant)
        self._training = self._registry.training_folder(spec.model)

    def run(self) -> TrainingResult:
        """Train while no other process trains the model. Raises RegistryError, OutputError; the rest is a result."""
        spec, status = self._spec, None
        with writing(self._training):
            self._training.mkdir(STATE_FOLDER, parents=True, exist_ok=True)
        busy = f"a training of the model already runs ({self._training}): wait for its end, it is tried again"
        with locked(lock_of(self._training), busy=busy, timeout_s=_LOCK_S):
            try:
                before = written_status(self._training)
                resumes = before.state != "idle" and before.request == spec.request
                first = self._first_status(before, resumes=resumes)
                status = StatusWriter(self._training, first, self._clock)
                result = self._train(status, first.attempt, resumes=resumes)
                self._prune()
                with suppress(OutputError):  # such as a full disk; the learner gets the result all the same
                    status.ended(result)
                return result
            except KeyboardInterrupt:
                if status is None:
                    raise
                status.interrupted()
                text = "the training was interrupted: it resumes at the next start"
                return TrainingFailed(model=spec.model, error=text, request=spec.request, kind="interrupted")

    def _prune(self) -> None:
        """Remove old versions as ``model.keep`` says; a failure changes nothing about the training's result."""
        keep = self._spec.settings.model.keep
        if keep is None:
            return
        model = self._spec.model
        try:
            if len(self._registry.versions(model)) <= keep:
                return
            owed = asyncio.run(owed_versions(self._plant, model))
            removed = prune(self._registry, model, keep=keep, owed=owed)
        except StreamadError as error:
            get_logger().warning("old versions were not removed", model=self._spec.model, error=str(error))
            return
        if removed:
            get_logger().info("old versions removed", model=self._spec.model, versions=list(removed))

    def _first_status(self, before: TrainingStatus, *, resumes: bool) -> TrainingStatus:
        """Return the status to begin with; a process that died without saving its state has used up an attempt."""
        spec = self._spec
        attempt = before.attempt + (before.state == "running") if resumes else 1
        return TrainingStatus(
            state="running",
            request=spec.request,
            attempt=attempt,
            phase="preparing",
            started_us=self._clock.now_us(),
            pid=os.getpid(),
            host=platform.node(),
            last=before.last,
            last_ended_us=before.last_ended_us,
        )

    def _train(self, status: StatusWriter, attempt: int, *, resumes: bool) -> TrainingResult:
        spec = self._spec
        try:
            if attempt > MAX_ATTEMPTS and (decided := self._decided_alone()) is not None:
                return decided
            if attempt > MAX_ATTEMPTS:
                raise DetectorError(
                    f"the training process died {MAX_ATTEMPTS} times without an error (out of memory?): "
                    "lower learning.max_training, or give it more memory"
                )
            return self._retraining(status, resumes=resumes).run()
        except StreamadError as error:
            text = one_line(error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a detector is foreign code; its error is a result
            traceback.print_exc(file=sys.stderr)
            text = plugin_failure(error) or one_line(error)
        return TrainingFailed(model=spec.model, error=text, request=spec.request)

    def _retraining(self, status: StatusWriter, *, resumes: bool) -> Retraining:
        spec = self._spec
        store = store_for(self._plant, spec.model)
        store.open_to_read()
        workshop = Workshop(
            detector=detector_for(self._plant, effort="quick" if spec.request.reason == "first" else None),
            settings=spec.settings,
            model=spec.model,
            registry=self._registry,
            clock=self._clock,
            prove=proved_in_new_process,
            progress=status.on_step,
        )
        return Retraining(store=store, workshop=workshop, request=spec.request, resumes=resumes)

    def _decided_alone(self) -> TrainingOutcome | None:
        """Return the first challenger's outcome if it was decided before the process died over the second one."""
        decided = decided_before(self._registry, self._spec.model, self._spec.request)
        if decided is None:
            return None
        reason = f"it could not be trained: the training process died {MAX_ATTEMPTS} times (out of memory?)"
        second = SecondOutcome(version=None, promoted=False, waits=False, reason=reason)
        return msgspec.structs.replace(decided, second=second)
