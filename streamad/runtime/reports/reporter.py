"""Writes the status of this worker beside its pipeline, which it can neither delay nor end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from streamad.errors import StreamadError
from streamad.judge.routing import Router
from streamad.messages import ModelRef, Running, WorkerStatus
from streamad.plant import Plant
from streamad.plugins import failure_of
from streamad.runtime.pipeline import Pipeline
from streamad.runtime.reports.open_sequences import Open, newest_of_each, open_sequences, running
from streamad.runtime.reports.place import StatusPlace, status_place
from streamad.runtime.status import worker_name
from streamad.system.tasks import is_stop
from streamad.telemetry.logs import get_logger
from streamad.types import from_us

_WRITE_S = 30.0
_LAST_S = 2.0
_MOST_CURVES_BYTES = 4_000_000
_AT_ONCE = 8
"""So many curves are taken before other tasks get a turn."""


class Reporter:
    """Writes a status when it begins, then every ``display.status_interval``, and a last one at a clean end.

    An outage is one warning; the next interval tries again. ``models`` returns those in service.
    """

    def __init__(
        self,
        plant: Plant,
        pipeline: Pipeline,
        models: Callable[[], Sequence[ModelRef]],
        place: StatusPlace | None = None,
    ) -> None:
        self._plant, self._pipeline, self._models = plant, pipeline, models
        self._place = place or status_place(plant)
        self._instance = worker_name(plant.settings)
        self._router = Router.of(plant.settings)
        self._started_us = plant.clock.now_us()
        self._is_warned = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, if the config has a place for it."""
        if self._place is not None:
            self._task = asyncio.create_task(self._run())

    async def close(self, *, is_clean: bool) -> None:
        """End, after a last status if ``is_clean``; takes a few seconds at most, and raises nothing but a stop."""
        task, self._task = self._task, None
        if task is None or self._place is None:
            return
        task.cancel()
        await asyncio.wait([task], timeout=_LAST_S)
        if is_clean:
            await self._tell(_LAST_S, stopped=True)
        with suppress(StreamadError, TimeoutError, OSError):
            async with asyncio.timeout(_LAST_S):
                await self._place.close()

    async def _run(self) -> None:
        while True:
            await self._tell(_WRITE_S)
            await self._plant.clock.sleep(self._plant.settings.display.status_interval / 1e6)

    async def _tell(self, limit_s: float, *, stopped: bool = False) -> None:
        """Write the status; whatever fails is reported once, until a status is written again."""
        assert self._place is not None
        try:
            async with asyncio.timeout(limit_s):
                found = [] if stopped else open_sequences(self._pipeline.status.partitions.values())
                curves = await self._curves_of(found)
                await self._place.put(self._status(found, stopped=stopped), curves)
            self._is_warned = False
        except BaseException as error:  # sinks are foreign code, and the run must go on
            if is_stop(error):
                raise
            if not self._is_warned:
                why = f"no answer in {limit_s:g} s" if isinstance(error, TimeoutError) else _text(error)
                get_logger().warning("the status of this worker is not written", why=why)
            self._is_warned = True

    def _status(self, found: Sequence[Open], *, stopped: bool) -> WorkerStatus:
        pipeline, settings = self._pipeline, self._plant.settings
        counters, partitions = pipeline.counters, pipeline.status.partitions.values()
        p50_ms, p99_ms = pipeline.status.latencies_told.take_ms()
        return WorkerStatus(
            instance=self._instance,
            started_at=from_us(self._started_us),
            interval_s=settings.display.status_interval / 1e6,
            stopped=stopped,
            partitions=len(partitions),
            lag=pipeline.status.lag(partitions),
            records=counters.records,
            samples=counters.samples,
            verdicts=dict(counters.verdicts),
            alerts=counters.alerts,
            dead_letters=sum(counters.dead_letters.values()),
            waiting_verdicts=sum(len(partition.in_flight) for partition in partitions),
            waiting_attributions=sum(partition.payments.owes for partition in partitions),
            latency_p50_ms=p50_ms,
            latency_p99_ms=p99_ms,
            models=list(self._models()),
            n_open=sum(partition.intake.open_sequences for partition in partitions),
            open=[one.message() for one in found],
            created_at=from_us(self._plant.clock.now_us()),
        )

    async def _curves_of(self, found: Sequence[Open]) -> Sequence[Running]:
        """Return the readings so far, of each stream's newest open sequence."""
        settings, clock = self._plant.settings, self._plant.clock
        if not settings.display.open or not found:
            return []
        curves: list[Running] = []
        n_bytes = 0
        for number, one in enumerate(newest_of_each(found)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            curve = running(one, self._instance, settings.channel_specs, clock.now_us(), self._router)
            if curve is not None:
                n_bytes += len(curve.values)
                if n_bytes > _MOST_CURVES_BYTES:
                    break
                curves.append(curve)
        return curves


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, StreamadError) else failure_of(error)
