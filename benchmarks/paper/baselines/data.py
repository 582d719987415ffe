"""Checks and forms of windows that all baselines share: the fewest training windows, and windows as rows.

Legend: N windows, C channels, L window length.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamad.types import FloatArray, IntArray

MIN_SEQUENCES = 2


def flat(windows: FloatArray, lengths: IntArray) -> npt.NDArray[np.float64]:
    """Return windows [N, C, L] as rows [N, C L], zero from each window's length on."""
    outside = np.arange(windows.shape[2]) >= lengths[:, None, None]
    return np.where(outside, 0.0, windows).reshape(len(windows), -1).astype(np.float64)
