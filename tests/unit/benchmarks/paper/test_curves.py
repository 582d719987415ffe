"""The figures with an axis: n normal classes with the tables at its ends, K for each form of T_k."""

from __future__ import annotations

import pytest

from benchmarks.paper.protocols import Block, normal_sets
from benchmarks.paper.report.curves import ablation, curves_as_json, sweep
from benchmarks.paper.report.names import METHOD_NAMES
from tests.unit.benchmarks.paper.results import result


def of_block(block: Block, n: int | None = None, **changes: object) -> list:
    tasks = normal_sets(block)
    return [
        result(block.dataset, name, protocol=block.protocol, normal=classes, **changes)
        for name, classes in tasks.items()
        if n in (None, len(classes))
    ]


def test_the_ends_of_the_axis_are_the_two_protocols_of_the_tables() -> None:
    results = [
        *of_block(Block("natops", "one_vs_rest", 0), auc=0.9),
        *of_block(Block("natops", "sweep", 0), 2, auc=0.8),
        *of_block(Block("natops", "sweep", 0), 4, auc=0.7),
        *of_block(Block("natops", "sweep", 0), 3, auc=0.1)[1:],
        *of_block(Block("natops", "n_vs_rest", 0), auc=0.6),
    ]
    (curve,) = sweep(results, "natops").values()
    assert [(point.x, point.summary.mean) for point in curve] == [
        (1, pytest.approx(90)),
        (2, pytest.approx(80)),
        (4, pytest.approx(70)),
        (5, pytest.approx(60)),
    ]


def test_a_method_that_has_only_the_ends_is_no_curve() -> None:
    assert sweep(of_block(Block("natops", "one_vs_rest", 0)), "natops") == {}


def test_the_ablation_has_a_curve_for_each_form() -> None:
    results = [
        result(
            "arrhythmia", "inliers", protocol="ablation", method="neutral_ad", variant=f"{name}-k{k:02d}", f1=k / 100
        )
        for name in ("residual", "feed_forward")
        for k in (2, 15)
    ]
    curves = ablation(results, "arrhythmia")
    assert list(curves) == ["feed_forward", "residual"]
    assert [(point.x, point.summary.mean) for point in curves["residual"]] == [
        (2, pytest.approx(2)),
        (15, pytest.approx(15)),
    ]
    found = [point for point in curves_as_json(results) if point["ours"] is not None]
    assert found[0] == {
        "table": "ablation",
        "dataset": "arrhythmia",
        "protocol": "ablation",
        "method": "neutral_ad",
        "metric": "f1",
        "k": 2,
        "transformation": "feed_forward",
        "ours": 2.0,
        "std": None,
        "seeds": 1,
        "paper": None,
    }


def test_a_point_that_was_not_run_has_no_figure_of_ours() -> None:
    results = of_block(Block("natops", "sweep", 0), 2, auc=0.8)
    found = curves_as_json(results)
    natops = [point for point in found if (point["table"], point["dataset"]) == ("sweep", "natops")]
    protocols = [(point["n"], point["protocol"]) for point in natops if point["method"] == "lof"]
    assert protocols == [(1, "one_vs_rest"), *((n, "sweep") for n in (2, 3, 4)), (5, "n_vs_rest")]
    assert {point["method"] for point in natops} == set(METHOD_NAMES)
    assert [point["n"] for point in natops if point["ours"] is not None] == [2]
    assert sum(point["table"] == "ablation" for point in found) == 2 * 3 * 14
