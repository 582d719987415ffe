"""Which channels never change: said once, for the check with names and for the guard of every detector."""

from __future__ import annotations

__all__ = ["constant_channels"]

import numpy as np

from streamad.types import IntArray, WindowSet

_CONSTANT_SHARE = 1e-6  # of a channel's largest absolute value: below it, variation is float32 rounding


def constant_channels(data: WindowSet) -> IntArray:
    """Return the indexes of the channels without variation in the valid samples of finite windows [N, C, L], N >= 1."""
    valid = np.arange(data.values.shape[2]) < data.lengths[:, None]
    samples = data.values.transpose(0, 2, 1)[valid]
    highest, lowest = samples.max(axis=0).astype(np.float64), samples.min(axis=0).astype(np.float64)
    largest = np.maximum(np.abs(highest), np.abs(lowest))
    return np.flatnonzero(highest - lowest <= _CONSTANT_SHARE * largest).astype(np.int64)
