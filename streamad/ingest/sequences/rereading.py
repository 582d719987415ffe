"""Rereading: after a restart the records from the low watermark on are read again, and must do what they did at first.

What repeats by itself: everything that records cause, since the clocks start as they were. What must be saved: which
samples are done, and the ends that no record caused (the wall clock, the memory limit).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from streamad.ingest.sequences.closed_sequences import Closed
from streamad.partition_progress import ForcedEnd, Progress, StreamProgress
from streamad.types import Position

MAX_FORCED_ENDS = 1_000


class StreamRereading:
    """What rereading needs to know of one stream beside its samples, and ``done_below``, which stands at the stream.

    ``in_flight``: sequences that have ended and whose verdict is not durable, in the order of their ends. ``forced``:
    the ends that no record caused, in order, the newest ones. ``retired_at``: the stream was forgotten before the
    record at this offset.
    """

    __slots__ = ("forced", "in_flight", "retired_at")

    def __init__(self) -> None:
        self.in_flight: dict[tuple[str | None, Position], Closed] = {}
        self.forced: list[ForcedEnd] = []
        self.retired_at: int | None = None

    def ended(self, closed: Closed) -> None:
        """Note a finished sequence; it is in flight until its verdict is committed."""
        self.in_flight[closed.key, closed.sequence.first_position] = closed

    def committed(self, closed: Closed) -> bool:
        """Note that the verdict of ``closed`` is durable; return whether it was in flight here."""
        return self.in_flight.pop((closed.key, closed.sequence.first_position), None) is not None

    def force(self, end: ForcedEnd) -> None:
        """Note a forced end for a restart; of the wall-clock times at one offset only the last one counts."""
        last = self.forced[-1] if self.forced else None
        if last is not None and None not in (last.clock_us, end.clock_us) and last.offset == end.offset:
            self.forced.pop()
        self.forced.append(end)
        del self.forced[:-MAX_FORCED_ENDS]

    def take_back(self, end: ForcedEnd) -> None:
        """Remove ``end`` if it is the last one: a record causes it as well."""
        if self.forced and self.forced[-1] is end:
            self.forced.pop()


class Rereading:
    """The second reading of a partition's records; over from the start if there was no first one.

    Records below ``below`` were read before. Law: each forced end of the first reading is repeated once, before the
    first record at or above its offset, in the order of the offsets.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        saved: dict[str, StreamProgress] = {} if progress is None else progress.streams
        self.below = 0 if progress is None else progress.next_offset
        self._streams = frozenset(saved)
        waiting = [(end.offset, name, end) for name, stream in saved.items() for end in stream.forced]
        self._waiting = sorted(waiting, key=itemgetter(0))[::-1]

    @property
    def is_repeating(self) -> bool:
        """Return whether forced ends are still to be repeated."""
        return bool(self._waiting)

    @property
    def waiting_streams(self) -> set[str]:
        """Return the streams with forced ends that are not repeated yet."""
        return {name for _, name, _ in self._waiting}

    def waiting_of(self, stream: str) -> tuple[ForcedEnd, ...]:
        """Return the forced ends of ``stream`` that are not repeated yet."""
        return tuple(end for _, name, end in reversed(self._waiting) if name == stream)

    def take_due(self, offset: int) -> Iterator[tuple[str, ForcedEnd]]:
        """Remove and yield the forced ends due before the record at ``offset``, with the names of their streams."""
        while self._waiting and self._waiting[-1][0] <= offset:
            _, name, end = self._waiting.pop()
            yield name, end

    def knew(self, stream: str, offset: int) -> bool:
        """Return whether the record at ``offset`` is read again, and the first reading admitted ``stream``."""
        return offset < self.below and stream in self._streams
