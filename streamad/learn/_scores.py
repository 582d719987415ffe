"""Scores many windows in batches of bounded memory.

Shapes: N windows, K transformations, C channels, L window length.
"""

from __future__ import annotations

__all__ = ["joined", "score_windows"]

import numpy as np

from streamad.ports import FittedDetector, Scorer
from streamad.types import FloatArray, WindowSet

_ROWS = 256
_BATCH_VALUES = 4_000_000  # bounds a batch of wide or long windows to 16 MB


def score_windows(model: Scorer | FittedDetector, data: WindowSet) -> FloatArray:
    """Return the terms float32 [N, K] of ``data``, N > 0."""
    rows = max(1, min(_ROWS, _BATCH_VALUES // data.values[0].size))
    starts = range(0, len(data), rows)
    return np.concatenate(
        [model.score(data.values[start : start + rows], data.lengths[start : start + rows]) for start in starts]
    )


def joined(one: WindowSet, other: WindowSet) -> WindowSet:
    """Return the windows of both, in this order."""
    return WindowSet(
        np.concatenate([one.values, other.values]),
        np.concatenate([one.lengths, other.lengths]),
        (*one.ids, *other.ids),
    )
