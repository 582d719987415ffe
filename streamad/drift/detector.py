"""One detector of a lasting shift: river's Page-Hinkley test on robustly standardised values."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

_OVERSHOOT = 1.166  # 2 * 0.583: the mean overshoot of a normal random walk over two boundaries (Siegmund 1985)
_MAX_CORRELATION = 0.97
_BLOCKS = 20
_MIN_BLOCK = 10


def run_length_limit(rate: float, slack: float) -> float:
    """Return the limit at which a two-sided cumulative sum crosses by chance ``rate`` times per value.

    For independent normal values of unit variance and a slack in their unit (Siegmund 1985, Sequential Analysis, 2.54).
    """
    x = 1.0
    for _ in range(100):
        x = math.log(4 * slack**2 / rate + x + 1)
    return x / (2 * slack) - _OVERSHOOT


def long_run_variance(values: npt.NDArray[np.float64]) -> float:
    """Return the variance per value of the sum of ``values`` [n], n >= 2: above their own if neighbours correlate.

    The larger of two estimates, both biased upwards: a first-order autoregression, its correlation corrected for bias
    (Kendall 1954), and overlapping batch means (Meketon and Schmeiser 1984) of n/20 values with half a standard error
    added; then the error of a plain variance on top.
    """
    n = len(values)
    centred = values - values.mean()
    variance = float(centred @ centred) / n
    if variance <= 0:
        return 0.0
    plain = float(centred[1:] @ centred[:-1]) / n / variance
    correlation = min(max(plain + (1 + 3 * max(plain, 0.0)) / n, 0.0), _MAX_CORRELATION)
    autoregression = variance * (1 + correlation) / (1 - correlation)
    return max(autoregression, _batch_means(centred)) * (1 + math.sqrt(2 / n))


def _batch_means(centred: npt.NDArray[np.float64]) -> float:
    n = len(centred)
    block = max(_MIN_BLOCK, n // _BLOCKS)
    if n < 2 * block:
        return 0.0
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    blocks = sums[block:] - sums[:-block]
    error = math.sqrt(4 * block / (3 * n))
    return float(blocks @ blocks) / len(blocks) / block * n / (n - block) * (1 + error / 2)


MAX_STRENGTH = 1000.0
"""The largest strength: the standard deviation of a channel that never moved before is about zero."""
_CLIP = 1.5  # in standard deviations: a single fault weighs no more
_SLACK = 0.5  # in standard deviations: smaller shifts are ignored; best for shifts of twice this
_MEMORY = 1000  # values that estimate the correlation of neighbours (at least: the first ones are all kept)
_MIN_VARIANCE = 0.6  # of clipped values: 0.78 if they are normal; values that rarely move at all have much less
_PARTS = 3  # of the first values: a shift among them spoils the estimates of one part, and the median stands
_PARTS_FACTOR = 1.25  # a part misses longer correlations; measured to keep the false events of correlated values
_UNKNOWN_CORRELATION = 3.0  # long-run variance over variance at a correlation of 0.5, until it can be estimated
_NORMAL_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True, slots=True)
class Shift:
    """A lasting shift: since when, by how many standard deviations before, from what to what (medians)."""

    since_us: int
    strength: float
    before: float
    after: float


class _Test(Protocol):
    threshold: float

    @property
    def drift_detected(self) -> bool: ...
    def update(self, x: float) -> object: ...


class _MakeTest(Protocol):
    def __call__(self, *, min_instances: int, delta: float, threshold: float, alpha: float) -> _Test: ...


@cache
def _page_hinkley() -> _MakeTest:
    """Return river's class, from its module alone: the package imports scikit-learn and pandas for its data sets."""
    river = find_spec("river")
    assert river is not None
    folders = [f"{folder}/drift" for folder in river.submodule_search_locations or ()]
    spec = PathFinder.find_spec("page_hinkley", folders)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(_MakeTest, module.PageHinkley)


