"""Sentences of docs/model/paper.md name cells, and tell what the tables show."""

from __future__ import annotations

from benchmarks.paper.protocols import CLASSES
from benchmarks.paper.report.prose import NOT_RUN, named
from benchmarks.paper.report.report import build
from benchmarks.paper.report.summary import HALVES, entries
from tests.unit.benchmarks.paper.results import result


def test_a_cell_is_named_by_data_set_table_and_method() -> None:
    tasks = map(str, range(len(CLASSES["racket_sports"])))
    results = [result(normal_name=name, seed=seed, auc=0.6 + seed / 10) for name in tasks for seed in (0, 1)]
    results += [result("thyroid", "inliers", protocol="tabular_drawn", f1=0.5)]
    figures = named([*entries(results), *entries(results, (HALVES,))])
    assert (figures["racket_sports_1_lof"], figures["racket_sports_1_lof_pm"]) == ("65.0", "65.0 ± 7.1")
    assert (figures["thyroid_0_lof"], figures["thyroid_0_lof_pm"]) == ("50.0", "50.0")
    assert figures["racket_sports_2_lof"] == figures["epilepsy_1_simclr_pm"] == NOT_RUN


def test_a_sentence_says_of_a_cell_that_has_no_figure_that_it_was_not_run() -> None:
    assert build("LOF has ${racket_sports_1_lof}.", [], entries([])).endswith("LOF has (not run).")
