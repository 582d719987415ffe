"""The job of the training process: take the lease, open the store, retrain, report the result."""

from __future__ import annotations

import asyncio
import math
import os
import platform
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from streamad.errors import (
    ArtifactError,
    ConfigError,
    DetectorError,
    OutputError,
    Problem,
    StreamadError,
)
from streamad.learn.parts import detector_for, effort_of, registry_of, store_for
from streamad.learn.registry.owed import owed_versions
from streamad.learn.registry.pruning import prune
from streamad.learn.trainer.child import TrainerSpec
from streamad.learn.trainer.lease import Lease, LeaseRefusedError
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.trainer.requests import (
    SecondOutcome,
    TrainingFailed,
    TrainingOutcome,
    TrainingReason,
    TrainingRequest,
    TrainingResult,
    post_request,
    posted_requests,
)
from streamad.learn.trainer.retrain import Retraining, decided_before
from streamad.learn.trainer.status import StatusWriter, TrainingStatus, written_status
from streamad.plant import Plant
from streamad.plugins import plugin_failure
from streamad.ports import Clock
from streamad.safe_text import text_of
from streamad.telemetry.logs import get_logger

UNASKED: frozenset[TrainingReason] = frozenset({"first", "schedule", "inliers", "drift"})
"""Trainings that no operator requested: they are needless just after another worker's training."""
MAX_ATTEMPTS = 3