class ShiftDetector:
    """Learns the reference of a series from its first ``n_reference`` values, then reports a lasting shift of the mean.

    Values are standardised by median and median absolute deviation of the reference and clipped, so that single faults
    count little; the Page-Hinkley test (Page 1954) compares them with the mean of all before. Its limit gives ``rate``
    false shifts per value. The variance of sums is estimated from values old enough to exclude a shift under way:
    correlated neighbours make the test slower, not more frequent. ``known`` values replace the reference; then shifts
    are found from the first value on.
    """

    def __init__(self, n_reference: int, rate: float, *, known: npt.NDArray[np.float64] | None = None) -> None:
        self._n_reference = n_reference
        self._memory = max(_MEMORY, n_reference)
        self._limit = run_length_limit(rate, _SLACK)
        self._known = np.zeros(0) if known is None else known
        self._times, self._values = array("q"), array("d")
        self._center, self._scale = 0.0, 1.0
        self._test: _Test | None = None
        if known is not None:
            self._learn(known, 0.0)
            self._set_limit(_UNKNOWN_CORRELATION * float(self._standardised(known).var()))
            self._feed(known)

    @property
    def is_watching(self) -> bool:
        """Return whether the reference is known, so that a shift can be found."""
        return self._test is not None

    @property
    def median(self) -> float:
        """Return the median of the values in memory, 0 before the first."""
        return float(np.median(self._values)) if self._values else 0.0

    def add(self, time_us: int, value: float) -> Shift | None:
        """Take the next value; return the shift that it completes, then start again from the new state."""
        self._times.append(time_us)
        self._values.append(value)
        if len(self._values) == 2 * self._memory:
            del self._times[: self._memory], self._values[: self._memory]
            self._known = np.zeros(0)
        if self._test is None:
            return None
        self._test.update(min(max((value - self._center) / self._scale, -_CLIP), _CLIP))
        return self._shift() if self._test.drift_detected else None

    def adapt(self, resolution: float = 0.0) -> Shift | None:
        """Learn the reference once there are enough values, later adapt the limit; call it every few dozen values.

        ``resolution`` is the smallest relevant standard deviation. The first values may contain a shift.
        """
        if len(self._values) < self._n_reference:
            return None
        values = np.array(self._values)
        if self._test is not None:
            self._adapt_limit(values)
            return None
        self._learn(values, resolution)
        self._adapt_limit(values)
        return self._shift() if self._feed(values) else None

    def _learn(self, values: npt.NDArray[np.float64], resolution: float) -> None:
        first = values[: self._n_reference]
        self._center = float(np.median(first))
        deviation = float(np.median([_deviation(part) for part in np.array_split(first, _PARTS)]))
        self._scale = max(deviation, resolution, 1e-6 * abs(self._center), 1e-12)
        self._test = _page_hinkley()(min_instances=self._n_reference, delta=_SLACK, threshold=1.0, alpha=1.0)

    def _feed(self, values: npt.NDArray[np.float64]) -> bool:
        """Pass earlier values to the test; return whether they contain a shift."""
        assert self._test is not None
        for value in self._standardised(values).tolist():
            self._test.update(value)
            if self._test.drift_detected:
                return True
        return False

    def _adapt_limit(self, values: npt.NDArray[np.float64]) -> None:
        """Set the limit; a shift of one and a half times the slack is found before it is old enough to count."""
        assert self._test is not None
        age = min(int(2 * self._test.threshold / _SLACK), self._memory // 2)
        old = self._standardised(values[: max(len(values) - age, self._n_reference)][-self._memory :])
        if len(values) < 2 * self._n_reference:
            parts = [long_run_variance(part) for part in np.array_split(old, _PARTS)]
            self._set_limit(_PARTS_FACTOR * float(np.median(parts)))
        else:
            self._set_limit(long_run_variance(old))

    def _set_limit(self, variance: float) -> None:
        assert self._test is not None
        self._test.threshold = self._limit * max(variance, _MIN_VARIANCE)

    def _standardised(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.clip((values - self._center) / self._scale, -_CLIP, _CLIP)

    def _shift(self) -> Shift:
        """Return the shift that the test has found, and forget the values before it."""
        values = np.concatenate((self._known, np.array(self._values)))
        begin = min(max(_last_turn(self._standardised(values)), 1), len(values) - 1)
        own = max(begin - len(self._known), 0)
        before, after = float(np.median(values[:begin])), float(np.median(values[begin:]))
        shift = Shift(self._times[own], min(abs(after - before) / self._scale, MAX_STRENGTH), before, after)
        del self._times[:own], self._values[:own]
        self._known, self._test = np.zeros(0), None
        return shift


def _deviation(values: npt.NDArray[np.float64]) -> float:
    """Return the standard deviation estimated by the median absolute deviation."""
    return _NORMAL_MAD * float(np.median(np.abs(values - np.median(values))))


def _last_turn(z: npt.NDArray[np.float64]) -> int:
    """Return the last extremum of the cumulative sum that has since moved furthest (Page's estimate)."""
    deviation = z - np.cumsum(z) / np.arange(1, len(z) + 1)
    rising, falling = np.cumsum(deviation - _SLACK), np.cumsum(-deviation - _SLACK)
    turns = int(np.argmin(rising)), int(np.argmin(falling))
    up = rising[-1] - rising[turns[0]] >= falling[-1] - falling[turns[1]]
    return turns[0 if up else 1] + 1
