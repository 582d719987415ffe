"""A clock that a test advances."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class ManualClock:
    """A clock that moves only by ``advance``; sleepers wake in the order of their times."""

    def __init__(self, start_us: int = 1_767_225_600_000_000) -> None:
        self._now_us = start_us
        self._monotonic_us = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = itertools.count()

    @property
    def n_sleepers(self) -> int:
        """Return how many calls of ``sleep`` wait."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def now_us(self) -> int:
        """Return the wall-clock time in microseconds."""
        return self._now_us

    def monotonic_us(self) -> int:
        """Return the microseconds advanced so far."""
        return self._monotonic_us

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced by ``seconds``; for 0 or less, after other tasks ran."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic_us + round(seconds * 1e6), next(self._count), future))
        await future

    def advance(self, seconds: float) -> None:
        """Move both clocks by ``seconds`` and wake the sleepers that are due; they run when the caller next awaits."""
        if seconds < 0:
            raise ValueError("a clock cannot be advanced backwards; use set_wall for a wall clock that was set back")
        step_us = round(seconds * 1e6)
        self._now_us += step_us
        self._monotonic_us += step_us
        while self._sleepers and self._sleepers[0][0] <= self._monotonic_us:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    def set_wall(self, now_us: int) -> None:
        """Set the wall clock alone, as an operator or a time server does; no sleeper wakes."""
        self._now_us = now_us
