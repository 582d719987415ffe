"""Which partition each stream lives in: a stream in two is never judged, for its samples are split between them."""

from __future__ import annotations

from collections.abc import Container

_MAX_HOMES = 100_000


class StreamHomes:
    """Remembers the partitions of the streams seen; the oldest are forgotten past 100,000."""

    def __init__(self) -> None:
        self._homes: dict[str, set[str]] = {}

    def is_split(self, stream: str) -> bool:
        """Return whether ``stream`` was seen in two partitions."""
        return len(self._homes.get(stream, ())) > 1

    def claim(self, stream: str, partition: str) -> frozenset[str]:
        """Note that ``stream`` lives in ``partition``; return its other homes where it is new there."""
        while len(self._homes) >= _MAX_HOMES and stream not in self._homes:
            del self._homes[next(iter(self._homes))]
        homes = self._homes.setdefault(stream, set())
        others = frozenset() if partition in homes else frozenset(homes)
        homes.add(partition)
        return others

    def leave_unshared(self, partition: str) -> None:
        """Forget the streams that lived in ``partition`` alone: they may go on in the next file."""
        for stream in [stream for stream, homes in self._homes.items() if homes == {partition}]:
            del self._homes[stream]

    def leave(self, partition: str, still_read: Container[str]) -> None:
        """Forget the streams that lived in ``partition`` alone; a split one stays so while another home is read."""
        for stream in [stream for stream, homes in self._homes.items() if partition in homes]:
            if all(home == partition or home not in still_read for home in self._homes[stream]):
                del self._homes[stream]
