"""The smallest of values that come, change and go."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_MOST_VOID = 64


class Earliest:
    """Values by key; the smallest is found without a look at the others.

    Of equal values that of the smaller key comes first. ``put`` takes O(log n), and so does ``first`` on average.
    """

    __slots__ = ("_heap", "_values")

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> int | None:
        """Return the value of ``key``."""
        return self._values.get(key)

    def put(self, key: str, value: int) -> None:
        """Set the value of ``key``."""
        if self._values.get(key) == value:
            return
        self._values[key] = value
        heappush(self._heap, (value, key))
        if len(self._heap) > 2 * len(self._values) + _MOST_VOID:
            self._heap = [(each, name) for name, each in self._values.items()]
            heapify(self._heap)

    def discard(self, key: str) -> None:
        """Remove ``key`` and its value, if it is there."""
        self._values.pop(key, None)

    def first(self) -> tuple[int, str] | None:
        """Return the smallest value and its key; None if there is none."""
        heap, values = self._heap, self._values
        while heap:
            value, key = heap[0]
            if values.get(key) == value:
                return heap[0]
            heappop(heap)
        return None

    def take_through(self, limit: int) -> list[str]:
        """Remove the values up to ``limit``, and return their keys."""
        taken = []
        while (first := self.first()) is not None and first[0] <= limit:
            taken.append(first[1])
            del self._values[first[1]]
        return taken
