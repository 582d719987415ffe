"""The results of measured cells: one model at a time, and several trained at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from benchmarks.paper.measure import measure, task_of
from benchmarks.paper.methods import METHODS, Method
from benchmarks.paper.results_table import Cell, Code
from streamad.errors import DetectorError
from streamad.ports import TrainingSummary
from streamad.types import FloatArray, IntArray, WindowSet
from tests.unit.benchmarks.paper.archives import write_waves


class NoOptions(BaseModel):
    pass


class Distance:
    """Scores a window by its distance from the mean of the training set."""

    options_model: type[BaseModel] = NoOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        self.options = options

    def fit(self, data: WindowSet, *, seed: int, device: str, **_: Any) -> FittedDistance:
        return FittedDistance(data, seed)


class FittedDistance:
    def __init__(self, data: WindowSet, seed: int) -> None:
        self.centre = data.values.mean(axis=0)
        self.summary = TrainingSummary(len(data), 4, 3, 0.25, 0.0, "cpu", {"seed": seed, "width": 8})

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        terms: FloatArray = np.square(windows - self.centre).mean(axis=2)
        return terms


class NotANumber(Distance):
    def fit(self, data: WindowSet, *, seed: int, device: str, **_: Any) -> FittedDistance:
        fitted = super().fit(data, seed=seed, device=device)
        fitted.centre[0, 0] = np.nan
        return fitted


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RacketSports as waves of four speeds, and two methods that measure the distance."""
    classes = np.repeat(np.arange(4), 8)
    write_waves(tmp_path, classes, classes, n_channels=2)
    monkeypatch.setenv("STREAMAD_DATA", str(tmp_path))
    monkeypatch.setitem(METHODS, "lof", Method(f"{__name__}:Distance", revision=3))
    monkeypatch.setitem(METHODS, "goad", Method(f"{__name__}:NotANumber"))


def cell(normal: int, seed: int = 0, method: str = "lof") -> Cell:
    return Cell("racket_sports", "one_vs_rest", method, seed, (normal,), str(normal))


def test_a_cell_s_figures_are_of_its_own_classes() -> None:
    (one,) = measure((cell(2, seed=5),), {}, "cpu", Code("commit", "tree"))
    assert one.revision == 3
    assert (one.cell, one.auc, one.ap, one.f1) == (cell(2, seed=5), 1.0, 1.0, 1.0)
    assert (one.n_train, one.n_test, one.n_anomalies) == (8, 32, 24)
    assert one.options == {"width": 8}, "the seed is the cell's"
    assert (one.models_at_once, one.git_commit, one.detectors_tree, one.peak_gpu_memory_mb) == (
        1,
        "commit",
        "tree",
        None,
    )
    assert (one.best_epoch, one.best_loss) == (3, 0.25)


def test_models_trained_at_once_are_judged_each_by_its_own_task() -> None:
    cells = tuple(cell(normal, seed, "neutral_ad") for normal, seed in ((0, 0), (3, 0), (3, 1)))
    small = {"epochs": 3, "n_transformations": 2, "base_width": 4}
    several = measure(cells, small, "cpu")
    alone = [measure((one,), small, "cpu")[0] for one in cells]
    assert [one.cell for one in several] == list(cells)
    assert [one.auc for one in several] == pytest.approx([one.auc for one in alone], abs=0.02)
    assert len({one.auc for one in several}) == 3
    assert [one.options for one in several] == [one.options for one in alone]
    assert len({one.fit_s for one in several}) == 1
    assert [one.models_at_once for one in (*several, *alone)] == [3, 3, 3, 1, 1, 1]


def test_the_seed_draws_the_training_rows_only_under_a_drawn_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMAD_DATA", str(tmp_path))
    np.savez(tmp_path / "thyroid.npz", x=np.eye(9, dtype=np.float32), y=np.r_[np.zeros(8), 1].astype(np.int32))
    trained = {
        protocol: {task_of(Cell("thyroid", protocol, "lof", seed)).train.ids for seed in range(4)}
        for protocol in ("tabular", "tabular_drawn")
    }
    assert len(trained["tabular"]) == 1
    assert len(trained["tabular_drawn"]) > 1


def test_scores_that_are_not_finite_are_a_failure_of_the_cell() -> None:
    with pytest.raises(DetectorError, match="normal 0, seed 0: 32 of 32 scores are not finite"):
        measure((cell(0, method="goad"),), {}, "cpu")
