from __future__ import annotations

import numpy as np

from benchmarks.paper.baselines.estimators.minirocket import MiniRocketNearest, MiniRocketOptions, padded
from streamad.types import WindowSet
from tests.support.detectors import SEQUENCES

SMALL = MiniRocketOptions(n_features=168)


def test_a_training_window_lies_at_distance_0() -> None:
    data = SEQUENCES.normal
    fitted = MiniRocketNearest(SMALL).fit(data, seed=0)
    assert fitted.score(data.values, data.lengths).max() < 1e-3


def test_the_features_are_standardised_on_the_training_windows() -> None:
    """Distances of D standardised features between unrelated windows are about sqrt(2 D), whatever the unit."""
    rng = np.random.default_rng(0)
    noise = WindowSet(rng.normal(0, 1, (60, 2, 24)).astype(np.float32), np.full(60, 24), tuple(map(str, range(60))))
    fitted = MiniRocketNearest(SMALL).fit(noise.take(np.arange(40)), seed=0)
    scores = fitted.score(noise.values[40:], noise.lengths[40:])
    assert 0.5 * np.sqrt(2 * 168) < scores.mean() < np.sqrt(2 * 168)


def test_padding_replaces_what_lies_beyond_the_length() -> None:
    found = padded(np.ones((2, 2, 3), np.float32), np.array([1, 3]))
    assert found.tolist() == [[[1, 0, 0]] * 2, [[1, 1, 1]] * 2]
    assert found.dtype == np.float32
