"""What must hold of a training set for any baseline, and the scaling fitted on it.

Legend: N windows, C channels, L window length.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamad.errors import TrainingDataError
from streamad.types import FloatArray, IntArray, WindowSet

MIN_SEQUENCES = 2


def check_windows(data: WindowSet) -> None:
    """Raise TrainingDataError unless ``data`` can give a model; a channel that never changes is no obstacle."""
    values = data.values
    if values.ndim != 3 or data.lengths.shape != values.shape[:1]:
        raise TrainingDataError(f"training windows must be [N, C, L] with N lengths, not {values.shape}")
    if len(values) < MIN_SEQUENCES:
        raise TrainingDataError(f"{len(values)} training sequences: at least {MIN_SEQUENCES} are needed")
    if data.lengths.min() < 1 or data.lengths.max() > values.shape[2]:
        raise TrainingDataError(f"sequence lengths must lie within 1..{values.shape[2]}")
    if not np.isfinite(values).all():
        raise TrainingDataError("NaN or infinite values in the training sequences: fill or drop them first")


def scaling_of(data: WindowSet) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return each channel's mean and 1 / standard deviation [C] over valid samples; 1 where it never changes."""
    valid_NL = np.arange(data.values.shape[2])[None, :] < data.lengths[:, None]
    samples = data.values.transpose(0, 2, 1)[valid_NL].astype(np.float64)
    spread = samples.std(axis=0)
    scale = 1.0 / np.where(spread > 1e-12, spread, 1.0)
    return samples.mean(axis=0).astype(np.float32), scale.astype(np.float32)


def flat(windows: FloatArray, lengths: IntArray) -> npt.NDArray[np.float64]:
    """Return windows [N, C, L] as rows [N, C L], zero from each window's length on."""
    outside = np.arange(windows.shape[2]) >= lengths[:, None, None]
    return np.where(outside, 0.0, windows).reshape(len(windows), -1).astype(np.float64)
