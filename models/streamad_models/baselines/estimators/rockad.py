"""ROCKAD, aeon's: ROCKET features, power-transformed, and a bag of nearest-neighbour estimators."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from streamad.errors import TrainingDataError
from streamad.types import WindowSet
from streamad_models.baselines.estimators.minirocket import padded
from streamad_models.baselines.estimators.refit import RefitDetector, Score, study_module

MIN_LENGTH = 11  # of ROCKET's longest kernel


class RockadOptions(BaseModel):
    """Settings of the detector; aeon's defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n_kernels: PositiveInt = Field(default=100, description="of ROCKET; two features each")
    n_estimators: PositiveInt = Field(default=10, description="bootstrap samples of the training windows")
    n_neighbors: PositiveInt = Field(default=5, description="all, where there are fewer training windows")


class Rockad(RefitDetector[RockadOptions]):
    """ROCKAD (Theissler, Wengert, Gerschner, IDA 2023).

    Score: the mean distance to the nearest neighbours, averaged over the bootstrap samples.
    """

    options_model: type[BaseModel] = RockadOptions
    kind = "rockad"

    def __init__(self, options: RockadOptions | None = None) -> None:
        super().__init__(options or RockadOptions())

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the score among ``data``; kernels and samples come from ``seed``.

        Raises TrainingDataError where L is below 11.
        """
        if data.values.shape[2] < MIN_LENGTH:
            raise TrainingDataError(f"windows of length {data.values.shape[2]}: ROCKET takes {MIN_LENGTH} and more")
        make, options = study_module("aeon.anomaly_detection.collection").ROCKAD, self.options
        detector = make(
            n_kernels=options.n_kernels,
            n_estimators=options.n_estimators,
            n_neighbors=min(options.n_neighbors, len(data)),
            random_state=seed,
        )
        detector.fit(padded(data.values, data.lengths))
        return lambda windows, lengths: np.asarray(detector.predict(padded(windows, lengths)), np.float64)
