"""One-class SVM, isolation forest and local outlier factor of scikit-learn on the flattened, zero-padded window.

The settings are the library's defaults, which give the printed values of Qiu et al. (ICML 2021, tables 1 to 3).
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, PositiveInt

from benchmarks.paper.baselines.data import flat
from benchmarks.paper.baselines.estimators.refit import EstimatorOptions, RefitDetector, Score, study_module
from streamad.types import WindowSet


class OneClassSvmOptions(EstimatorOptions):
    """Settings of the one-class SVM."""

    nu: float = Field(default=0.5, gt=0, le=1, description="upper bound of the share of training windows outside")


class OneClassSvm(RefitDetector[OneClassSvmOptions]):
    """One-class SVM (Schölkopf et al., Neural Computation 13, 2001), RBF kernel of scale 1 / (C L variance).

    Score: the negative signed distance to the boundary. Training takes time quadratic in the number of distinct
    windows: a repeated window has its count as weight, which is the same problem (the dual's variables of equal rows
    add up).
    """

    options_model = OneClassSvmOptions
    kind = "oc_svm"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the score of the SVM; nothing is random."""
        rows = flat(data.values, data.lengths)
        variance = rows.var()
        gamma = 1.0 / (rows.shape[1] * variance) if variance > 0 else 1.0  # its default, of all rows
        _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
        kept = np.argsort(first)
        make = study_module("sklearn.svm").OneClassSVM
        svm = make(nu=self.options.nu, gamma=gamma).fit(rows[first[kept]], sample_weight=counts[kept])
        return lambda windows, lengths: -svm.decision_function(flat(windows, lengths))


class IsolationForestOptions(EstimatorOptions):
    """Settings of the isolation forest."""

    n_trees: PositiveInt = 100


class IsolationForest(RefitDetector[IsolationForestOptions]):
    """Isolation forest (Liu, Ting, Zhou, ICDM 2008), 256 windows or all per tree.

    Score: 2^-(mean depth / expected depth), within 0..1.
    """

    options_model = IsolationForestOptions
    kind = "isolation_forest"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the score of the forest grown from ``seed``."""
        make = study_module("sklearn.ensemble").IsolationForest
        forest = make(n_estimators=self.options.n_trees, random_state=seed).fit(flat(data.values, data.lengths))
        return lambda windows, lengths: -forest.score_samples(flat(windows, lengths))


class LocalOutlierFactorOptions(EstimatorOptions):
    """Settings of the local outlier factor."""

    n_neighbors: PositiveInt = Field(default=20, description="all others if there are fewer training windows")


class LocalOutlierFactor(RefitDetector[LocalOutlierFactorOptions]):
    """Local outlier factor (Breunig et al., SIGMOD 2000) of a window among the training windows (novelty detection).

    Score: the factor; about 1 for a window as dense as its neighbours.
    """

    options_model = LocalOutlierFactorOptions
    kind = "lof"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the score among ``data``; nothing is random."""
        make, n_neighbors = study_module("sklearn.neighbors").LocalOutlierFactor, self.options.n_neighbors
        factor = make(n_neighbors=min(n_neighbors, len(data) - 1), novelty=True).fit(flat(data.values, data.lengths))
        return lambda windows, lengths: -factor.score_samples(flat(windows, lengths))
