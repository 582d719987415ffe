"""The metrics of a worker, served beside its pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from cronsim import CronSim, CronSimError

from streamad.errors import StreamadError
from streamad.judge.bank import Batchers
from streamad.judge.explainer import Explainer
from streamad.judge.scoring import ModelInService
from streamad.learn.parts import registry_of
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.runtime.metrics import MetricsServer, Observed, ServedModel, WorkerCollector
from streamad.runtime.pipeline import Pipeline
from streamad.system.threads import LoneThread
from streamad.telemetry.events import EventLog
from streamad.types import from_us, to_us

_LOOK_US = 60_000_000
_WAIT_S = 0.2
_Trained: TypeAlias = tuple[int | None, int | None]
"""When a version was trained, and the newest one of its model."""


@asynccontextmanager
async def metrics_beside(
    plant: Plant,
    pipeline: Pipeline,
    batchers: Batchers,
    explainer: Explainer | None,
    events: EventLog,
    *,
    listen: str,
    shares_topic: bool,
) -> AsyncIterator[None]:
    """Serve the metrics of a worker at ``listen`` during the block. Raises OutputError."""
    served = _Served(plant)
    observed = Observed(
        pipeline=pipeline,
        models=lambda: [served.of(model) for model in batchers.models],
        events=events.counts,
        now_us=plant.clock.now_us,
        scoring=batchers.durations,
        explaining=None if explainer is None else explainer.durations,
        shares_topic=shares_topic,
    )

    def is_ready() -> bool:
        """Return whether a group was joined; a source of files is ready at once."""
        return not shares_topic or bool(pipeline.status.partitions) or pipeline.counters.rebalances > 0

    server = MetricsServer(listen, WorkerCollector(observed), is_ready)
    try:
        yield
    finally:
        await server.close()
        served.close()


class _Served:
    """Describes the models in service from the registry, which is looked at once a minute at most.

    That takes a thread of its own: the store of a registry may not answer for long, and the loop must not wait.
    """

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._registry = registry_of(plant)
        self._thread = LoneThread("streamad-metrics-registry")
        self._looks: dict[ModelRef, tuple[int, Future[_Trained]]] = {}
        self._found: dict[ModelRef, _Trained] = {}
        schedule = None if plant.settings.learning is None else plant.settings.learning.schedule
        self._interval_s = None if schedule is None else _interval_s(schedule, plant.clock.now_us())

    def of(self, model: ModelInService) -> ServedModel:
        alerts = self._plant.settings.alerts
        trained_us, last_training_us = self._times_of(model.ref)
        return ServedModel(
            model.ref,
            alerts.false_alarm_rate,
            n_calibration=len(model.calibration.scores),
            trained_us=trained_us,
            last_training_us=last_training_us,
            interval_s=self._interval_s,
            warning_rate=None if alerts.early is None or model.early is None else alerts.early.false_alarm_rate,
        )

    def _times_of(self, ref: ModelRef) -> _Trained:
        """Return what is known by now; what a slow store has not said yet, a later scrape shows."""
        now_us = self._plant.clock.monotonic_us()
        looked_us, look = self._looks.get(ref, (0, None))
        if look is None or (look.done() and now_us - looked_us > _LOOK_US):
            look = self._thread.submit(self._looked, ref)
            self._looks[ref] = now_us, look
        with suppress(TimeoutError, CancelledError):
            self._found[ref] = look.result(_WAIT_S)
        return self._found.get(ref, (None, None))

    def _looked(self, ref: ModelRef) -> _Trained:
        return self._trained_us(ref.name, ref.version), self._trained_us(ref.name, None)

    def close(self) -> None:
        """End the thread without waiting for a look."""
        self._thread.shutdown(cancel_futures=True)

    def _trained_us(self, name: str, version: str | None) -> int | None:
        """Return when a version was trained, None: the newest one; None if it cannot be read."""
        with suppress(StreamadError, IndexError):
            wanted = self._registry.versions(name)[-1] if version is None else version
            return to_us(self._registry.manifest(name, wanted).created_at)
        return None


def _interval_s(schedule: str, now_us: int) -> float | None:
    """Return the time between the next two trainings of a cron expression, None if there are none."""
    coming = CronSim(schedule, from_us(now_us))
    with suppress(StopIteration, CronSimError):
        first = next(coming)
        return (next(coming) - first).total_seconds()
    return None
