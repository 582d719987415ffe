"""The clock of a real run."""

from __future__ import annotations

__all__ = ["SystemClock"]

import asyncio
import time


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
