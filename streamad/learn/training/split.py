"""The split into calibration and training: by a seeded hash of the id, whatever the order."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from streamad.types import IntArray


def hash_order(ids: tuple[str, ...], seed: int) -> IntArray:
    """Return the indexes that sort ``ids`` by a hash of seed and id."""
    keys = [(blake2b(f"{seed}:{name}".encode(), digest_size=16).digest(), name) for name in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def folds_of(n: int, n_folds: int) -> tuple[IntArray, ...]:
    """Return the held-out indexes of each fold; every index is held out once, sizes differ by at most one."""
    return tuple(np.arange(fold, n, n_folds, dtype=np.int64) for fold in range(n_folds))
