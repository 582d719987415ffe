"""Learned feed-forward transformations of a NATOPS movement of each class, the first row the normal one."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.paper.figures.models import NATOPS_FOUR, rank_labels
from benchmarks.paper.figures.stores import stored
from benchmarks.paper.figures.style import new_figure, view_name


def draw(results: Path) -> Figure:
    """Return a row for each class and a column for each view: a line for each of the 24 channels."""
    arrays = stored("natops_views", results)
    views, scores = arrays["example_views"], arrays["example_scores"]
    figure = new_figure(11, 1.5 * len(views) + 0.6)
    axes = figure.subplots(*views.shape[:2], sharex=True, sharey="col", squeeze=False)
    labels = rank_labels(scores, arrays["inliers_z"], NATOPS_FOUR)
    for number, row in enumerate(axes):
        for view, axis in enumerate(row):
            axis.plot(views[number, view].T, linewidth=0.7)
            axis.tick_params(labelsize=7)
        kind = "normal" if number == 0 else "anomaly"
        row[0].set_ylabel(f"class {number}, {kind}\n{labels[number]}", fontsize=8)
    for view, axis in enumerate(axes[0]):
        axis.set_title(view_name(view))
    for axis in axes[-1]:
        axis.set_xlabel("step")
    figure.suptitle(
        "24 coordinates (in the archive's unit) of hands, elbows, wrists and thumbs, and what $T_k$ makes of them",
        fontsize=10,
    )
    return figure
