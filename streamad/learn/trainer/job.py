"""What the trainer's process does: take the lease, open the store, retrain, and say what came of it."""

from __future__ import annotations

import math
import os
import platform
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from streamad.errors import ConfigError, DetectorError, OutputError, Problem, StreamadError
from streamad.learn.parts import detector_for, registry_of, store_for
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.child import TrainerSpec, settings_from_json
from streamad.learn.trainer.lease import Heartbeat, Lease, LeaseRecord, LeaseRefusedError, take_lease
from streamad.learn.trainer.requests import (
    TrainingFailed,
    TrainingOutcome,
    TrainingReason,
    TrainingResult,
    post_request,
)
from streamad.learn.trainer.retrain import retrain
from streamad.learn.trainer.status import StatusWriter, TrainingStatus, written_status
from streamad.plant import Plant
from streamad.ports import Clock
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import Settings

UNASKED: frozenset[TrainingReason] = frozenset({"first", "schedule", "inliers", "drift"})
"""Trainings that nobody asked for: another worker's training a moment ago makes them needless."""
MAX_ATTEMPTS = 3


def run_job(spec: TrainerSpec, clock: Clock, lost: Callable[[], None]) -> TrainingResult:
    """Do the training of ``spec`` and return what came of it; ``lost`` is called, in a thread, where the lease is lost.

    Whatever goes wrong is a result, KeyboardInterrupt too.
    """
    try:
        return _Job(spec, clock).run(lost)
    except LeaseRefusedError as error:
        return TrainingFailed(model=spec.model, error=str(error), request=spec.request, kind="refused")
    except StreamadError as error:
        return TrainingFailed(model=spec.model, error=one_line(error), request=spec.request)
    except KeyboardInterrupt:
        text = "the training was interrupted before it had begun"
        return TrainingFailed(model=spec.model, error=text, request=spec.request, kind="interrupted")


def one_line(error: BaseException) -> str:
    """Return the text of ``error`` on one line; that of a foreign error with its kind."""
    text = " ".join(str(error).split())
    return text if isinstance(error, StreamadError) else f"the training failed: {type(error).__name__}: {text}"


class _Job:
    def __init__(self, spec: TrainerSpec, clock: Clock) -> None:
        self._spec = spec
        self._clock = clock
        self._settings = settings_from_json(spec.settings)
        self._learning = _learning(self._settings)
        self._plant = Plant(self._settings, Path(spec.base_dir), clock)
        self._registry: Registry = registry_of(self._plant)
        self._training = self._registry.training_folder(spec.model)
        self._status: StatusWriter | None = None

    def run(self, lost: Callable[[], None]) -> TrainingResult:
        """Train under the lease. Raises LeaseRefusedError, RegistryError, OutputError; the rest is a result."""
        spec = self._spec
        lease = take_lease(
            self._training, spec.request, prepare=self._prepare, since_us=self._clock.now_us(), times=spec.times
        )
        assert self._status is not None, "prepared"
        try:
            with Heartbeat(lease, spec.times.renew_s, lost):
                if spec.posted is not None:
                    (self._training / "requests" / spec.posted).unlink(missing_ok=True)
                result = self._train(lease, self._status)
                with suppress(OutputError):  # such as a full disk; the worker is told all the same
                    self._status.ended(result)
            return result
        except KeyboardInterrupt:
            self._status.interrupted()
            text = "the training was interrupted: it goes on at the next start"
            return TrainingFailed(model=spec.model, error=text, request=spec.request, kind="interrupted")
        finally:
            lease.release()

    def _prepare(self, former: LeaseRecord | None, status_path: Path) -> int:
        """Refuse what is needless by now, else write the first status and return the number of the attempt."""
        spec, now_us = self._spec, self._clock.now_us()
        before = None if former is None else written_status(self._training, former)
        self._check(former, before, now_us)
        attempt = 1
        if former is not None and before is not None and before.state != "idle":
            if former.request == spec.request:
                attempt = former.attempt + (before.state == "running")  # it died without a word
            elif former.request.reason not in {*UNASKED, spec.request.reason}:  # else the later word counts
                post_request(self._registry, spec.model, former.request)  # else what somebody asked for would be lost
        last = before or TrainingStatus()
        status = TrainingStatus(
            state="running",
            request=spec.request,
            attempt=attempt,
            phase="preparing",
            started_us=now_us,
            pid=os.getpid(),
            host=platform.node(),
            last=last.last,
            last_started_us=last.last_started_us,
            last_ended_us=last.last_ended_us,
        )
        self._status = StatusWriter(status_path, status, self._clock)
        self._status.begin()
        return attempt

    def _check(self, former: LeaseRecord | None, before: TrainingStatus | None, now_us: int) -> None:
        spec = self._spec
        if spec.posted is not None and not (self._training / "requests" / spec.posted).exists():
            raise LeaseRefusedError("another worker has taken this request on")
        if spec.resumes is not None:
            if former is None or former.token != spec.resumes:
                raise LeaseRefusedError("another worker has taken the interrupted training up")
        elif spec.request.reason == "first" and self._registry.current(spec.model) is not None:
            raise LeaseRefusedError("another worker has trained the first model")
        elif spec.request.reason in UNASKED and before is not None and isinstance(before.last, TrainingOutcome):
            ago_us = now_us - (before.last_ended_us or 0)
            if 0 <= ago_us < self._learning.min_interval:
                raise LeaseRefusedError(
                    f"another worker has trained the model {ago_us / 6e7:.0f} min ago: see min_interval"
                )

    def _train(self, lease: Lease, status: StatusWriter) -> TrainingResult:
        spec = self._spec
        try:
            if lease.record.attempt > MAX_ATTEMPTS:
                raise DetectorError(
                    f"the training process died {MAX_ATTEMPTS} times without a word (out of memory?): "
                    "lower learning.max_accepted, or give it more memory"
                )
            return _finite(self._retrain(lease, status))
        except StreamadError as error:
            text = one_line(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a detector is foreign code; the worker must hear of it
            traceback.print_exc(file=sys.stderr)
            text = one_line(error)
        return TrainingFailed(model=spec.model, error=text, request=spec.request)

    def _retrain(self, lease: Lease, status: StatusWriter) -> TrainingOutcome:
        settings, spec = self._settings, self._spec
        store = store_for(self._plant, spec.model)
        store.open()
        return retrain(
            store,
            detector_for(self._plant),
            settings=settings,
            model=spec.model,
            registry=self._registry,
            clock=self._clock,
            request=spec.request,
            progress=status.on_step,
            holds_lease=lease.is_held,
        )


def _learning(settings: Settings) -> LearningSettings:
    if settings.learning is None:
        raise ConfigError([Problem("learning", "is not set: without it, models are trained by `streamad train` alone")])
    return settings.learning


def _finite(outcome: TrainingOutcome) -> TrainingOutcome:
    """Return ``outcome`` without figures that JSON has no form for."""
    figures = {name: value for name, value in outcome.figures.items() if math.isfinite(value)}
    return msgspec.structs.replace(outcome, figures=figures)
