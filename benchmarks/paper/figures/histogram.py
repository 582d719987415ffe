"""Score histograms of held-out SAD sequences before and after training (the paper's figure of the same)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.paper.figures.stores import stored
from benchmarks.paper.figures.style import ANOMALY, NORMAL, new_figure
from streamad.judge.evaluation import auc

Array: TypeAlias = npt.NDArray[Any]

_N_BINS: Final = 50
_NEAREST: Final = 1e-5  # to the lowest score; nearer ones are clipped


def draw(results: Path) -> Figure:
    """Return two histograms, normalised for each kind of sequence; the title has the AUC.

    After training most scores lie just above the lowest possible one, so that panel has their distance to the lowest on
    a logarithmic axis.
    """
    arrays = stored("sad_scores", results)
    is_anomaly = arrays["is_anomaly"]
    figure = new_figure(9, 3.4)
    before, after = figure.subplots(1, 2)
    _histograms(before, arrays["before"], is_anomaly, np.linspace)
    above = np.maximum(arrays["after"] - arrays["after"].min(), _NEAREST)
    _histograms(after, above, is_anomaly, np.geomspace)
    before.set(xlabel="score (1: all views alike)", ylabel="share of the sequences of a kind")
    after.set(xlabel=f"score above the lowest of all ({arrays['after'].min():.3f})", xscale="log")
    for axis, when in ((before, "before"), (after, "after")):
        axis.set_title(f"{when} training, AUC {auc(arrays[when], is_anomaly):.3f}", fontsize=11)
    before.legend(frameon=False)
    return figure


def _histograms(axis: Axes, values: Array, is_anomaly: Array, spaced: Callable[..., Array]) -> None:
    bins = spaced(values.min(), values.max(), _N_BINS + 1).tolist()
    for kind, colour, name in ((~is_anomaly, NORMAL, "inliers (digit 0)"), (is_anomaly, ANOMALY, "other digits")):
        weights = np.full(int(kind.sum()), 1 / kind.sum())
        axis.hist(values[kind], bins=bins, weights=weights, color=colour, alpha=0.6, label=name)
