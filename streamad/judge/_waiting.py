"""The line in which windows wait for company before they are scored; pure, driven by an injected clock."""

from __future__ import annotations

__all__ = ["WaitingLine"]

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class WaitingLine(Generic[T]):
    """What waits for company, in order of arrival; pure. A batch is due when full or when its first item waited."""

    batch_size: int
    wait_us: int
    _items: deque[tuple[int, T]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T, now_us: int) -> None:
        """Append ``item``, which waits from ``now_us`` on."""
        self._items.append((now_us, item))

    def due_in_us(self, now_us: int) -> int | None:
        """Return how long the next batch may still wait: 0 if it is due, None if nothing waits."""
        if not self._items:
            return None
        if len(self._items) >= self.batch_size:
            return 0
        return max(0, self._items[0][0] + self.wait_us - now_us)

    def take(self) -> list[T]:
        """Remove and return the next batch, the oldest first."""
        return [self._items.popleft()[1] for _ in range(min(self.batch_size, len(self._items)))]
