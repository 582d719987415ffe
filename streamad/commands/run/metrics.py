"""The metrics of a worker, served beside its pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from streamad.errors import StreamadError
from streamad.judge.explainer import Explainer
from streamad.judge.scoring import Batchers, ModelInService
from streamad.learn.parts import registry_of
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.runtime.pipeline import Pipeline
from streamad.telemetry.events import EventLog
from streamad.types import to_us


@asynccontextmanager
async def metrics_beside(
    plant: Plant,
    pipeline: Pipeline,
    batchers: Batchers,
    explainer: Explainer | None,
    events: EventLog,
    *,
    shares_topic: bool,
) -> AsyncIterator[None]:
    """Serve the metrics of a worker during the block, if the config says where. Raises OutputError."""
    listen = plant.settings.metrics.listen
    if listen is None:
        yield
        return
    from streamad.runtime.metrics.collector import Observed, ServedModel, WorkerCollector  # noqa: PLC0415 - 0.1 s
    from streamad.runtime.metrics.server import MetricsServer  # noqa: PLC0415

    registry = registry_of(plant)
    known: dict[ModelRef, ServedModel] = {}

    def served(model: ModelInService) -> ServedModel:
        if model.ref not in known:
            trained_us = None
            with suppress(StreamadError):  # it serves all the same
                trained_us = to_us(registry.manifest(model.ref.name, model.ref.version).created_at)
            rate, n = plant.settings.alerts.false_alarm_rate, len(model.calibration.scores)
            known[model.ref] = ServedModel(model.ref, rate, n, trained_us)
        return known[model.ref]

    observed = Observed(
        pipeline=pipeline,
        models=lambda: [served(model) for model in batchers.models],
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
