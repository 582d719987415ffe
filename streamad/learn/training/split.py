"""The split into calibration and training: by a seeded hash of the id, whatever the order."""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np

from streamad.types import IntArray

_ROUNDING = 1e-9


def hash_order(ids: tuple[str, ...], seed: int) -> IntArray:
    """Return the indexes that sort ``ids`` by a hash of seed and id."""
    keys = [(blake2b(f"{seed}:{name}".encode(), digest_size=16).digest(), name) for name in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def calibration_count(n: int, share: float, false_alarm_rate: float) -> int:
    """Return how many of ``n`` sequences calibrate: at most ``share``, and such that the rate comes out exact.

    With m calibration scores the conformal rule "alert when p <= r" alerts on a fresh inlier with probability
    floor((m + 1) r) / (m + 1) (exchangeable scores without ties): r itself only where (m + 1) r is whole, less
    otherwise. So of the counts between half the share and the share, the one that loses least is taken, the largest of
    equals: 99, not 100, for r = 0.02. If even the share is too small for r, all of it.
    """
    most = int(n * share + _ROUNDING)
    if math.floor((most + 1) * false_alarm_rate + _ROUNDING) == 0:
        return most
    return max(range(math.ceil(most / 2), most + 1), key=lambda m: (_attained(m, false_alarm_rate), m))


def _attained(m: int, rate: float) -> float:
    return round(math.floor((m + 1) * rate + _ROUNDING) / ((m + 1) * rate), 9)


def folds_of(n: int, n_folds: int) -> tuple[IntArray, ...]:
    """Return the held-out indexes of each fold; every index is held out once, sizes differ by at most one."""
    return tuple(np.arange(fold, n, n_folds, dtype=np.int64) for fold in range(n_folds))
