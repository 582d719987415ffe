"""What came from outside at the first reading, kept until rereading has come to the same place."""

from __future__ import annotations

__all__ = ["Repeats"]

from collections.abc import Iterator, Mapping
from operator import itemgetter

from streamad.progress import ForcedEnd, StreamProgress


class Repeats:
    """The forced ends of a progress that are not repeated yet: a stream's in their order, all in that of offsets."""

    def __init__(self, streams: Mapping[str, StreamProgress]) -> None:
        waiting = [(end.offset, name, end) for name, stream in streams.items() for end in stream.forced]
        self._waiting = sorted(waiting, key=itemgetter(0))[::-1]

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def streams(self) -> set[str]:
        """The streams of which something is still to be repeated."""
        return {name for _, name, _ in self._waiting}

    def take_due(self, offset: int) -> Iterator[tuple[str, ForcedEnd]]:
        """Take out what is to be repeated before the record at ``offset``, with the names of the streams."""
        while self._waiting and self._waiting[-1][0] <= offset:
            _, name, end = self._waiting.pop()
            yield name, end

    def of(self, stream: str) -> tuple[ForcedEnd, ...]:
        """Return what is still to be repeated of ``stream``."""
        return tuple(end for _, name, end in reversed(self._waiting) if name == stream)
