from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detector import faults, faulty_sets
from benchmarks.detector.baselines import FLOOR, LargestZ
from benchmarks.detector.cells import Cell, add_cell, read_cells
from benchmarks.detector.choices import DEFAULT, GRID, Logs, scores_of_grid
from benchmarks.detector.families import DATASETS, FAMILIES, tasks
from benchmarks.detector.faulty_sets import faulty_cases
from benchmarks.detector.measure import CHOICES, FORMER, METHODS, RATE, calibrated, found_at_rank, measure
from benchmarks.detector.report import (
    PAGE,
    family_means,
    figures_of,
    further_tables,
    grid_of,
    left_out,
    left_out_table,
    summary,
    tables,
    updated,
)
from benchmarks.detector.sets import Case, Row, cases
from benchmarks.paper.data.datasets import Task
from streamad.errors import UsageError
from streamad.injected_faults import FAULT_KINDS
from streamad.judge.calibration import Calibration, scores_of
from streamad.judge.evaluation import auc
from streamad.simulation.faults import FAULTS
from streamad.types import WindowSet
from tests.support.detectors import sequences

NORMAL, UNKNOWN = sequences(24), [sequences(30, seed=1), sequences(10, seed=1, anomalous=True)]
TASK = Task(
    NORMAL,
    WindowSet(
        np.concatenate([part.values for part in UNKNOWN]),
        np.concatenate([part.lengths for part in UNKNOWN]),
        tuple(map(str, range(40))),
    ),
    np.arange(40) >= 30,
)
CASE = Case(Row("made_up", "one_vs_rest"), 0, TASK)
ONE_OF_EACH = ("weak_faults", "GunPoint", "OSULeaf")


def grid_cell(dataset: str, best: int) -> Cell:
    aucs, shares = [50.0] * len(GRID), [10.0] * len(GRID)
    aucs[best], shares[best] = 90.0, 60.0
    return Cell(dataset, "one_vs_rest", 0, CHOICES, aucs=tuple(aucs), shares=tuple(shares))


def cell(dataset: str, method: str, auc: float, found: float, label: int = 0) -> Cell:
    return Cell(dataset, "one_vs_rest", label, method, auc=auc, found=found, false_alarms=2.0, fit_s=1.0)


