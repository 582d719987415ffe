"""Ends that no record caused, repeated at their offsets while records are read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter

from streamad.partition_progress import ForcedEnd, StreamProgress


class Repeats:
    """The forced ends of a progress that are not repeated yet, in the order of their offsets."""

    def __init__(self, streams: Mapping[str, StreamProgress]) -> None:
        waiting = [(end.offset, name, end) for name, stream in streams.items() for end in stream.forced]
        self._waiting = sorted(waiting, key=itemgetter(0))[::-1]

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def streams(self) -> set[str]:
        """The streams with forced ends that are not repeated yet."""
        return {name for _, name, _ in self._waiting}

    def take_due(self, offset: int) -> Iterator[tuple[str, ForcedEnd]]:
        """Remove and yield the forced ends due before the record at ``offset``, with the names of their streams."""
        while self._waiting and self._waiting[-1][0] <= offset:
            _, name, end = self._waiting.pop()
            yield name, end

    def of(self, stream: str) -> tuple[ForcedEnd, ...]:
        """Return the forced ends of ``stream`` that are not repeated yet."""
        return tuple(end for _, name, end in reversed(self._waiting) if name == stream)
