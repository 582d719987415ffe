"""Notices that were given up: a line in the log, and an event in a place of its own."""

from __future__ import annotations

from collections.abc import Mapping

from streamad.errors import StreamadError
from streamad.messages import Event, OutputRecord
from streamad.outputs.sending import send
from streamad.plant import Plant
from streamad.safe_text import masked
from streamad.telemetry.logs import get_status_logger
from streamad.types import from_us

KEY = "notify.undelivered"


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
            await send(self._plant, self._url, [OutputRecord("events", stream or "", event)], KEY)
        except StreamadError as error:
            log.error("event_not_written", place=KEY, why=str(error))
