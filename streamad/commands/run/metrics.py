"""The metrics of a worker, served beside its pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

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
from streamad.telemetry.events import EventLog
from streamad.types import from_us, to_us

_LOOK_US = 60_000_000


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


class _Served:
    """Describes the models in service from the registry, whose files are looked at once a minute at most."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._registry = registry_of(plant)
        self._found: dict[ModelRef, tuple[int, ServedModel]] = {}
        schedule = None if plant.settings.learning is None else plant.settings.learning.schedule
        self._interval_s = None if schedule is None else _interval_s(schedule, plant.clock.now_us())

    def of(self, model: ModelInService) -> ServedModel:
        now_us = self._plant.clock.monotonic_us()
        looked_us, found = self._found.get(model.ref, (0, None))
        if found is None or now_us - looked_us > _LOOK_US:
            alerts = self._plant.settings.alerts
            found = ServedModel(
                model.ref,
                alerts.false_alarm_rate,
                n_calibration=len(model.calibration.scores),
                trained_us=self._trained_us(model.ref.name, model.ref.version),
                last_training_us=self._trained_us(model.ref.name, None),
                interval_s=self._interval_s,
                warning_rate=None if alerts.early is None or model.early is None else alerts.early.false_alarm_rate,
            )
            self._found[model.ref] = now_us, found
        return found

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
