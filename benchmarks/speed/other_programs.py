"""How many cores other programs took while a benchmark ran: what its wall times are worth. Linux only."""

from __future__ import annotations

import os
import time
from pathlib import Path


class OtherPrograms:
    """Counts from when it is made; the benchmark's children count as its own once they have ended."""

    def __init__(self) -> None:
        self._began_s, self._others_s = time.monotonic(), _busy_s() - sum(os.times()[:4])

    def cores(self) -> float:
        """Return the mean number of cores that other programs took since then."""
        others_s = _busy_s() - sum(os.times()[:4]) - self._others_s
        return round(max(0.0, others_s / (time.monotonic() - self._began_s)), 2)


def _busy_s() -> float:
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
