"""Which of T_1, T_3 and T_4 dominates the score of Thyroid's test rows: their terms on a simplex."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from benchmarks.paper.figures.stores import stored
from benchmarks.paper.figures.style import ANOMALY, NORMAL, new_figure

CORNERS: Final = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])
SHOWN: Final = (0, 2, 3)


def draw(results: Path) -> Figure:
    """Return as many inliers as anomalies on the simplex, drawn at random, twice: by kind, and with their scores."""
    arrays = stored("thyroid_terms", results)
    shown = _as_many_of_each(arrays["is_anomaly"])
    terms, is_anomaly = arrays["terms"][shown], arrays["is_anomaly"][shown]
    points, scores = on_simplex(terms[:, SHOWN]), terms.sum(axis=1)
    figure = new_figure(10.5, 4.5)
    left, right = figure.subplots(1, 2)
    coloured = {"c": scores, "norm": LogNorm(scores.min(), scores.max()), "cmap": "viridis_r"}
    for kind, colour, marker, name in ((~is_anomaly, NORMAL, "o", "inliers"), (is_anomaly, ANOMALY, "^", "anomalies")):
        left.scatter(*points[kind].T, s=14, color=colour, marker=marker, alpha=0.6, linewidths=0, label=name)
        chosen = coloured | {"c": scores[kind]}
        drawn = right.scatter(*points[kind].T, s=14, marker=marker, linewidths=0, **chosen)
    for axis, title in (
        (left, "which transformation dominates"),
        (right, "the same, coloured by the score (sum of all four terms)"),
    ):
        _frame(axis)
        axis.set_title(title, fontsize=10, pad=14)
    left.legend(frameon=False, fontsize=9, loc="upper left")
    figure.colorbar(drawn, ax=right, label="score (logarithmic)", shrink=0.8)
    return figure


def _as_many_of_each(is_anomaly: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    anomalies, inliers = np.flatnonzero(is_anomaly), np.flatnonzero(~is_anomaly)
    return np.concatenate([np.random.default_rng(0).permutation(inliers)[: len(anomalies)], anomalies])


def on_simplex(terms_n3: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the points [n, 2] in the triangle of ``CORNERS`` whose weights are the shares of the terms."""
    total = terms_n3.sum(axis=1, keepdims=True, dtype=np.float64)
    shares = np.divide(terms_n3, total, out=np.full(terms_n3.shape, 1 / 3), where=total > 0)
    points: npt.NDArray[np.float64] = shares @ CORNERS
    return points


def _frame(axis: Axes) -> None:
    axis.plot(*CORNERS[[0, 1, 2, 0]].T, color="black", linewidth=0.8)
    for (x, y), k, across, up in zip(
        CORNERS, SHOWN, ("right", "left", "center"), ("top", "top", "bottom"), strict=True
    ):
        axis.text(x, y, f" $T_{k + 1}$ alone ", horizontalalignment=across, verticalalignment=up)
    axis.set_aspect("equal")
    axis.set_axis_off()
