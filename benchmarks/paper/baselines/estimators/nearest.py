"""Distance to the nearest training window: the simplest peer, on the raw window.

Legend: B windows, N training windows, D features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.paper.baselines.data import flat
from benchmarks.paper.baselines.estimators.refit import EstimatorOptions, RefitDetector, Score
from streamad.types import WindowSet

CHUNK_BYTES = 64 << 20  # bounds the table of distances of one step


class NearestNeighbour(RefitDetector[EstimatorOptions]):
    """Euclidean distance to the nearest training window, zero-padded, unscaled.

    Cover and Hart (1967), used for anomaly scores. Score: that distance, in the unit of the channels; 0 for a training
    window.
    """

    options_model = EstimatorOptions
    kind = "nearest"

    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the distance to ``data``; nothing is random."""
        known = flat(data.values, data.lengths)
        return lambda windows, lengths: nearest_distance(flat(windows, lengths), known)


def nearest_distance(rows: npt.NDArray[np.float64], known: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return for each of ``rows`` [B, D] the Euclidean distance to the nearest of ``known`` [N, D]."""
    centre = known.mean(axis=0)  # |a|^2 + |b|^2 - 2 a b loses digits if the rows lie far from 0
    rows, known = rows - centre, known - centre
    squares, step = (known**2).sum(axis=1), max(1, CHUNK_BYTES // known.itemsize // len(known))
    nearest = np.concatenate(
        [
            (part**2).sum(axis=1) + (squares - 2 * (part @ known.T)).min(axis=1)
            for part in np.split(rows, range(step, len(rows), step))
        ]
    )
    distance: npt.NDArray[np.float64] = np.sqrt(np.maximum(nearest, 0.0))
    return distance
