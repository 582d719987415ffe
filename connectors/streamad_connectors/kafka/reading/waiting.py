"""Waiting for records: it ends where nothing can be expected any more, and says so where it takes long."""

from __future__ import annotations

import time

from streamad.errors import SourceError
from streamad.types import SourceNotice
from streamad_connectors.kafka.client.options import Client
from streamad_connectors.kafka.reading.reader import Reader, Reading

# Outages, silence and stops are looked for this often.
TICK_S = 0.25
_HELD_S = 60.0
_OUTAGE_S = 5.0


class Waiting:
    """What must not go unnoticed while ``reader`` waits for records, up to ``give_up_s``."""

    def __init__(self, reader: Reader, client: Client, give_up_s: float) -> None:
        self._reader = reader
        self._client = client
        self._give_up_s = give_up_s
        self._checked_s = time.monotonic()
        self._told: set[str] = set()
        self._is_outage_told = False

    def is_due(self) -> bool:
        """Return whether a tick has passed since the last check."""
        return time.monotonic() - self._checked_s >= TICK_S

    def check(self) -> list[SourceNotice]:
        """Return what an operator should know; call when every record that was delivered is taken.

        Time during which it was not called (nobody wanted records) does not count. Raises SourceError where no fetch
        was answered, or none of the records that wait was delivered, for ``give_up_s``.
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
        """Tell once that the brokers are silent, and once that they are back."""
        silent_s = max((reading.silent_s for reading in self._reader.readings), default=0.0)
        if silent_s > _OUTAGE_S and not self._is_outage_told:
            self._is_outage_told = True
            limit = f"up to {self._give_up_s:.0f} s"
            text = f"broker {self._brokers} has not answered for {silent_s:.0f} s: waiting for it, {limit}"
            return [SourceNotice("broker_silent", text)]
        if self._is_outage_told and silent_s < _OUTAGE_S:
            self._is_outage_told = False
            return [SourceNotice("broker_back", f"broker {self._brokers} answers again")]
        return []

    def _held(self, reading: Reading) -> list[SourceNotice]:
        if reading.held_s < _HELD_S:
            self._told.discard(reading.name)
        elif reading.name not in self._told:
            self._told.add(reading.name)
            text = (
                f"records from offset {reading.next_offset} on are held back by a transaction that its producer has "
                f"neither committed nor aborted for {reading.held_s:.0f} s"
            )
            return [SourceNotice("open_transaction", text, reading.name)]
        return []

    @property
    def _brokers(self) -> str:
        return ", ".join(self._client.place.brokers)
