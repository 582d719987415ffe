"""The partitions of each stream: a stream in two is not judged, because its samples are split between them."""

from __future__ import annotations

from collections.abc import Container

_MAX_HOMES = 100_000


class StreamHomes:
    """Remembers the partitions of the newest 100,000 streams."""

    def __init__(self) -> None:
        self._homes: dict[str, set[str]] = {}

    def is_split(self, stream: str) -> bool:
        """Return whether ``stream`` was seen in two partitions."""
        return len(self._homes.get(stream, ())) > 1

    def claim(self, stream: str, partition: str) -> frozenset[str]:
        """Note that ``stream`` is in ``partition``; if that is new, return its other partitions."""
        while len(self._homes) >= _MAX_HOMES and stream not in self._homes:
            del self._homes[next(iter(self._homes))]
        homes = self._homes.setdefault(stream, set())
        others = frozenset() if partition in homes else frozenset(homes)
        homes.add(partition)
        return others

    def leave_unshared(self, partition: str) -> None:
        """Forget the streams seen in ``partition`` alone: they may go on in the next file."""
        for stream in [stream for stream, homes in self._homes.items() if homes == {partition}]:
            del self._homes[stream]

    def leave(self, partition: str, still_read: Container[str]) -> None:
        """Forget the streams seen in ``partition``, except split ones of which another partition is still read."""
        for stream in [stream for stream, homes in self._homes.items() if partition in homes]:
            if all(home == partition or home not in still_read for home in self._homes[stream]):
                del self._homes[stream]
