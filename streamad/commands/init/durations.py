"""Durations as a config writes them: round ones, in the largest unit that fits."""

from __future__ import annotations

import math

_UNITS_US = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000))
_DURATIONS_US = [
    int(step * unit)
    for unit, steps in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000_000, (1, 2, 5, 10, 15, 20, 30)),
        (60_000_000, (1, 2, 5, 10, 15, 20, 30)),
        (3_600_000_000, (1, 2, 3, 4, 6, 8, 12)),
        (86_400_000_000, (1, 2, 3, 5, 7, 10, 14, 30, 60, 90, 180, 365)),
    )
    for step in steps
]


def round_up(duration_us: float) -> int:
    """Return the next larger round duration: 200ms, 5s, 15m, 12h, 7d."""
    return next((step for step in _DURATIONS_US if step >= duration_us), math.ceil(duration_us))


def duration_text(duration_us: int) -> str:
    """Return microseconds as a config writes them, in the largest unit that divides them."""
    if duration_us == 0:
        return "0s"
    unit, factor = next(((unit, factor) for unit, factor in _UNITS_US if duration_us % factor == 0), ("us", 1))
    return f"{duration_us // factor}{unit}"


def readable(duration_us: float) -> str:
    """Return a duration for a comment: 1.8 h, 250 ms."""
    unit, factor = next(((unit, factor) for unit, factor in _UNITS_US if duration_us >= factor), ("us", 1))
    return f"{duration_us / factor:.3g} {unit}"
