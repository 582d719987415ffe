from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import OneClassSVM

from benchmarks.paper.baselines.estimators.rockad import Rockad, RockadOptions
from benchmarks.paper.baselines.estimators.shallow import (
    IsolationForest,
    LocalOutlierFactor,
    OneClassSvm,
    OneClassSvmOptions,
)
from streamad.types import WindowSet
from tests.support.detectors import ROWS, SEQUENCES, Case, rows


@pytest.mark.parametrize("nu", [0.1, 0.5])
def test_nu_bounds_the_share_of_training_windows_outside(nu: float) -> None:
    data = rows(200)
    scores = OneClassSvm(OneClassSvmOptions(nu=nu)).fit(data, seed=0).score(data.values, data.lengths)
    assert np.mean(scores > 1e-6) == pytest.approx(nu, abs=0.03)


def test_repeated_windows_weigh_as_the_library_itself_weighs_them() -> None:
    values = np.random.default_rng(0).normal(size=(60, 3, 1)).astype(np.float32)
    data = _rows(np.concatenate([values, np.repeat(values[:10], 20, axis=0)]))
    svm = OneClassSVM(nu=0.5).fit(data.values[:, :, 0].astype(np.float64))
    ours = OneClassSvm().fit(data, seed=0).score(values, np.ones(60, np.int64))[:, 0]
    assert ours == pytest.approx(-svm.decision_function(values[:, :, 0]), abs=0.02)
    assert np.ptp(ours) > 5


def test_windows_all_alike_are_no_obstacle_to_the_svm() -> None:
    data = _rows(np.ones((20, 3, 1), np.float32))
    alike, other = OneClassSvm().fit(data, seed=0).score(np.float32([[[1]] * 3, [[3]] * 3]), np.ones(2, np.int64))[:, 0]
    assert alike < other


def test_a_forest_scores_within_0_and_1() -> None:
    scores = IsolationForest().fit(ROWS.normal, seed=0).score(ROWS.anomalous.values, ROWS.anomalous.lengths)
    assert scores.min() > 0.5
    assert scores.max() <= 1


def test_the_factor_is_1_amid_an_even_grid_and_grows_with_the_distance() -> None:
    grid = np.stack(np.meshgrid(np.arange(15.0), np.arange(15.0)), axis=-1).reshape(-1, 2, 1).astype(np.float32)
    fitted = LocalOutlierFactor().fit(_rows(grid), seed=0)
    queries = np.array([[7.5, 7.5], [7.5, 20.0], [7.5, 50.0]], np.float32)[:, :, None]
    amid, near, far = fitted.score(queries, np.ones(3, np.int64))[:, 0]
    assert amid == pytest.approx(1, abs=0.05)
    assert 2 < near < far / 3


@pytest.mark.parametrize(
    ("detector", "case", "n", "least"),
    [
        (LocalOutlierFactor(), ROWS, 5, 1.5),
        (Rockad(RockadOptions(n_kernels=20, n_estimators=3)), SEQUENCES, 4, 1.0),
    ],
    ids=["lof", "rockad"],
)
def test_fewer_windows_than_neighbours_are_neighbours_all(detector: Any, case: Case, n: int, least: float) -> None:
    fitted = detector.fit(case.normal.take(np.arange(n)), seed=0)
    assert fitted.score(case.anomalous.values, case.anomalous.lengths).min() > least


def _rows(values: np.ndarray) -> WindowSet:
    return WindowSet(values, np.ones(len(values), np.int64), tuple(str(i) for i in range(len(values))))


@pytest.mark.parametrize(("make", "printed"), [(OneClassSvm, 89.2), (LocalOutlierFactor, 86.0)])
def test_the_papers_value_on_natops_comes_out(
    make: Callable[[], Any], printed: float, data_file: Callable[[str], Path]
) -> None:
    """One-vs-rest AUC x 100, mean over the classes: table 1, whose columns of these two are exchanged there."""
    with np.load(data_file("natops.npz"), allow_pickle=False) as arrays:
        train, test, y, test_y = (arrays[name] for name in ("train_x", "test_x", "train_y", "test_y"))
    lengths = np.full(len(test), test.shape[2], np.int64)
    aucs = []
    for normal in np.unique(y):
        known = train[y == normal]
        data = WindowSet(known, lengths[: len(known)], tuple(str(i) for i in range(len(known))))
        scores = make().fit(data, seed=0).score(test, lengths)[:, 0]
        high, low = scores[test_y != normal][:, None], scores[test_y == normal]
        aucs.append(np.mean((high > low) + 0.5 * (high == low)))
    assert 100 * np.mean(aucs) == pytest.approx(printed, abs=0.05)
