"""Peers of this benchmark alone: nearest neighbours and densities in other features, and outlier detectors since 2021.

Legend: B windows, N training windows, D features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamad.types import FloatArray, IntArray, WindowSet
from streamad_models.baselines.data import flat
from streamad_models.baselines.estimators.minirocket import MIN_LENGTH, padded
from streamad_models.baselines.estimators.nearest import nearest_distance
from streamad_models.baselines.estimators.refit import EstimatorOptions, RefitDetector, Score, study_module
from streamad_models.neutral_ad.data import check_length

Rows = npt.NDArray[np.float64]

N_NEIGHBOURS: Final = 20  # of LOF: scikit-learn's default
N_FEATURES: Final = 10_000  # of MiniRocket: aeon's default
_CONVOLUTIONS: Final = "aeon.transformations.collection.convolution_based"


class HydraNearest(RefitDetector[EstimatorOptions]):
    """Hydra's features (Dempster et al., DMKD 2023; aeon's, its defaults) and the nearest training window.

    The features' square roots are standardised as in the paper: zeros stay zero, and a rare feature counts less.
    """

    options_model = EstimatorOptions
    kind = "hydra"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the distance to ``data``; ``seed`` draws the kernels. Raises TrainingDataError if L is below 9."""
        check_length(data.values.shape[2], MIN_LENGTH, "Hydra")
        hydra = study_module(_CONVOLUTIONS).HydraTransformer(random_state=seed, output_type="numpy")
        hydra.fit(padded(data.values, data.lengths))

        def roots(windows: FloatArray, lengths: IntArray) -> Rows:
            counts: Rows = np.asarray(hydra.transform(padded(windows, lengths)), np.float64)
            return np.asarray(np.sqrt(np.maximum(counts, 0.0)))

        known = roots(data.values, data.lengths)
        mean, spread = known.mean(axis=0), known.std(axis=0, ddof=1) + (known == 0).mean(axis=0) ** 4 + 1e-8

        def standardised(rows: Rows) -> Rows:
            return np.asarray((rows - mean) * (rows != 0) / spread)

        known = standardised(known)
        return lambda windows, lengths: nearest_distance(standardised(roots(windows, lengths)), known)


class MiniRocketFactor(RefitDetector[EstimatorOptions]):
    """MiniRocket's standardised features and scikit-learn's local outlier factor (novelty detection)."""

    options_model = EstimatorOptions
    kind = "minirocket_lof"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the factor among ``data``; ``seed`` draws biases. Raises TrainingDataError if L is below 9."""
        check_length(data.values.shape[2], MIN_LENGTH, "MiniRocket")
        rocket = study_module(_CONVOLUTIONS).MiniRocket(n_kernels=N_FEATURES, random_state=seed)
        rocket.fit(padded(data.values, data.lengths))
        scaler = study_module("sklearn.preprocessing").StandardScaler()
        known = scaler.fit_transform(np.asarray(rocket.transform(padded(data.values, data.lengths)), np.float64))
        make = study_module("sklearn.neighbors").LocalOutlierFactor
        factor = make(n_neighbors=min(N_NEIGHBOURS, len(data) - 1), novelty=True).fit(known)

        def score(windows: FloatArray, lengths: IntArray) -> Rows:
            rows = scaler.transform(np.asarray(rocket.transform(padded(windows, lengths)), np.float64))
            return np.asarray(-factor.score_samples(rows))

        return score


class QuantForest(RefitDetector[EstimatorOptions]):
    """QUANT's features (Dempster et al., DMKD 2024; aeon's) and an isolation forest of scikit-learn."""

    options_model = EstimatorOptions
    kind = "quant_forest"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the score of the forest grown from ``seed``. Raises TrainingDataError if L is below 9."""
        check_length(data.values.shape[2], MIN_LENGTH, "QUANT")
        quant = study_module("aeon.transformations.collection.interval_based").QUANTTransformer()
        known = quant.fit_transform(padded(data.values, data.lengths))
        forest = study_module("sklearn.ensemble").IsolationForest(random_state=seed).fit(known)
        return lambda windows, lengths: -forest.score_samples(quant.transform(padded(windows, lengths)))


class Ecod(RefitDetector[EstimatorOptions]):
    """ECOD (Li et al., TKDE 2022) on the flattened window: how far out each reading is among the training windows'.

    The tails are those of the training windows alone, so that a window has the same score in any company.
    """

    options_model = EstimatorOptions
    kind = "ecod"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the largest of the sums over readings of -log left, right and by skewness chosen tail."""
        known = np.sort(flat(data.values, data.lengths), axis=0)
        is_left = ((known - known.mean(axis=0)) ** 3).mean(axis=0) < 0

        def score(windows: FloatArray, lengths: IntArray) -> Rows:
            rows = flat(windows, lengths)
            left, right = _tails(known, rows), _tails(-known[::-1], -rows)
            sums = [part.sum(axis=1) for part in (left, right, np.where(is_left, left, right))]
            return np.asarray(np.max(sums, axis=0))

        return score


def _tails(known: Rows, rows: Rows) -> Rows:
    """Return -log((1 + number of sorted ``known`` [N, D] up to a reading) / (N + 1)) of ``rows`` [B, D]."""
    counts = np.stack([np.searchsorted(*pair, "right") for pair in zip(known.T, rows.T, strict=True)], axis=1)
    return np.asarray(-np.log((1.0 + counts) / (1.0 + len(known))))


class Lunar(RefitDetector[EstimatorOptions]):
    """LUNAR (Goodge et al., AAAI 2022; PyOD's, its defaults) on the flattened window: a network on the distances to
    the nearest training windows, trained against made-up anomalies.
    """

    options_model = EstimatorOptions
    kind = "lunar"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the score of the network trained from ``seed``."""
        import torch  # noqa: PLC0415

        lunar = study_module("pyod.models.lunar")
        with torch.random.fork_rng(devices=[]):
            fitted = lunar.LUNAR(random_state=seed).fit(flat(data.values, data.lengths))
        return lambda windows, lengths: np.asarray(fitted.decision_function(flat(windows, lengths)), np.float64)


def _components() -> Any:
    from streamad_models.simple import PCA  # noqa: PLC0415

    return PCA()


PEERS: Final[dict[str, Callable[[], Any]]] = {
    "hydra": HydraNearest,
    "minirocket_lof": MiniRocketFactor,
    "quant_forest": QuantForest,
    "pca": _components,
    "ecod": Ecod,
    "lunar": Lunar,
}
"""Makers of the peers by the method's name."""
