"""How far a cumulative sum must rise before chance no longer explains it, and how much neighbours are alike."""

from __future__ import annotations

__all__ = ["long_run_variance", "run_length_limit"]

import math

import numpy as np
import numpy.typing as npt

_OVERSHOOT = 1.166  # 2 * 0.583: the mean overshoot of a normal random walk over two boundaries, Siegmund 1985
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
    """Return the variance per value of the sum of ``values`` [n], n >= 2: more than theirs where neighbours are alike.

    The larger of two estimates, both leaning upwards: that of a first-order autoregression, its correlation corrected
    for bias (Kendall 1954), and overlapping batch means (Meketon and Schmeiser 1984) of n/20 values with half a
    standard error added; then the error of a plain variance on top.
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
