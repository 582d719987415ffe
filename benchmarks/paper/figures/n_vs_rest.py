"""AUC over the number of normal classes on SAD and NATOPS, for every method that was run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.paper.figures.style import new_figure
from benchmarks.paper.report.curves import Point, sweep
from benchmarks.paper.report.names import DATASET_NAMES, METHOD_NAMES
from benchmarks.paper.todo import read_current

_DATASETS = ("spoken_arabic_digits", "natops")
_MARKERS = "os^vD<>pPX*hd1"


def draw(results: Path) -> Figure | None:
    """Return a panel for each data set that was run; bars are the deviation over several seeds. None: no cells."""
    all_results = read_current(results)[0]
    curves = {dataset: of_dataset for dataset in _DATASETS if (of_dataset := sweep(all_results, dataset))}
    methods = [name for name in METHOD_NAMES if any(name in of_dataset for of_dataset in curves.values())]
    if not methods:
        return None
    figure = new_figure(5.0 * len(curves) + 2, 4.6)
    for axis, dataset in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        for number, method in enumerate(methods):
            if method in curves[dataset]:
                _plot(axis, method, number, curves[dataset][method])
        axis.set_title(DATASET_NAMES[dataset])
        axis.set_xlabel("number of normal classes n")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("AUC (x100)")
    labelled: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        labelled |= dict(zip(labels, handles, strict=True))
    figure.legend(list(labelled.values()), list(labelled), loc="outside right center", frameon=False, fontsize=9)
    return figure


def _plot(axis: Axes, method: str, number: int, points: list[Point]) -> None:
    is_ours = method == "neutral_ad"
    axis.errorbar(
        [point.x for point in points],
        [point.summary.mean or 0.0 for point in points],
        yerr=[point.summary.std or 0.0 for point in points],
        label=METHOD_NAMES[method],
        color="black" if is_ours else f"C{number % 10}",
        linestyle="-" if number < 10 or is_ours else "--",
        linewidth=2.2 if is_ours else 1.1,
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=4,
        capsize=2,
    )
