"""Which messages of a subscription are done: in any order here, in the order of reading there."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Ledger:
    """Numbers the messages as they are read, and releases the oldest once they and all before them are done."""

    def __init__(self, release: Callable[[int], None]) -> None:
        self._release = release
        self._n_read = 0
        self._first = 0
        self._done: set[int] = set()

    def read(self) -> int:
        """Return the number of the next message."""
        self._n_read += 1
        return self._n_read - 1

    def done(self, numbers: Iterable[int]) -> None:
        """Note that the messages ``numbers`` are done."""
        self._done.update(numbers)
        before = self._first
        while self._first in self._done:
            self._done.remove(self._first)
            self._first += 1
        if self._first > before:
            self._release(self._first - before)
