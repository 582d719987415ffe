"""Event times of samples whose times count from their sequence's start (``decode.time: relative``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from streamad.errors import DecodeError
from streamad.ingest.sequences.clocks import StreamClocks
from streamad.ingest.sequences.closed_sequences import ClosedSequences, id_hash
from streamad.types import MAX_TIME_US, SampleBlock

TOO_LATE = "counted from the sequence's start, its time lies after the year 2200"
_PAUSE_US = 1_000_000


class RelativeStarts:
    """When the sequences of a stream with relative times began: their second 0 in event time, by the hash of the id.

    A sequence begins after the last sample of its stream, because whole sequences, each sent at once with its sending
    time, would overlap otherwise.
    """

    __slots__ = ("_clocks", "_closed", "_starts_us")

    def __init__(self, clocks: StreamClocks, closed: ClosedSequences) -> None:
        self._clocks = clocks
        self._closed = closed
        self._starts_us: dict[str | None, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._starts_us)

    def absolute(self, block: SampleBlock, record_us: int | None, clock_us: int) -> SampleBlock:
        """Turn times since the sequence's start into event times: its first sample has its first record's time."""
        start_us = self._known(block.sequence, clock_us)
        if start_us is None:
            start_us = _begin_us(self._clocks.max_time_us, block, record_us, clock_us)
            self._starts_us[_hashed(block.sequence)] = start_us, clock_us
        return msgspec.structs.replace(block, times_us=block.times_us + start_us, relative=False)

    def second_0_us(self, block: SampleBlock, record_us: int | None, clock_us: int) -> int:
        """Return the event time of second 0 of the sequence of ``block``, which may begin now."""
        start_us = self._known(block.sequence, clock_us)
        return _begin_us(self._clocks.max_time_us, block, record_us, clock_us) if start_us is None else start_us

    def _known(self, key: str | None, clock_us: int) -> int | None:
        """Return the event time of second 0 of the sequence ``key``; None if it begins now, perhaps once more."""
        hashed = _hashed(key)
        start_us, set_us = self._starts_us.get(hashed, (None, 0))
        closed_us = self._closed.ended_us(hashed or "")
        recurs = closed_us is not None and set_us <= closed_us < clock_us - self._closed.memory_us
        return None if recurs else start_us

    def end_without_id(self) -> None:
        """Forget the start of the sequence without id: the next sample begins another one."""
        self._starts_us.pop(None, None)

    def keep(self, going_on: Iterable[str | None]) -> None:
        """Forget the starts of all sequences but those ``going_on``, and those whose end is remembered."""
        hashes = {id_hash(key) for key in going_on if key is not None}
        self._starts_us = {
            key: start
            for key, start in self._starts_us.items()
            if key is None or key in hashes or self._closed.ended_us(key) is not None
        }

    @property
    def saved(self) -> dict[str, tuple[int, int]]:
        """Return what progress saves of it."""
        return {hashed: start for hashed, start in self._starts_us.items() if hashed is not None}

    def restore(self, saved: Mapping[str, tuple[int, int]]) -> None:
        """Set what a progress holds."""
        self._starts_us.update(saved)


def check_times(starts: RelativeStarts | None, block: SampleBlock, record_us: int | None, clock_us: int) -> None:
    """Raise DecodeError (bad_time) if a sample would lie after the year 2200; ``starts``: None if its stream is new."""
    if starts is None:
        start_us = _begin_us(None, block, record_us, clock_us)
    else:
        start_us = starts.second_0_us(block, record_us, clock_us)
    if start_us + int(block.times_us[-1]) > MAX_TIME_US:
        raise DecodeError("bad_time", TOO_LATE)


def _hashed(key: str | None) -> str | None:
    return None if key is None else id_hash(key)


def _begin_us(newest_us: int | None, block: SampleBlock, record_us: int | None, clock_us: int) -> int:
    """Return the event time of second 0 of the sequence that ``block`` begins, after the stream's newest sample."""
    first_us = clock_us if record_us is None else record_us
    if newest_us is not None:
        first_us = max(first_us, newest_us + (_PAUSE_US if record_us is None else 1))
    return first_us - int(block.times_us[0])
