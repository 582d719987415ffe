from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.detector.cells import Cell, add_cell, read_cells
from benchmarks.detector.choices import GRID, default
from benchmarks.detector.measure import CHOICES, measure
from benchmarks.detector.report import PAGE, left_out, tables, updated
from benchmarks.detector.sets import Case, Row, cases
from benchmarks.paper.data.datasets import Task
from streamad.errors import UsageError
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


def test_a_figure_on_a_set_owes_its_choice_to_the_other_sets() -> None:
    rows = [cell("ACSF1", 3), cell("GunPoint", 5), cell("OSULeaf", 5)]
    grid = {Row(each.dataset, each.protocol): np.array(each.aucs) for each in rows}
    assert left_out(grid, "ACSF1") == 5
    assert left_out(grid, "GunPoint") == 3  # of 3 and 5, which are equally good elsewhere, the first
    assert "| ACSF1 | 1vR | 50.0 | 50.0 | 90.0 |" in tables(rows)


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
