"""Labels of axes: times in the unit that fits, and numbers with as many digits as tell neighbours apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from streamad.language import numeral

LARGEST_POWER = 300
"""Of ten, on a logarithmic axis: beyond it a picture's arithmetic overflows."""
_STEPS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 7, 14, 28)),
)
_LARGE = 1e6
_SMALL = 1e-4


class TimeUnit(NamedTuple):
    """A unit of time: its name, its sign, and how many seconds it has."""

    name: str
    sign: str
    seconds: float


_UNITS = (
    TimeUnit("microseconds", "µs", 1e-6),
    TimeUnit("milliseconds", "ms", 1e-3),
    TimeUnit("seconds", "s", 1.0),
    TimeUnit("minutes", "min", 60.0),
    TimeUnit("hours", "h", 3600.0),
    TimeUnit("days", "d", 86400.0),
)


def unit_for(span_s: float) -> TimeUnit:
    """Return the largest unit of which ``span_s`` seconds are at least two; at least microseconds."""
    return max(
        (unit for unit in _UNITS if span_s >= 2 * unit.seconds), key=lambda unit: unit.seconds, default=_UNITS[0]
    )


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most ``most`` + 1 round numbers within [``low``, ``high``], equally far apart."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def time_ticks(first_us: int, last_us: int, most: int) -> list[int]:
    """Return at most ``most`` + 1 times within [``first_us``, ``last_us``]: full seconds, minutes, hours or days."""
    step = next((each for each in _STEPS_S if (last_us - first_us) <= most * each * 1_000_000), None)
    if step is None:
        step = math.ceil((last_us - first_us) / (most * 86_400_000_000)) * 86_400
    size = step * 1_000_000
    return list(range(-(-first_us // size) * size, last_us + 1, size))


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most ``most`` round numbers whose decimal logarithms lie within [``low``, ``high``].

    They are powers of ten, the steps between them if they are few.
    """
    low, high = max(low, -LARGEST_POWER), min(high, LARGEST_POWER)
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 2, 5), (1,)):
        found = [f * 10.0**power for power in powers for f in factors if low <= power + math.log10(f) <= high]
        if 2 <= len(found) <= most:
            return found
    if len(found) > most:
        return found[:: -(-len(found) // most)]
    return [one for one in round_ticks(10.0**low, 10.0**high, 4) if one > 0]


def labels_of(ticks: Sequence[float]) -> list[str]:
    """Return the labels of ``ticks``, which are equally far apart: no two are the same."""
    return [numeral(label) for label in _labels(ticks)]


def _labels(ticks: Sequence[float]) -> list[str]:
    if not ticks:
        return []
    largest = max(abs(tick) for tick in ticks)
    if len(ticks) == 1 or not math.isfinite(largest):
        return [f"{tick:.7g}" for tick in ticks]
    step = ticks[1] - ticks[0]
    if largest >= _LARGE or step < _SMALL:
        digits = max(2, math.ceil(math.log10(largest / step)) + 2)
        return ["0" if abs(tick) < step / 2 else f"{tick:.{digits}g}" for tick in ticks]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals and abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1  # steps of 2.5
    if not decimals and abs(step - round(step)) > 1e-6:
        decimals = 1
    return [f"{0.0 if abs(tick) < step / 2 else tick:.{decimals}f}" for tick in ticks]
