from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from benchmarks.paper.baselines.estimators import nearest
from benchmarks.paper.baselines.estimators.nearest import NearestNeighbour, nearest_distance
from streamad.types import WindowSet


def test_the_score_is_the_distance_over_the_padded_window() -> None:
    known = WindowSet(np.zeros((2, 2, 3), np.float32), np.array([3, 3]), ("a", "b"))
    known.values[1] = 10.0
    window = np.array([[[3.0, 0.0, 99.0], [4.0, 0.0, 99.0]]], np.float32)
    assert NearestNeighbour().fit(known, seed=0).score(window, np.array([2]))[0, 0] == pytest.approx(5.0)


def test_a_training_window_lies_at_distance_0_far_from_the_origin() -> None:
    rows = 1e4 + np.random.default_rng(0).normal(0, 1e-2, (30, 5))
    assert nearest_distance(rows, rows).max() < 1e-6


@pytest.mark.parametrize("chunk_bytes", [1, 8 * 40 * 3, 1 << 20])
def test_the_distance_does_not_depend_on_how_the_table_is_cut(
    chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "CHUNK_BYTES", chunk_bytes)
    rng = np.random.default_rng(0)
    rows, known = rng.normal(5, 1, (10, 7)), rng.normal(5, 1, (40, 7))
    np.testing.assert_allclose(nearest_distance(rows, known), cdist(rows, known).min(axis=1), rtol=1e-9)
