"""The points of the curves: figures over n normal classes, and over K for each parametrisation.

A point counts only with all of its tasks, as a table's cell does (``summary``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.paper.protocols import ABLATION_KS, CLASSES, FIGURES, PARAMETRISATIONS, Block, normal_sets
from benchmarks.paper.report.names import METHOD_NAMES, in_order
from benchmarks.paper.report.summary import Summary, summarise
from benchmarks.paper.results_table import Result

ABLATION_METRICS: Final = {"natops": "auc", "arrhythmia": "f1"}


@dataclass(frozen=True, slots=True)
class Point:
    """A figure in percent at ``x`` (n normal classes, or K)."""

    x: int
    summary: Summary


def sweep(results: Iterable[Result], dataset: str) -> dict[str, list[Point]]:
    """Return method -> AUC over n consecutive normal classes, n from 1 to N - 1, points without a run left out."""
    last = len(CLASSES[dataset]) - 1
    curves = {method: _run(points) for method, points in _whole_sweep(results, dataset).items()}
    return {method: points for method, points in curves.items() if any(1 < point.x < last for point in points)}


def _whole_sweep(results: Iterable[Result], dataset: str) -> dict[str, list[Point]]:
    """Return every method's points, also those that were not run."""
    by_method: dict[str, list[Result]] = {method: [] for method in METHOD_NAMES}
    for result in results:
        if result.dataset == dataset and not result.variant:
            by_method.setdefault(result.method, []).append(result)
    blocks = _sweep_blocks(dataset)
    return {
        method: [Point(n, _at(by_method[method], block, n)) for n, block in blocks.items()]
        for method in in_order(by_method)
    }


def _run(points: Iterable[Point]) -> list[Point]:
    return [point for point in points if point.summary.mean is not None]


def _sweep_blocks(dataset: str) -> dict[int, Block]:
    """Return n -> the block that its tasks are of; the ends of the axis are protocols of their own."""
    n_classes = len(CLASSES[dataset])
    ends = {1: Block(dataset, "one_vs_rest", 0), n_classes - 1: Block(dataset, "n_vs_rest", 0)}
    return {n: ends.get(n, Block(dataset, "sweep", 0)) for n in range(1, n_classes)}


def _at(results: Iterable[Result], block: Block, n: int) -> Summary:
    tasks = [name for name, classes in normal_sets(block).items() if len(classes) == n]
    return summarise((one for one in results if one.protocol == block.protocol), "auc", tasks)


def ablation(results: Iterable[Result], dataset: str) -> dict[str, list[Point]]:
    """Return parametrisation -> NeuTraL AD's figure over K: AUC on NATOPS, F1 on Arrhythmia; none not run."""
    curves = {name: _run(points) for name, points in _whole_ablation(results, dataset).items()}
    return {name: points for name, points in curves.items() if points}


def _whole_ablation(results: Iterable[Result], dataset: str) -> dict[str, list[Point]]:
    """Return every form's points, also those that were not run."""
    block = next(block for block in FIGURES["ablation"] if block.dataset == dataset)
    by_variant: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if (result.dataset, result.protocol) == (dataset, "ablation"):
            by_variant[result.variant].append(result)

    def at(name: str, k: int) -> Summary:
        return summarise(by_variant.get(f"{name}-k{k:02d}", []), ABLATION_METRICS[dataset], normal_sets(block))

    return {name: [Point(k, at(name, k)) for k in ABLATION_KS] for name in PARAMETRISATIONS}


def curves_as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return one object a point, as the report prints them, "ours" null if it was not run.

    The paper prints no numbers of its figures.
    """
    found = []
    for block in FIGURES["sweep"]:
        blocks = _sweep_blocks(block.dataset)
        for method, points in _whole_sweep(results, block.dataset).items():
            found += [_as_json("sweep", blocks[point.x], method, "auc", point, n=point.x) for point in points]
    for block in FIGURES["ablation"]:
        metric = ABLATION_METRICS[block.dataset]
        for name, points in _whole_ablation(results, block.dataset).items():
            found += [
                _as_json("ablation", block, "neutral_ad", metric, point, k=point.x, transformation=name)
                for point in points
            ]
    return found


def _as_json(figure: str, block: Block, method: str, metric: str, point: Point, **place: Any) -> dict[str, Any]:
    cell = {"table": figure, "dataset": block.dataset, "protocol": block.protocol, "method": method, "metric": metric}
    return {**cell, **place, **point.summary.as_json(), "paper": None}
