"""Which of T_1, T_3 and T_4 dominates the score of Thyroid's test rows: their terms on a simplex."""

from __future__ import annotations

__all__ = ["draw", "on_simplex"]

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.paper.figures.stores import stored
from benchmarks.paper.figures.style import ANOMALY, NORMAL, new_figure

CORNERS: Final = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])
SHOWN: Final = (0, 2, 3)


def draw(results: Path) -> Figure:
    """Return as many inliers as anomalies on the simplex, drawn at random, twice: by kind, and the score as opacity."""
    arrays = stored("thyroid_terms", results)
    shown = _as_many_of_each(arrays["is_anomaly"])
    terms, is_anomaly = arrays["terms"][shown][:, SHOWN], arrays["is_anomaly"][shown]
    points, sums = on_simplex(terms), terms.sum(axis=1)
    opacity = np.clip(sums / np.quantile(sums[is_anomaly], 0.9), 0.0, 1.0)
    figure = new_figure(9.5, 4.5)
    left, right = figure.subplots(1, 2)
    for axis, alphas, title in (
        (left, np.full(len(points), 0.6), "which transformation dominates"),
        (right, opacity, "the same, opacity: size of the score"),
    ):
        _frame(axis)
        for kind, colour, name in ((~is_anomaly, NORMAL, "inliers"), (is_anomaly, ANOMALY, "anomalies")):
            axis.scatter(*points[kind].T, s=14, color=colour, alpha=alphas[kind], linewidths=0)
            axis.scatter([], [], color=colour, label=name)
        axis.set_title(title, fontsize=10, pad=14)
    left.legend(frameon=False, fontsize=9, loc="upper left")
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
