"""ROCKAD, aeon's: ROCKET features, power-transformed, and a bag of nearest-neighbour estimators."""

from __future__ import annotations

import numpy as np
from pydantic import Field, PositiveInt

from benchmarks.paper.baselines.estimators.minirocket import padded
from benchmarks.paper.baselines.estimators.refit import EstimatorOptions, RefitDetector, Score, study_module
from streamad.types import WindowSet
from streamad_models.neutral_ad.data import check_length

MIN_LENGTH = 11  # of ROCKET's longest kernel


class RockadOptions(EstimatorOptions):
    """Settings of the detector; aeon's defaults."""

    n_kernels: PositiveInt = Field(default=100, description="of ROCKET; two features each")
    n_estimators: PositiveInt = Field(default=10, description="bootstrap samples of the training windows")
    n_neighbors: PositiveInt = Field(default=5, description="all if there are fewer training windows")


class Rockad(RefitDetector[RockadOptions]):
    """ROCKAD (Theissler, Wengert, Gerschner, IDA 2023).

    Score: the mean distance to the nearest neighbours, averaged over the bootstrap samples.
    """

    options_model = RockadOptions
    kind = "rockad"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the score among ``data``; kernels and samples come from ``seed``.

        Raises TrainingDataError if L is below 11.
        """
        check_length(data.values.shape[2], MIN_LENGTH, "ROCKET")
        make, options = study_module("aeon.anomaly_detection.collection").ROCKAD, self.options
        detector = make(
            n_kernels=options.n_kernels,
            n_estimators=options.n_estimators,
            n_neighbors=min(options.n_neighbors, len(data)),
            random_state=seed,
        )
        detector.fit(padded(data.values, data.lengths))
        return lambda windows, lengths: np.asarray(detector.predict(padded(windows, lengths)), np.float64)
