"""Views of SAD's held-out sequences in three principal components: data and embedding space, inliers and anomalies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.paper.figures.models import principal_axes
from benchmarks.paper.figures.stores import Arrays, stored
from benchmarks.paper.figures.style import VIEWS, new_figure, view_name

_PANELS = (("inliers", "x"), ("anomalies", "x"), ("inliers", "z"), ("anomalies", "z"))
_SPACES = {"x": "data space", "z": "embedding space"}


def draw(results: Path) -> Figure:
    """Return four clouds; the axes of both spaces are those of the inliers and their views, shared by the anomalies."""
    arrays = stored("sad_views", results)
    figure = new_figure(9.5, 8.8)
    for place, (kind, space) in enumerate(_PANELS, start=1):
        axis: Any = figure.add_subplot(2, 2, place, projection="3d")
        points_Vn3 = _projected(arrays, kind, space)
        for view, points_n3 in enumerate(points_Vn3):
            axis.scatter(*points_n3.T, s=5, color=VIEWS[view], depthshade=False, label=view_name(view))
        axis.set_box_aspect(None, zoom=0.9)
        axis.set_title(f"{kind}, {_SPACES[space]}", fontsize=10, y=0.98)
        for number, name in enumerate("xyz", start=1):
            getattr(axis, f"set_{name}label")(f"component {number}", fontsize=8, labelpad=-4)
            axis.tick_params(axis=name, labelsize=7, pad=-1)
        _same_limits(axis, np.concatenate([_projected(arrays, other, space) for other in ("inliers", "anomalies")]))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(VIEWS), frameon=False, markerscale=3)
    return figure


def _projected(arrays: Arrays, kind: str, space: str) -> Any:
    points = arrays[f"{kind}_{space}"]
    if space == "x":
        return points  # projected when they were stored
    mean, axes = principal_axes(arrays["inliers_z"].reshape(-1, points.shape[2]))
    return (points - mean) @ axes


def _same_limits(axis: Any, points: Any) -> None:
    low, high = points.reshape(-1, 3).min(axis=0), points.reshape(-1, 3).max(axis=0)
    for name, lowest, highest in zip("xyz", low, high, strict=True):
        getattr(axis, f"set_{name}lim")(lowest, highest)
