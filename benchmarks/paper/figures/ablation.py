"""NeuTraL AD over the number K of its transformations, for each of their forms, on NATOPS and Arrhythmia."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.paper.figures.style import new_figure
from benchmarks.paper.report.curves import ABLATION_METRICS, Point, ablation
from benchmarks.paper.report.names import DATASET_NAMES
from benchmarks.paper.todo import read_current

_FORMS = {
    "feed_forward": "feed-forward $M(x)$",
    "residual": "residual $M(x) + x$",
    "multiplicative": "multiplicative $M(x) \\odot x$",
}

_BESIDE = 0.1  # of a K: so that bars of one K do not hide one another


def draw(results: Path) -> Figure | None:
    """Return a panel for each data set that was run; bars are the deviation over several seeds. None: no cells."""
    all_results = read_current(results)[0]
    curves = {dataset: forms for dataset in ABLATION_METRICS if (forms := ablation(all_results, dataset))}
    if not curves:
        return None
    figure = new_figure(5.0 * len(curves) + 1, 3.9)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (dataset, forms) in zip(panels, curves.items(), strict=True):
        for number, (name, label) in enumerate(_FORMS.items()):
            points = forms.get(name, [])
            axis.errorbar(
                [point.x + _BESIDE * (number - 1) for point in points],
                [point.summary.mean or 0.0 for point in points],
                yerr=[point.summary.std or 0.0 for point in points] if _has_bars(points) else None,
                label=label,
                color=f"C{number}",
                marker="os^"[number],
                markersize=4,
                capsize=2,
            )
        metric = ABLATION_METRICS[dataset].upper()
        axis.set(title=DATASET_NAMES[dataset], xlabel="number of transformations K", ylabel=f"{metric} (x100)")
        axis.grid(alpha=0.3)
        axis.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(_FORMS), frameon=False, fontsize=9)
    return figure


def _has_bars(points: Sequence[Point]) -> bool:
    return any(point.summary.std is not None for point in points)
