"""The clocks of a stream. They alone decide which samples are late, which wait, and what silence ends."""

from __future__ import annotations

from typing import NamedTuple

from streamad.partition_progress import NOTHING_STANDS, Standing
from streamad.settings.plant_yaml import SequenceSettings

NEVER_US = 1 << 62


class Clocks(NamedTuple):
    """A stream's and its partition's clocks before a record, from which rereading starts.

    ``record_us`` is the partition's clock with that record, None if it has no time of its own and is the first.
    ``second_0_us`` and ``standing``: see ``StreamClocks``.
    """

    max_time_us: int | None
    floor_us: int | None
    last_record_us: int | None
    partition_us: int | None
    record_us: int | None
    second_0_us: int | None = None
    standing: Standing = NOTHING_STANDS


class StreamClocks:
    """The clocks of a stream; each is None until something has set it.

    ``max_time_us`` is the newest event time, ``floor_us`` the event time through which waiting samples were released,
    and ``last_record_us`` the partition's clock with the stream's last record. ``second_0_us`` is the event time from
    which relative times without an id count now (``RelativeStarts``), ``standing`` what words and tags have said
    (``StreamBoundaries``).

    Law: they depend on the records alone, not on commits. Rereading starts from the saved ones and decides the same.
    """

    __slots__ = ("_settings", "floor_us", "last_record_us", "max_time_us", "second_0_us", "standing")

    def __init__(self, settings: SequenceSettings) -> None:
        self._settings = settings
        self.max_time_us: int | None = None
        self.floor_us: int | None = None
        self.last_record_us: int | None = None
        self.second_0_us: int | None = None
        self.standing = NOTHING_STANDS

    def before(self, partition_us: int | None, record_us: int | None) -> Clocks:
        """Return the clocks before a record; for the arguments see ``Clocks``."""
        newest_us, floor_us, last_us = self.max_time_us, self.floor_us, self.last_record_us
        return Clocks(newest_us, floor_us, last_us, partition_us, record_us, self.second_0_us, self.standing)

    # --- event time: what is late ---

    @property
    def watermark_us(self) -> int | None:
        """Return the time below which a sample is late; None before the first one."""
        if self.max_time_us is None:
            return None
        watermark = self.max_time_us - self._settings.allowed_lateness
        return watermark if self.floor_us is None else max(watermark, self.floor_us)

    @property
    def is_waiting(self) -> bool:
        """Return whether late samples may still precede the newest one."""
        if not self._settings.allowed_lateness or self.max_time_us is None:
            return False
        return self.floor_us is None or self.floor_us < self.max_time_us

    # --- the partition's clock: what silence ends ---

    def wait_end_us(self) -> int:
        """Return the partition clock after which no late sample is waited for any more."""
        return NEVER_US if self.last_record_us is None else self.last_record_us + self._settings.allowed_lateness

    def silence_end_us(self, since_us: int) -> int:
        """Return the partition clock after which silence ends a sequence that began at the clock ``since_us``."""
        end_us = since_us + self._settings.max_duration
        if self._settings.gap is not None and self.last_record_us is not None:
            end_us = min(end_us, self.last_record_us + self._settings.gap)
        return end_us + self._settings.allowed_lateness

    def forget_us(self, memory_us: int) -> int:
        """Return the partition clock after which silence has ended everything, and ``memory_us`` has passed as well."""
        if self.last_record_us is None or self.max_time_us is None:
            return NEVER_US
        newest_us = max(self.last_record_us, self.max_time_us)
        gap, max_duration = self._settings.gap, self._settings.max_duration
        longest_silence = max_duration if gap is None else min(gap, max_duration)
        return newest_us + longest_silence + self._settings.allowed_lateness + memory_us
