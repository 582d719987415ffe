from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.detector import faults
from benchmarks.detector.cells import Cell, add_cell, read_cells
from benchmarks.detector.choices import GRID, default
from benchmarks.detector.measure import CHOICES, measure
from benchmarks.detector.peers import PEERS, Ecod
from benchmarks.detector.report import PAGE, left_out, summary, tables, updated
from benchmarks.detector.sets import Case, Row, cases
from benchmarks.paper.data.datasets import Task
from streamad.errors import UsageError
from streamad.injected_faults import FAULT_KINDS
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


def cell(dataset: str, best: int) -> Cell:
    aucs = [50.0] * len(GRID)
    aucs[best] = 90.0
    return Cell(dataset=dataset, protocol="one_vs_rest", label=0, method=CHOICES, aucs=tuple(aucs))


def test_the_default_of_the_grid_is_the_product_s() -> None:
    whole, choices = (measure(CASE, method, n_training=0, seed=0) for method in ("ensemble", CHOICES))
    assert len(choices.aucs) == len(GRID)
    assert choices.aucs[GRID.index(default())] == pytest.approx(whole.auc, abs=0.5)
    assert min(choices.aucs) > 80


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # aeon's QUANT with this numpy
@pytest.mark.parametrize("method", PEERS)
def test_a_peer_tells_anomalies_and_scores_a_window_alike_alone(method: str) -> None:
    fitted = PEERS[method]().fit(NORMAL, seed=0, device="cpu")
    scores = fitted.score(TASK.test.values, TASK.test.lengths)[:, 0]
    assert auc(scores, TASK.is_anomaly) > 0.7
    for place in (0, 39):
        alone = fitted.score(TASK.test.values[place : place + 1], TASK.test.lengths[place : place + 1])
        np.testing.assert_allclose(alone[0, 0], scores[place], rtol=1e-4)


def test_a_reading_further_out_than_all_training_windows_has_the_largest_tail() -> None:
    values = np.arange(1.0, 10.0, dtype=np.float32).reshape(9, 1, 1).repeat(2, axis=2)
    known = WindowSet(values, np.full(9, 2), tuple(map(str, range(9))))
    fitted = Ecod().fit(known, seed=0, device="cpu")
    scores = fitted.score(np.array([[[5.0, 5.0]], [[20.0, 20.0]], [[-3.0, -3.0]]], np.float32), np.full(3, 2))[:, 0]
    assert scores[1:] == pytest.approx([2 * np.log(10)] * 2, rel=1e-5)  # (0 + 1) of (9 + 1), two readings
    assert scores[0] == pytest.approx(2 * np.log(10 / 6), rel=1e-5)


def test_every_kind_is_judged_on_every_fault_of_a_simulated_plant() -> None:
    found = list(faults.measured([5], n_training=12, n_normal=8, n_faulty=len(FAULTS)))
    assert {each.fault for each in found if each.source == "simulated"} == {fault.name for fault in FAULTS}
    assert {each.fault for each in found if each.source == "injected"} == {kind.name for kind in FAULT_KINDS}
    assert len(found) == len(faults.KINDS) * (len(FAULTS) + len(FAULT_KINDS))
    assert np.mean([each.auc for each in found if each.detector == "ensemble"]) > 80


def test_the_table_of_faults_has_the_mean_over_plants() -> None:
    figures = [faults.Found("injected", "bias", "pca", seed, auc) for seed, auc in ((0, 80.0), (1, 90.0))]
    assert "| injected | `bias` | 85.0 |\n| injected | mean | 85.0 |" in faults.table(figures)


def test_rows_say_their_seeds_and_differences_to_peers_are_paired() -> None:
    rows = [cell("ACSF1", 3), replace(cell("ACSF1", 3), seed=1), cell("GunPoint", 5)]
    peers = [replace(rows[0], method="hydra", aucs=(), auc=45.0), replace(rows[2], method="hydra", aucs=(), auc=47.0)]
    assert "| ACSF1 | 1vR | 2 | 50.0 | 50.0 | 45.0 | 90.0 |" in tables([*rows, *peers])
    found = summary([*rows, *peers])
    assert "| Hydra + 1-NN | 46.0 | - | +4.0 (+3.0 to +5.0) | +3.0 GunPoint | +5.0 ACSF1 |" in found
    assert "The best of these" not in found
    assert "is better on 1 of 2 rows: ACSF1 1vR 2.5." in summary([*rows, replace(peers[0], auc=52.5), peers[1]])


def test_a_figure_on_a_set_owes_its_choice_to_the_other_sets() -> None:
    rows = [cell("ACSF1", 3), cell("GunPoint", 5), cell("OSULeaf", 5)]
    grid = {Row(each.dataset, each.protocol): np.array(each.aucs) for each in rows}
    assert left_out(grid, "ACSF1") == 5
    assert left_out(grid, "GunPoint") == 3  # of 3 and 5, which are equally good elsewhere, the first
    assert "| ACSF1 | 1vR | 1 | 50.0 | 50.0 | 90.0 |" in tables(rows)


def test_cells_are_stored_once_and_sorted(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    for each in (cell("OSULeaf", 1), cell("ACSF1", 2), cell("OSULeaf", 4)):
        add_cell(each, path)
    assert read_cells(path) == [cell("ACSF1", 2), cell("OSULeaf", 4)]
    assert path.read_bytes().count(b"\n") == 2


def test_the_page_is_what_the_stored_cells_give() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page, read_cells()) == page
    with pytest.raises(UsageError, match="lacks"):
        updated("no marks", read_cells())


def test_the_sets_of_aeon_need_no_network() -> None:
    (first, *others) = cases("ItalyPowerDemand")
    assert first.row == Row("ItalyPowerDemand", "one_vs_rest")
    assert first.task.train.values.shape == (34, 1, 24)
    assert len(first.task.test) == len(first.task.is_anomaly) == 1029
    assert len(others) == 1  # of two classes, leaving one out is the same as taking the other
