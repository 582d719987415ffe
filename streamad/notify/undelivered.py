"""What is said of notices that were given up: a line in the log, and an event in a place of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from streamad.errors import StreamadError
from streamad.messages import Event, OutputRecord
from streamad.plant import Plant
from streamad.plugins import connect_sink, split_url
from streamad.ports import Sink
from streamad.safe_text import masked
from streamad.system.files import append_lines
from streamad.telemetry.logs import get_status_logger
from streamad.types import from_us

KEY = "notify.undelivered"
_BUSY = "end that one, or name a file of its own (notify.undelivered)"


class Undelivered:
    """Logs events about notices, and writes them to ``notify.undelivered`` if there is one."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._url = plant.settings.notify.undelivered

    async def emit(
        self, kind: str, message: str, *, stream: str | None = None, figures: Mapping[str, float] | None = None
    ) -> None:
        """Log an event as an error, and write it; a place that cannot be written is one more error in the log."""
        event = Event(
            kind=kind,
            message=masked(message),
            stream=stream,
            figures=dict(figures or {}),
            created_at=from_us(self._plant.clock.now_us()),
        )
        log = get_status_logger().bind(plant=self._plant.settings.name)
        log.error(kind, message=event.message, **({} if stream is None else {"stream": stream}), **event.figures)
        if self._url is None:
            return
        try:
            await self._write(self._url, event)
        except StreamadError as error:
            log.error("event_not_written", place=KEY, why=str(error))

    async def _write(self, url: str, event: Event) -> None:
        scheme, rest, _ = split_url(url)
        if scheme == "file":
            line = msgspec.json.encode(event) + b"\n"
            await asyncio.to_thread(append_lines, self._plant.base_dir / rest, line, busy=_BUSY)
            return
        sink = undelivered_sink(self._plant, url)
        try:
            await sink.write([OutputRecord("events", event.stream or "", event)])
            await sink.flush()
        finally:
            await sink.close()


def undelivered_sink(plant: Plant, url: str) -> Sink:
    """Return the sink of ``notify.undelivered``. Raises PluginError, ConfigError, OutputError."""
    options = plant.settings.sinks.options.get(split_url(url)[0], {})
    return connect_sink(url, options, plant.context, KEY)
