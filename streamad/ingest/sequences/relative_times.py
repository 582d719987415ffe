"""Event times of samples whose times count from their sequence's start (``decode.time: relative``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec
import numpy as np

from streamad.errors import DecodeError
from streamad.ingest.sequences.clocks import StreamClocks
from streamad.ingest.sequences.closed_sequences import ClosedSequences, id_hash
from streamad.types import MAX_TIME_US, SampleBlock

TOO_LATE = "counted from the sequence's start, its time lies after the year 2200"
_PAUSE_US = 1_000_000


class RelativeStarts:
    """When the sequences of a stream with relative times began: their second 0 in event time.

    A sequence begins after the last sample of its stream, because whole sequences, each sent at once with its sending
    time, would overlap otherwise. Second 0 is known by the hash of the id; that without an id lies in the stream's
    clocks.

    With the end mode ``restart`` (``by_restart``) the times of all ids count from the one in the clocks, until a time
    lies below the one before. So it depends on the records alone, and rereading finds the same.
    """

    __slots__ = ("_clocks", "_closed", "_starts_us", "by_restart")

    def __init__(self, clocks: StreamClocks, closed: ClosedSequences, *, by_restart: bool) -> None:
        self._clocks = clocks
        self._closed = closed
        self._starts_us: dict[str, tuple[int, int]] = {}
        self.by_restart = by_restart

    def __bool__(self) -> bool:
        return bool(self._starts_us)

    def parts(self, block: SampleBlock) -> list[SampleBlock]:
        """Return ``block``, with the end mode ``restart`` in parts: each time below the one before begins another."""
        if not self.by_restart or block.indexes is None:
            return [block]
        order = np.argsort(block.indexes)
        times_us, values, indexes = block.times_us[order], block.values[order], block.indexes[order]
        bounds = [0, *(np.flatnonzero(times_us[1:] < times_us[:-1]) + 1).tolist(), len(block)]
        return [
            msgspec.structs.replace(
                block,
                times_us=times_us[start:stop],
                values=values[start:stop],
                indexes=indexes[start:stop],
                end=block.end and stop == len(block),
            )
            for start, stop in pairwise(bounds)
        ]

    def absolute(self, part: SampleBlock, record_us: int | None, clock_us: int) -> tuple[SampleBlock, bool]:
        """Turn times since the sequence's start into event times: its first sample has its first record's time.

        Also return whether second 0 is a new one.
        """
        known_us = self._known(part, clock_us)
        start_us = known_us
        if start_us is None:
            start_us = _begin_us(self._clocks.max_time_us, part, record_us, clock_us)
            if part.sequence is None or self.by_restart:
                self._clocks.second_0_us = start_us
            else:
                self._starts_us[id_hash(part.sequence)] = start_us, clock_us
        times_us = part.times_us + start_us
        return msgspec.structs.replace(part, times_us=times_us, relative=False), known_us is None

    def first_time_us(self, part: SampleBlock, record_us: int | None, clock_us: int) -> int:
        """Return the event time of the first sample of ``part``, whose sequence may begin now."""
        return self.second_0_us(part, record_us, clock_us) + int(part.times_us[0])

    def second_0_us(self, part: SampleBlock, record_us: int | None, clock_us: int) -> int:
        """Return the event time of second 0 of the sequence of ``part``, which may begin now."""
        start_us = self._known(part, clock_us)
        return _begin_us(self._clocks.max_time_us, part, record_us, clock_us) if start_us is None else start_us

    def _known(self, part: SampleBlock, clock_us: int) -> int | None:
        """Return the event time of second 0 for ``part``; None if a sequence begins now, perhaps once more."""
        if part.sequence is None or self.by_restart:
            current_us, newest_us = self._clocks.second_0_us, self._clocks.max_time_us
            if not self.by_restart or current_us is None or newest_us is None:
                return current_us
            return None if current_us + int(part.times_us[0]) < newest_us else current_us
        hashed = id_hash(part.sequence)
        start_us, set_us = self._starts_us.get(hashed, (None, 0))
        closed_us = self._closed.ended_us(hashed)
        recurs = closed_us is not None and set_us <= closed_us < clock_us - self._closed.memory_us
        return None if recurs else start_us

    def end_without_id(self) -> None:
        """Forget second 0 of the sequence without id: the next sample begins another one."""
        self._clocks.second_0_us = None

    def keep(self, going_on: Iterable[str | None]) -> None:
        """Forget the starts of all ids but those ``going_on``, and those whose end is remembered."""
        hashes = {id_hash(key) for key in going_on if key is not None}
        self._starts_us = {
            hashed: start
            for hashed, start in self._starts_us.items()
            if hashed in hashes or self._closed.ended_us(hashed) is not None
        }

    @property
    def saved(self) -> dict[str, tuple[int, int]]:
        """Return what progress saves of it."""
        return dict(self._starts_us)

    def restore(self, saved: Mapping[str, tuple[int, int]]) -> None:
        """Set what a progress holds."""
        self._starts_us.update(saved)

    def check(self, block: SampleBlock, record_us: int | None, clock_us: int) -> None:
        """Raise DecodeError (bad_time) if a sample would lie after the year 2200."""
        first, *others = self.parts(block)
        latest_us = self.second_0_us(first, record_us, clock_us) + int(first.times_us[-1])
        for part in others:
            latest_us = _begin_us(latest_us, part, record_us, clock_us) + int(part.times_us[-1])
        if latest_us > MAX_TIME_US:
            raise DecodeError("bad_time", TOO_LATE)


def _begin_us(newest_us: int | None, block: SampleBlock, record_us: int | None, clock_us: int) -> int:
    """Return the event time of second 0 of the sequence that ``block`` begins, after the stream's newest sample."""
    first_us = clock_us if record_us is None else record_us
    if newest_us is not None:
        first_us = max(first_us, newest_us + (_PAUSE_US if record_us is None else 1))
    return first_us - int(block.times_us[0])
