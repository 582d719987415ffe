"""The learner's events: to the plant's topic of events, or to a file beside its store where events are a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType

from streamad.errors import StreamadError
from streamad.messages import Event, ModelRef
from streamad.plant import Plant
from streamad.plugins import connect_sink, split_url
from streamad.ports import Sink
from streamad.settings.places import file_path, sink_urls
from streamad.telemetry.events import EventLog, Level
from streamad.telemetry.logs import get_logger

_WRITE_S = 1.0


def events_url(plant: Plant) -> str | None:
    """Return where the learner's events go, None if the plant keeps none.

    A file of events is a worker's: its checkpoint cuts it back, so nobody else may write there.
    """
    url = sink_urls(plant.settings).get("events")
    if url is None or file_path(url) is None or plant.settings.learning is None:
        return url
    return f"{plant.settings.learning.store.rstrip('/')}.events.jsonl"


class LearnerEvents:
    """Shows each event at once (``on_event``) and writes it within a second, at least once."""

    def __init__(self, plant: Plant, on_event: Callable[[Event], None] | None = None) -> None:
        self._plant = plant
        self._log = EventLog(plant.settings.name, plant.clock, on_event)
        self._writing: asyncio.Task[None] | None = None
        self._sink: Sink | None = None

    def emit(
        self,
        kind: str,
        message: str,
        *,
        model: ModelRef | None = None,
        figures: Mapping[str, float] | None = None,
        level: Level = "warning",
    ) -> None:
        """Emit an event: see ``EventLog.emit``."""
        self._log.emit(kind, message, model=model, figures=figures, level=level)

    async def __aenter__(self) -> LearnerEvents:
        url = events_url(self._plant)
        if url is not None:
            options = self._plant.settings.sinks.options.get(split_url(url)[0], {})
            self._sink = connect_sink(url, options, self._plant.context, "sinks.events")
            self._writing = asyncio.create_task(self._write_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        try:
            await self._write()
        finally:
            if self._sink is not None:
                await self._sink.close()

    async def _write_on(self) -> None:
        while True:
            await self._plant.clock.sleep(_WRITE_S)
            await self._write()

    async def _write(self) -> None:
        events = self._log.take()
        if self._sink is None or not events:
            return
        try:
            await self._sink.write(self._log.records(events))
            await self._sink.flush()
        except StreamadError as error:
            get_logger().warning("events not written yet", reason=str(error), events=len(events))
            self._log.give_back(events)
