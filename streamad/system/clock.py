"""The clock of a real run."""

from __future__ import annotations

import asyncio
import time

from streamad.ports import Clock


async def pause(seconds: float, clock: Clock, woken: asyncio.Event) -> None:
    """Return when ``woken`` is set or ``seconds`` have passed on ``clock``."""
    tasks = {asyncio.ensure_future(woken.wait()), asyncio.ensure_future(clock.sleep(seconds))}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SystemClock:
    """Wall-clock and monotonic time of this machine."""

    def now_us(self) -> int:
        """Return Unix time in microseconds."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Return a clock that never goes back, in microseconds."""
        return time.monotonic_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(seconds)
