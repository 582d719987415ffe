"""The one baseline of the tables that is no kind of the product.

Legend: B windows, N training windows, C channels, L window length, D features.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.paper.baselines.estimators.refit import EstimatorOptions, RefitDetector, Score
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_models.ensemble.model import without_fills
from streamad_models.neutral_ad.data import fit_scaling

Rows = npt.NDArray[np.float64]

FLOOR = 0.05  # of a channel's spread, added to that of a feature: one that stands still must not decide alone


class LargestZ(RefitDetector[EstimatorOptions]):
    """The largest |z| of the means and standard deviations of a window's channels: a control chart of each."""

    options_model = EstimatorOptions
    kind = "largest_z"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the largest |z| among ``data``; nothing is random."""
        scaled = _scaling(data)

        def features(windows: FloatArray, lengths: IntArray) -> Rows:
            x_BCL, n_B11 = scaled(windows, lengths), lengths[:, None, None]
            is_inside_B1L = np.arange(windows.shape[2]) < n_B11
            mean_BC1 = x_BCL.sum(axis=2, keepdims=True) / n_B11
            square_BC1 = (((x_BCL - mean_BC1) * is_inside_B1L) ** 2).sum(axis=2, keepdims=True) / n_B11
            return np.asarray(np.concatenate([mean_BC1, np.sqrt(square_BC1)], axis=1)[:, :, 0])

        z_scores = _z_scores(features(data.values, data.lengths))
        return lambda windows, lengths: np.abs(z_scores(features(windows, lengths))).max(axis=1)


def _scaling(data: WindowSet) -> Callable[[FloatArray, IntArray], Rows]:
    """Return the map of windows [B, C, L] to scaled ones, zero from each one's length on, as the product scales."""
    origin, factor = (each.astype(np.float64)[:, None] for each in fit_scaling(without_fills(data), "standard"))

    def scaled(windows: FloatArray, lengths: IntArray) -> Rows:
        is_inside = np.arange(windows.shape[2]) < lengths[:, None, None]
        return np.asarray(np.where(is_inside, (windows - origin) * factor, 0.0))

    return scaled


def _z_scores(known: Rows) -> Callable[[Rows], Rows]:
    mean, spread = known.mean(axis=0), known.std(axis=0) + FLOOR
    return lambda rows: (rows - mean) / spread
