"""From results to cells: complete seeds only, deviation over seeds, never a number of the paper's as ours."""

from __future__ import annotations

import pytest

from benchmarks.paper.report.summary import Entry, entries, summarise
from tests.unit.benchmarks.paper.results import result

TASKS = ("0", "1", "2", "3")


def entry_of(found: list[Entry], table: int, dataset: str, method: str) -> Entry:
    (entry,) = [one for one in found if (one.table, one.dataset, one.method) == (table, dataset, method)]
    return entry


def test_a_seed_is_the_mean_over_its_tasks_and_the_deviation_is_over_seeds() -> None:
    aucs = {0: (0.5, 0.6, 0.7, 0.8), 1: (0.6, 0.7, 0.8, 0.9)}
    results = [
        result(normal_name=name, seed=seed, auc=auc)
        for seed, of_seed in aucs.items()
        for name, auc in zip(TASKS, of_seed, strict=True)
    ]
    summary = summarise(results, "auc", TASKS)
    assert (summary.mean, summary.std, summary.seeds) == (pytest.approx(70.0), pytest.approx(50**0.5), 2)
    assert summary.incomplete == ()


def test_nothing_run_is_an_empty_cell_beside_the_printed_number() -> None:
    entry = entry_of(entries([]), 1, "natops", "neutral_ad")
    assert (entry.ours, entry.difference, entry.summary.seeds) == (None, None, 0)
    assert entry.as_json() == {
        "table": 1,
        "dataset": "natops",
        "protocol": "one_vs_rest",
        "method": "neutral_ad",
        "metric": "auc",
        "ours": None,
        "std": None,
        "seeds": 0,
        "paper": 94.5,
        "paper_std": 0.8,
        "difference": None,
        "seconds": None,
        "incomplete": [],
    }


def test_table_3_takes_f1_of_the_one_task_of_each_seed() -> None:
    results = [
        result("arrhythmia", "inliers", protocol="tabular", method="neutral_ad", seed=seed, auc=0.1, f1=f1)
        for seed, f1 in enumerate((0.58, 0.60, 0.62))
    ]
    entry = entry_of(entries(results), 3, "arrhythmia", "neutral_ad")
    assert (entry.ours, entry.summary.std, entry.summary.seeds) == (pytest.approx(60.0), pytest.approx(2.0), 3)
    assert entry.difference == pytest.approx(-0.3)


def test_another_method_that_was_run_follows_and_a_variant_stays_out() -> None:
    results = [result(normal_name=name, method=method) for name in TASKS for method in ("simclr", "new")]
    results += [result("natops", method="neutral_ad", variant="residual-k04", protocol="ablation")]
    methods = [entry.method for entry in entries(results) if (entry.table, entry.dataset) == (1, "racket_sports")]
    assert methods[-5:] == ["minirocket", "rockad", "nearest", "simclr", "new"]
    assert "simclr" not in {entry.method for entry in entries(results) if entry.table == 2}
