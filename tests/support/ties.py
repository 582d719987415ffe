"""Windows in which values tie, as those of plants do, and the law of equal terms.

Ties are held stretches, sensors with steps, constant channels, and training windows that repeat.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamad.learn.registry.arrays import PROBE_TOLERANCE, probe_deviation
from streamad.types import FloatArray, WindowSet

BOUND = 1e-4  # relative to max(1, |term|)
TIES = ("held", "steps", "coarse", "constant", "repeats", "flat")


def windows(n: int, n_channels: int, length: int, ties: frozenset[str], seed: int) -> WindowSet:
    """Return random walks of different lengths with ``ties``."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, n_channels, length)).cumsum(axis=2) + 2 * rng.normal(size=(n, n_channels, 1)) + 20
    lengths = rng.integers(max(2, length // 2), length + 1, n)
    return tied(WindowSet(values, lengths, tuple(map(str, range(n)))), ties, seed)


def tied(data: WindowSet, ties: frozenset[str], seed: int, unit: float = 1.0) -> WindowSet:
    """Return ``data`` with ``ties``; the sensors' steps are 0.1 units, coarse ones 2."""
    rng = np.random.default_rng([seed, 1])
    values, lengths = data.values / unit, data.lengths
    n, _, length = values.shape
    if "held" in ties:
        for course in values.reshape(-1, length):
            start = rng.integers(0, length - 2)
            course[start : rng.integers(start + 1, length)] = course[start]
    if "flat" in ties:
        values[:] = values[:, :, :1]
    if "steps" in ties:
        values = np.round(values, 1)
    if "coarse" in ties:
        values = 2 * np.round(values / 2)
    if "constant" in ties:
        values[:, 0] = rng.choice([1.0, 2.0], size=(n, 1))
    if "repeats" in ties:
        kept = np.repeat(np.arange(-(-n // 6)), 6)[:n]
        values, lengths = values[kept], lengths[kept]
    values = unit * np.where(np.arange(length) < lengths[:, None, None], values, 0.0)
    return WindowSet(values.astype(np.float32), lengths.astype(np.int64), data.ids)


def joined(*parts: WindowSet) -> WindowSet:
    """Return the windows of all parts in their order."""
    values, lengths = (np.concatenate([getattr(part, of) for part in parts]) for of in ("values", "lengths"))
    return WindowSet(values, lengths, tuple(map(str, range(len(values)))))


def in_batches(scorer: Any, data: WindowSet, size: int) -> FloatArray:
    """Return the terms of ``data``, scored ``size`` windows at a time."""
    parts = [slice(start, start + size) for start in range(0, len(data), size)]
    return np.concatenate([scorer.score(data.values[part], data.lengths[part]) for part in parts])


def assert_same(found: FloatArray, expected: FloatArray, *, as_probe: bool = True) -> None:
    """The law, and what a worker demands of the probe of a version, which distances of 0 do not keep."""
    assert deviation(found, expected) < BOUND
    if as_probe:
        assert probe_deviation(found, expected) < PROBE_TOLERANCE


def deviation(found: FloatArray, expected: FloatArray) -> float:
    """Return the largest |found - expected| / max(1, |expected|), infinite for NaN."""
    apart = np.abs(found.astype(np.float64) - expected) / np.maximum(1.0, np.abs(expected))
    return float(np.max(np.where(np.isnan(apart), np.inf, apart)))
