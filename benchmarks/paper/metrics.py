"""Average precision, and F1 with as many windows flagged as there are anomalies.

The AUC is the product's (``streamad.judge.evaluation``). No metric depends on the order of equal scores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def average_precision(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the sum over thresholds of precision times the recall gained; equal scores share one threshold.

    ``labels`` bool [N], true = anomalous. Raises ValueError if none is, or if a score is NaN.
    """
    n_anomalies, hits, flagged = _by_threshold(scores, labels)
    gained = np.diff(hits, prepend=0.0) / n_anomalies
    return float((gained * hits / flagged).sum())


def f1_at_true_fraction(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the F1 of flagging the highest scores, exactly as many as there are anomalies (paper, table 3).

    Precision, recall and F1 are then equal. Scores that tie at the threshold are flagged as if drawn at random: they
    count by their share of anomalies. Raises ValueError as ``average_precision``.
    """
    n_anomalies, hits, flagged = _by_threshold(scores, labels)
    return float(np.interp(n_anomalies, np.r_[0.0, flagged], np.r_[0.0, hits]) / n_anomalies)


def _by_threshold(
    scores: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[int, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the number of anomalies, and for each distinct score from the highest: anomalies and all at or above."""
    values, is_anomaly = np.asarray(scores, np.float64), np.asarray(labels, np.bool_)
    if not is_anomaly.any():
        raise ValueError("no anomaly among the labels: there is nothing to find")
    if np.isnan(values).any():
        raise ValueError("NaN among the scores")
    order = np.argsort(-values, kind="stable")
    last = np.flatnonzero(np.r_[np.diff(values[order]) != 0, True])
    hits = np.cumsum(is_anomaly[order])[last].astype(np.float64)
    return int(is_anomaly.sum()), hits, (last + 1).astype(np.float64)