@pytest.fixture(scope="module", autouse=True)
def _short_training() -> Iterator[None]:
    """A sixth of the default's steps of its network: what is compared has the same network."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("streamad_models.ensemble.learned._STEPS", 16)
        yield


@pytest.fixture(scope="module")
def grid_scores() -> list[Logs]:
    return scores_of_grid(TASK, 0)


def test_the_rule_of_the_grid_that_is_the_default_gives_the_scores_of_the_product(grid_scores: list[Logs]) -> None:
    fitted = METHODS["ensemble"]().fit(NORMAL, seed=0, device="cpu")
    scores = grid_scores
    assert len(scores) == len(GRID)
    expected = scores_of(fitted.score(TASK.test.values, TASK.test.lengths))
    np.testing.assert_allclose(scores[GRID.index(DEFAULT)], expected, rtol=1e-4)
    others = [each for each, choice in zip(scores, GRID, strict=True) if choice.network != DEFAULT.network]
    assert all(np.abs(each - expected).max() > 0.1 for each in others)


def test_a_cell_of_the_grid_has_both_figures_of_every_choice(
    grid_scores: list[Logs], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {(id(TASK), 0): grid_scores}  # scored once: it takes seconds
    monkeypatch.setattr("benchmarks.detector.choices.scores_of_grid", lambda task, seed: known[id(task), seed])
    found = measure(CASE, CHOICES, seed=0)
    assert len(found.aucs) == len(found.shares) == len(GRID)
    assert min(found.aucs) > 80


def test_few_windows_calibrate_out_of_fold_and_many_are_split() -> None:
    fitted, terms = calibrated(METHODS["pca"], TASK, 0)
    assert len(terms) == len(NORMAL)
    own = fitted.score(NORMAL.values, NORMAL.lengths)
    assert np.median(scores_of(terms)) > np.median(scores_of(own))  # by fits that did not see them
    many = sequences(160)
    _, terms = calibrated(METHODS["pca"], Task(many, TASK.test, TASK.is_anomaly), 0)
    assert 40 <= len(terms) <= 80


def test_the_share_found_is_that_of_p_values_up_to_the_rate() -> None:
    found = measure(CASE, "pca", seed=0)
    fitted, terms = calibrated(METHODS["pca"], TASK, 0)
    calibration = Calibration.from_terms(terms, RATE)
    p_values = np.array(
        [calibration.p_value(each)[0] for each in scores_of(fitted.score(TASK.test.values, TASK.test.lengths))]
    )
    assert found.found == pytest.approx(100 * (p_values[30:] <= RATE).mean(), abs=0.01)
    assert found.false_alarms == pytest.approx(100 * (p_values[:30] <= RATE).mean(), abs=0.01)
    assert (found.n_training, found.n_calibration) == (24, 24)


def test_the_rank_threshold_lets_the_rate_of_normal_windows_pass_and_no_more() -> None:
    scores, is_anomaly = np.arange(104.0), np.arange(104) >= 100
    assert found_at_rank(scores, is_anomaly, 0.02) == 1.0
    scores[100:] = [96.0, 97.0, 97.5, 100.0]  # two of a hundred normal ones, 98 and 99, may lie above the threshold
    assert found_at_rank(scores, is_anomaly, 0.02) == 0.5


def test_the_largest_z_tells_anomalies_and_scores_a_window_alike_alone() -> None:
    fitted = LargestZ().fit(NORMAL, seed=0, device="cpu")
    scores = fitted.score(TASK.test.values, TASK.test.lengths)[:, 0]
    assert auc(scores, TASK.is_anomaly) > 0.7
    for place in (0, 39):
        alone = fitted.score(TASK.test.values[place : place + 1], TASK.test.lengths[place : place + 1])
        np.testing.assert_allclose(alone[0, 0], scores[place], rtol=1e-4)


def test_the_largest_z_is_that_of_the_mean_of_the_channel_that_left_its_range() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 2, 20)).astype(np.float32)
    fitted = LargestZ().fit(WindowSet(values, np.full(50, 20), tuple(map(str, range(50)))), seed=0, device="cpu")
    window = values[:1] * 0
    window[0, 1] = 3.0
    scaled = (values[:, 1] - values[:, 1].mean()) / values[:, 1].std()
    means = scaled.mean(axis=1)
    expected = ((3.0 - values[:, 1].mean()) / values[:, 1].std() - means.mean()) / (means.std() + FLOOR)
    assert fitted.score(window, np.array([20]))[0, 0] == pytest.approx(expected, rel=0.02)


def test_the_former_default_is_not_measured_with_the_present_models() -> None:
    with pytest.raises(UsageError, match="f4a4ae99"):
        measure(CASE, FORMER, seed=0)


def test_every_kind_is_judged_on_every_fault_of_a_simulated_plant() -> None:
    found = list(faults.measured([5], n_training=12, n_normal=8, n_faulty=len(FAULTS)))
    assert {each.fault for each in found if each.source == "simulated"} == {fault.name for fault in FAULTS}
    assert {each.fault for each in found if each.source == "injected"} == {kind.name for kind in FAULT_KINDS}
    assert len(found) == len(faults.KINDS) * (len(FAULTS) + len(FAULT_KINDS))
    assert np.mean([each.auc for each in found if each.detector == "ensemble"]) > 80


def test_the_table_of_faults_has_the_mean_over_plants_and_the_worst_fault() -> None:
    figures = [faults.Found("injected", "bias", "pca", seed, auc) for seed, auc in ((0, 80.0), (1, 90.0))]
    figures += [faults.Found("injected", "drift", "pca", seed, 95.0) for seed in (0, 1)]
    assert "| injected | 90.0 |\n\nThe worst for `pca`: `bias` 85.0." in faults.table(figures)


def test_a_set_on_which_the_best_baseline_finds_more_is_named_with_the_means_of_its_tasks() -> None:
    rows = [cell("GunPoint", "ensemble", 80, 10), cell("GunPoint", "ensemble", 90, 20, label=1)]
    peers = [cell("GunPoint", "pca", 70, 10, label=label) for label in (0, 1)]
    peers += [cell("GunPoint", "nearest", 75, 20, label=label) for label in (0, 1)]
    assert "GunPoint 1vR 15, 1-NN 20." in tables([*rows, *peers])
    assert "GunPoint" not in tables([*rows, *peers[:-1]])  # a baseline without one of the tasks is left out
    assert "| default | - | 85.0 / 15 |" in summary([*rows, *peers])


def test_each_family_is_a_third_of_the_mean_and_a_missing_row_leaves_none() -> None:
    cells = [cell(name, "ensemble", auc, 10) for name, auc in zip(ONE_OF_EACH, (60, 90, 90), strict=True)]
    cells += [cell(name, "former", 50, 10) for name in ONE_OF_EACH]
    cells.append(cell("natops", "ensemble", 70, 10))
    table = figures_of(cells)
    means = family_means(table, "ensemble")
    assert means["movements"].auc == 80
    assert means["mean of the families"].auc == pytest.approx((60 + 80 + 90) / 3)
    assert set(family_means(table, "former")) == {"faults", "shapes"}
    assert "| former | 50.0 / 10 | - | 50.0 / 10 | - |" in summary(cells)


def test_a_figure_on_a_family_owes_its_choice_to_the_other_families() -> None:
    cells = [grid_cell(name, best) for name, best in zip(ONE_OF_EACH, (3, 5, 5), strict=True)]
    grid = grid_of(cells)
    assert left_out(grid, "faults") == 5
    assert left_out(grid, "movements") == 3  # of 3 and 5, which are equally good elsewhere, the first
    shown = left_out_table(grid)
    assert "| faults | 50.0 / 10 | 50.0 / 10 | 90.0 / 60 |" in shown
    assert left_out_table(grid_of(cells[:2])) == ""
    assert shown in further_tables(cells)


def test_of_cells_with_one_key_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    for each in (grid_cell("OSULeaf", 1), grid_cell("ACSF1", 2), grid_cell("OSULeaf", 4)):
        add_cell(each, path)
    assert read_cells(path) == [grid_cell("ACSF1", 2), grid_cell("OSULeaf", 4)]
    assert read_cells(tmp_path / "none.jsonl") == []


def test_the_page_is_what_the_stored_cells_give() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page, read_cells()) == page
    with pytest.raises(UsageError, match="lacks"):
        updated("no marks", read_cells())


def test_every_stored_cell_is_of_a_known_method_and_set() -> None:
    found = read_cells()
    assert {each.method for each in found} <= {*METHODS, CHOICES}
    assert {each.dataset for each in found} <= set(DATASETS)
    assert all(len(each.aucs) == len(GRID) for each in found if each.method == CHOICES)


def test_the_sets_of_aeon_need_no_network() -> None:
    (first, *others) = cases("ItalyPowerDemand")
    assert first.row == Row("ItalyPowerDemand", "one_vs_rest")
    assert first.task.train.values.shape == (34, 1, 24)
    assert len(first.task.test) == len(first.task.is_anomaly) == 1029
    assert len(others) == 1  # of two classes, leaving one out is the same as taking the other
    assert len(next(tasks("ItalyPowerDemand")).task.test) == 500


def test_a_weak_fault_is_added_to_later_batches_of_the_plant_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, n in (("_N_TRAINING", 6), ("_N_LATER", 6), ("_N_EACH", 1)):  # a batch takes long to simulate
        monkeypatch.setattr(faulty_sets, name, n)
    first, second = faulty_cases("weak_faults")
    assert len(first.task.train) == 6
    assert first.task.is_anomaly.sum() == len(FAULTS)
    assert first.task.train.units == first.task.test.units != ()
    assert (first.task.train.values != second.task.train.values).any()
    assert set(FAMILIES) == {"faults", "movements", "shapes"}
