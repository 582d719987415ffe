"""Learned multiplicative transformations of a spoken digit of each class, the first row the normal one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.paper.figures.models import SAD_FOUR, rank_labels
from benchmarks.paper.figures.stores import stored
from benchmarks.paper.figures.style import new_figure, view_name


def draw(results: Path) -> Figure:
    """Return a row for each class and a column for each view, all in one colour scale; scores at the left."""
    arrays = stored("sad_views", results)
    views, lengths, scores = (arrays[f"example_{name}"] for name in ("views", "lengths", "scores"))
    figure = new_figure(10, 1.1 * len(views) + 0.6)
    axes = figure.subplots(*views.shape[:2], sharex=True, sharey=True, squeeze=False)
    limit = float(np.quantile(np.abs(views), 0.97))
    labels = rank_labels(scores, arrays["inliers_z"], SAD_FOUR)
    for number, row in enumerate(axes):
        for view, axis in enumerate(row):
            values = np.where(np.arange(views.shape[3]) < lengths[number], views[number, view], np.nan)
            shown = axis.imshow(
                values, aspect="auto", origin="lower", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest"
            )
        kind = "normal" if number == 0 else "anomaly"
        row[0].set_ylabel(f"digit {number}, {kind}\n{labels[number]}", fontsize=7)
    for view, axis in enumerate(axes[0]):
        axis.set_title(view_name(view))
    for axis in axes[-1]:
        axis.set_xlabel("frame")
    figure.colorbar(shown, ax=axes, label="coefficient's value", shrink=0.5, extend="both")
    figure.supylabel("MFCC number", fontsize=10)
    return figure
