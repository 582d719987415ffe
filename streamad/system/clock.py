"""The clock of a real run, and a pause that an event ends early."""

from __future__ import annotations

import asyncio
import time

from streamad.ports import Clock
from streamad.system.tasks import wait_for_either


async def pause(seconds: float, clock: Clock, woken: asyncio.Event) -> None:
    """Return when ``woken`` is set or ``seconds`` have passed on ``clock``."""
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await wait_for_either(woken, sleeping)
    finally:
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)


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
