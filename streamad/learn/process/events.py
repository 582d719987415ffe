"""The learner's events: shown at once, and written to the place that ``learner_events_url`` names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from streamad.errors import StreamadError
from streamad.messages import Event
from streamad.plant import Plant
from streamad.plugins import connect_sink, split_url
from streamad.ports import Sink
from streamad.settings.places import file_of, learner_events_url
from streamad.system.clock import pause
from streamad.system.files import cut_torn_line
from streamad.system.output_files import output_files
from streamad.telemetry.events import Emit, EventLog
from streamad.telemetry.logs import get_logger

_WRITE_S = 1.0


class LearnerEvents:
    """Shows each event at once (``on_event``) and writes it within a second, at least once.

    If a write fails, all of it is written again: some of it may be there already. The next start cuts off a line that a
    kill has torn: only one learner writes here, and no reader has seen a line without its end.
    """

    def __init__(self, plant: Plant, on_event: Callable[[Event], None] | None = None) -> None:
        self._plant = plant
        self._url = learner_events_url(plant.settings)
        self._log = EventLog(plant.settings.name, plant.clock, on_event)
        self.emit: Emit = self._log.emit
        self.counts = self._log.counts
        """Events emitted so far, by kind."""
        self._writing: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._sink: Sink | None = None
        self._is_failing = False

    async def __aenter__(self) -> LearnerEvents:
        """Raises PluginError, ConfigError, OutputError."""
        if self._url is not None:
            path = file_of(self._url, self._plant.base_dir)
            if path is not None and (files := output_files(path)):
                await asyncio.to_thread(cut_torn_line, files[-1].path)
            self._sink = self._connected()
            self._writing = asyncio.create_task(self._write_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        if self._writing is not None:
            await self._writing
        if self._sink is not None:
            await self._sink.close()

    def _connected(self) -> Sink:
        assert self._url is not None
        options = self._plant.settings.sinks.options.get(split_url(self._url)[0], {})
        return connect_sink(self._url, options, self._plant.context, "sinks.events")

    async def _write_on(self) -> None:
        is_ending = False
        while not is_ending:
            await pause(_WRITE_S, self._plant.clock, self._ending)
            is_ending = self._ending.is_set()
            await self._write()

    async def _write(self) -> None:
        if not (events := self._log.take()):
            return
        try:
            self._sink = self._sink or self._connected()
            await self._sink.write(self._log.records(events))
            await self._sink.flush()
            self._is_failing = False
        except StreamadError as error:
            if not self._is_failing:
                get_logger().warning("events are not written yet", reason=str(error), events=len(events))
            self._is_failing = True
            self._log.give_back(events)
            await self._drop_sink()

    async def _drop_sink(self) -> None:
        """Begin anew with the next write: after a failure a sink may take no more, or keep what it was given."""
        sink, self._sink = self._sink, None
        if sink is not None:
            with suppress(StreamadError):
                await sink.close()