def run_job(spec: TrainerSpec, clock: Clock, lost: Callable[[], None]) -> TrainingResult:
    """Do the training of ``spec`` and return its result; if the lease is lost, ``lost`` is called in a thread.

    Every failure is a result, KeyboardInterrupt too.
    """
    failed = partial(TrainingFailed, model=spec.model, request=spec.request)
    try:
        return _Job(spec, clock).run(lost)
    except LeaseRefusedError as error:
        return failed(error=str(error), kind="refused")
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
        self._posted = None if spec.posted is None else self._training / "requests" / spec.posted

    def run(self, lost: Callable[[], None]) -> TrainingResult:
        """Train under the lease. Raises LeaseRefusedError, RegistryError, OutputError; the rest is a result."""
        spec, lease, status = self._spec, Lease(self._training, self._spec.times), None
        lease.take(self._clock.now_us())
        try:
            before = written_status(self._training)
            self._refuse_if_needless(before)
            first = self._first_status(before)
            status = StatusWriter(self._training, first, self._clock, lease.is_held)
            with lease.renewing(lost):
                if self._posted is not None:
                    self._posted.unlink(missing_ok=True)
                result = self._train(lease, status, first.attempt)
                self._prune()
                with suppress(OutputError):  # such as a full disk; the worker gets the result all the same
                    status.ended(result)
            return result
        except KeyboardInterrupt:
            if status is None:
                raise
            status.interrupted()
            text = "the training was interrupted: it resumes at the next start"
            return TrainingFailed(model=spec.model, error=text, request=spec.request, kind="interrupted")
        finally:
            lease.release()

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

    def _refuse_if_needless(self, before: TrainingStatus) -> None:
        spec = self._spec
        if self._posted is not None and not self._posted.exists():
            raise LeaseRefusedError("another worker has taken this request on")
        if spec.resumes:
            if before.state == "idle" or before.request != spec.request:
                raise LeaseRefusedError("another worker has taken the interrupted training up")
        elif spec.request.reason == "first" and self._registry.current(spec.model) is not None:
            raise LeaseRefusedError("another worker has trained the first model")
        elif spec.request.reason in UNASKED and isinstance(before.last, TrainingOutcome):
            ago_us = self._clock.now_us() - (before.last_ended_us or 0)
            if 0 <= ago_us < self._learning.min_interval:
                raise LeaseRefusedError(
                    f"another worker has trained the model {ago_us / 6e7:.0f} min ago: see min_interval"
                )

    def _first_status(self, before: TrainingStatus) -> TrainingStatus:
        """Return the status to begin with; an operator's request that was interrupted is posted again, not lost."""
        spec, former, attempt = self._spec, before.request, 1
        if former is not None and before.state != "idle":
            if former == spec.request:
                attempt = before.attempt + (before.state == "running")  # its process died without saving its state
            elif former.reason not in {*UNASKED, spec.request.reason}:  # the later of two requests alike replaces it
                post_request(self._registry, spec.model, former)
        return TrainingStatus(
            state="running",
            request=spec.request,
            attempt=attempt,
            phase="preparing",
            started_us=self._clock.now_us(),
            pid=os.getpid(),
            host=platform.node(),
            last=before.last,
            last_started_us=before.last_started_us,
            last_ended_us=before.last_ended_us,
        )

    def _train(self, lease: Lease, status: StatusWriter, attempt: int) -> TrainingResult:
        spec = self._spec
        try:
            if attempt > MAX_ATTEMPTS and (decided := self._decided_alone()) is not None:
                return decided
            if attempt > MAX_ATTEMPTS:
                raise DetectorError(
                    f"the training process died {MAX_ATTEMPTS} times without an error (out of memory?): "
                    "lower learning.max_accepted, or give it more memory"
                )
            return finite(self._retrain(lease, status))
        except StreamadError as error:
            text = one_line(error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a detector is foreign code; its error is a result
            traceback.print_exc(file=sys.stderr)
            text = plugin_failure(error) or one_line(error)
        return TrainingFailed(model=spec.model, error=text, request=spec.request)

    def _retrain(self, lease: Lease, status: StatusWriter) -> TrainingOutcome:
        spec = self._spec
        is_first = spec.request.reason == "first"
        outcome = (self._promoted_before() if is_first else None) or self._retraining(lease, status).run()
        if is_first and outcome.promoted:
            self._ask_for_the_effort()
        return outcome

    def _retraining(self, lease: Lease, status: StatusWriter) -> Retraining:
        spec = self._spec
        store = store_for(self._plant, spec.model)
        store.open()
        return Retraining(
            store=store,
            detector=detector_for(self._plant, effort="quick" if spec.request.reason == "first" else None),
            settings=spec.settings,
            model=spec.model,
            registry=self._registry,
            clock=self._clock,
            request=spec.request,
            prove=proved_in_new_process,
            progress=status.on_step,
            holds_lease=lease.is_held,
            resumes=spec.resumes,
        )

    def _decided_alone(self) -> TrainingOutcome | None:
        """Return the first challenger's outcome if it was decided before the process died over the second one."""
        decided = decided_before(self._registry, self._spec.model, self._spec.request)
        if decided is None:
            return None
        reason = f"it could not be trained: the training process died {MAX_ATTEMPTS} times (out of memory?)"
        second = SecondOutcome(version=None, promoted=False, waits=False, reason=reason)
        return finite(msgspec.structs.replace(decided, second=second))

    def _promoted_before(self) -> TrainingOutcome | None:
        """Return the outcome of a first training whose process died after the promotion: it is not done twice."""
        spec, version = self._spec, self._registry.current(self._spec.model)
        try:
            manifest = None if version is None else self._registry.manifest(spec.model, version)
        except ArtifactError:  # it cannot serve either: train
            return None
        if manifest is None or manifest.learning is None or manifest.learning.reason != "first":
            return None
        reason = "promoted before its process died" if manifest.decision is None else manifest.decision.reason
        return TrainingOutcome(model=spec.model, version=version, promoted=True, reason=reason, request=spec.request)

    def _ask_for_the_effort(self) -> None:
        """Post the request for a training with the configured effort, once."""
        spec, effort = self._spec, effort_of(self._spec.settings.model)
        posted = {each.reason for each in posted_requests(self._registry, spec.model).values()}
        if effort not in (None, "quick") and "effort" not in posted:
            detail = f"effort {effort}, after a quick first training"
            request = TrainingRequest(reason="effort", requested_us=self._clock.now_us(), detail=detail)
            post_request(self._registry, spec.model, request)


def finite(outcome: TrainingOutcome) -> TrainingOutcome:
    """Return ``outcome`` without figures that JSON has no form for."""

    def only(figures: Mapping[str, float]) -> dict[str, float]:
        return {name: value for name, value in figures.items() if math.isfinite(value)}

    second = outcome.second
    if second is not None:
        second = msgspec.structs.replace(second, figures=only(second.figures))
    return msgspec.structs.replace(outcome, figures=only(outcome.figures), second=second)
