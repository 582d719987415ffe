"""The four learned masks of a normal row of Thyroid and of anomalies, and the terms of their scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.paper.figures.stores import Arrays, stored
from benchmarks.paper.figures.style import ANOMALY, NORMAL, new_figure

ATTRIBUTES = ("age", "TSH", "T3", "TT4", "T4U", "FTI")


def draw(results: Path) -> Figure:
    """Return a column for each row of the table: its values, the masks M_k, and the terms, the highest orange."""
    arrays = stored("thyroid_terms", results)
    chosen = examples(arrays)
    n_masks = arrays["masks"].shape[1]
    figure = new_figure(2.5 * len(chosen), 9)
    axes = figure.subplots(n_masks + 2, len(chosen), sharey="row")
    for column, row in zip(axes.T, chosen, strict=True):
        kind = "anomaly" if arrays["is_anomaly"][row] else "normal"
        column[0].set_title(f"{kind}, score {arrays['terms'][row].sum():.2f}", fontsize=10)
        _bars(column[0], arrays["rows"][row], "0.4", ATTRIBUTES)
        for axis, mask_D in zip(column[1:-1], arrays["masks"][row], strict=True):
            _bars(axis, mask_D, NORMAL, ATTRIBUTES)
        terms = arrays["terms"][row]
        colours = [ANOMALY if term == terms.max() else NORMAL for term in terms]
        _bars(column[-1], terms, colours, [f"$T_{k}$" for k in range(1, n_masks + 1)])
    labels = ["$x$ (scaled to 0..1)", *(f"$M_{k}(x)$" for k in range(1, n_masks + 1)), "term of the score"]
    for axis, label in zip(axes[:, 0], labels, strict=True):
        axis.set_ylabel(label)
    return figure


def examples(arrays: Arrays) -> list[int]:
    """Return the normal row of median score, and the highest anomaly of each term that dominates any, most first."""
    terms, is_anomaly = arrays["terms"], arrays["is_anomaly"]
    scores = terms.sum(axis=1)
    normal = np.flatnonzero(~is_anomaly)
    median = int(normal[np.argsort(scores[normal])[len(normal) // 2]])
    anomalies = np.flatnonzero(is_anomaly)[np.argsort(-scores[is_anomaly])]
    dominating = terms[anomalies].argmax(axis=1)
    frequent = np.argsort(-np.bincount(dominating, minlength=terms.shape[1]), kind="stable")
    return [median, *(int(anomalies[dominating == k][0]) for k in frequent if (dominating == k).any())]


def _bars(axis: Axes, values: np.ndarray, colour: str | list[str], names: tuple[str, ...] | list[str]) -> None:
    axis.bar(range(len(values)), values, color=colour)
    axis.axhline(0, color="black", linewidth=0.6)
    axis.set_xticks(range(len(values)), names, fontsize=7)
