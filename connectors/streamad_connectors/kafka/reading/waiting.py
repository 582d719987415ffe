"""Waiting for records: notices about long waits, and an error once no record can be expected any more."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from streamad.errors import SourceError
from streamad.system import tasks
from streamad.types import SourceNotice
from streamad_connectors.kafka.client.options import Client
from streamad_connectors.kafka.reading.reader import Reader, Reading

TICK_S = 0.25  # interval of checks for outages, silence and stops
_HELD_S = 60.0
_OUTAGE_S = 5.0


async def wait_for_either(wake: asyncio.Event, task: asyncio.Task[Any]) -> None:
    """Return once ``wake`` is set or ``task`` is done, after a tick at the latest; clears ``wake``."""
    await tasks.wait_for_either(wake, task, timeout_s=TICK_S)
    wake.clear()


class Waiting:
    """Watches how long ``reader`` waits for records, up to ``give_up_s``."""

    def __init__(self, reader: Reader, client: Client, give_up_s: float) -> None:
        self._reader = reader
        self._client = client
        self._give_up_s = give_up_s
        self._checked_s = time.monotonic()
        self._held_ones: set[str] = set()
        self._is_outage_reported = False

    def is_due(self) -> bool:
        """Return whether a tick has passed since the last check."""
        return time.monotonic() - self._checked_s >= TICK_S

    def check(self) -> list[SourceNotice]:
        """Return notices for the operator; call when all delivered records are taken.

        Time without calls (no caller waited) does not count. Raises SourceError if no fetch was answered, or
        none of the waiting records was delivered, for ``give_up_s``.
        """
        now_s = time.monotonic()
        self._reader.wait(min(now_s - self._checked_s, 2 * TICK_S))
        self._checked_s = now_s
        if (failure := self._reader.failure()) is not None:
            raise SourceError("reading from Kafka has ended by an error of its client: restart") from failure
        notices = []
        for reading in self._reader.readings:
            if reading.silent_s > self._give_up_s:
                raise SourceError(
                    f"broker {self._brokers} has not answered for {reading.silent_s:.0f} s (partition {reading.name}): "
                    "is it running?"
                )
            if reading.stuck_s > self._give_up_s:
                raise SourceError(
                    f"partition {reading.name}: records from offset {reading.next_offset} on wait, but broker "
                    f"{self._brokers} has delivered none for {reading.stuck_s:.0f} s: restart, and look at its log"
                )
            notices += self._held(reading)
        return notices + self._outage()

    def _outage(self) -> list[SourceNotice]:
        """Return a notice when the brokers fall silent, and one when they are back."""
        silent_s = max((reading.silent_s for reading in self._reader.readings), default=0.0)
        if silent_s > _OUTAGE_S and not self._is_outage_reported:
            self._is_outage_reported = True
            limit = f"up to {self._give_up_s:.0f} s"
            text = f"broker {self._brokers} has not answered for {silent_s:.0f} s: waiting for it, {limit}"
            return [SourceNotice("broker_silent", text)]
        if self._is_outage_reported and silent_s < _OUTAGE_S:
            self._is_outage_reported = False
            return [SourceNotice("broker_back", f"broker {self._brokers} answers again")]
        return []

    def _held(self, reading: Reading) -> list[SourceNotice]:
        if reading.held_s < _HELD_S:
            self._held_ones.discard(reading.name)
        elif reading.name not in self._held_ones:
            self._held_ones.add(reading.name)
            text = (
                f"records from offset {reading.next_offset} on are held back by a transaction that its producer has "
                f"neither committed nor aborted for {reading.held_s:.0f} s"
            )
            return [SourceNotice("open_transaction", text, reading.name)]
        return []

    @property
    def _brokers(self) -> str:
        return ", ".join(self._client.place.brokers)
