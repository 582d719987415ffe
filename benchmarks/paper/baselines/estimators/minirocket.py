"""MiniRocket features with the distance to the nearest training sequence: a strong peer without training.

Legend: N windows, C channels, L window length, D features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from benchmarks.paper.baselines.data import flat
from benchmarks.paper.baselines.estimators.nearest import nearest_distance
from benchmarks.paper.baselines.estimators.refit import EstimatorOptions, RefitDetector, Score, study_module
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_models.neutral_ad.data import check_length

MIN_LENGTH = 9  # of MiniRocket's kernels


class MiniRocketOptions(EstimatorOptions):
    """Settings of the features."""

    n_features: int = Field(default=10_000, ge=84, description="rounded down to a multiple of the 84 kernels")


class MiniRocketNearest(RefitDetector[MiniRocketOptions]):
    """MiniRocket (Dempster, Schmidt, Webb, KDD 2021; aeon's, for many channels), standardised on the training windows.

    The features are the shares of positive values of fixed convolutions, with biases taken from the training windows.
    Score: the Euclidean distance to the nearest training window's features.
    """

    options_model = MiniRocketOptions
    kind = "minirocket"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the distance to ``data``; ``seed`` draws channels and biases.

        Raises TrainingDataError if L is below 9.
        """
        check_length(data.values.shape[2], MIN_LENGTH, "MiniRocket")
        make = study_module("aeon.transformations.collection.convolution_based").MiniRocket
        rocket = make(n_kernels=self.options.n_features, random_state=seed)
        rocket.fit(padded(data.values, data.lengths))

        def features(windows: FloatArray, lengths: IntArray) -> npt.NDArray[np.float64]:
            return np.asarray(rocket.transform(padded(windows, lengths)), np.float64)

        known = features(data.values, data.lengths)
        mean, spread = known.mean(axis=0), known.std(axis=0)
        spread[spread < 1e-9] = 1.0  # as scikit-learn's StandardScaler: a feature that never changes is only centred
        known = (known - mean) / spread
        return lambda windows, lengths: nearest_distance((features(windows, lengths) - mean) / spread, known)


def padded(windows: FloatArray, lengths: IntArray) -> FloatArray:
    """Return windows float32 [N, C, L], zero from each window's length on."""
    return flat(windows, lengths).reshape(windows.shape).astype(np.float32)
