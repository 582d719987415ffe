"""How good verdicts were where the truth is known: AUC, detection rate, false alarms with their interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, rankdata


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of a labelled replay; a rate is None where there was no sequence of its kind.

    An unscorable sequence is neither found nor a false alarm: it counts among those that a rate is a share of.
    """

    n_normal: int
    n_anomalous: int
    n_unscorable: int
    auc: float | None
    detection_rate: float | None
    false_alarm_rate: float | None
    false_alarm_interval: tuple[float, float] | None


def evaluate(
    scores: Sequence[float | None], alerts: npt.ArrayLike, labels: npt.ArrayLike, confidence: float = 0.95
) -> Evaluation:
    """Compare ``scores`` [N] and ``alerts`` (bool [N]) with ``labels`` (bool [N], true = anomalous).

    A score of None means unscorable. The rates are over all N sequences, the AUC over those that have a score.
    """
    is_anomalous = np.asarray(labels, dtype=np.bool_)
    is_alert = np.asarray(alerts, dtype=np.bool_)
    n_anomalous = int(is_anomalous.sum())
    n_normal = len(is_anomalous) - n_anomalous
    n_false = int(is_alert[~is_anomalous].sum())
    has_score = np.array([score is not None for score in scores], dtype=np.bool_)
    of_scored = is_anomalous[has_score]
    return Evaluation(
        n_normal=n_normal,
        n_anomalous=n_anomalous,
        n_unscorable=int((~has_score).sum()),
        auc=auc([score for score in scores if score is not None], of_scored) if len(set(of_scored)) == 2 else None,
        detection_rate=float(is_alert[is_anomalous].mean()) if n_anomalous else None,
        false_alarm_rate=n_false / n_normal if n_normal else None,
        false_alarm_interval=clopper_pearson(n_false, n_normal, confidence) if n_normal else None,
    )


def auc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the probability that an anomalous sequence scores above a normal one, ties counting half.

    Raises ValueError where one of the two kinds is missing or a score is NaN.
    """
    values = np.asarray(scores, dtype=np.float64)
    positive = np.asarray(labels, dtype=np.bool_)
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        raise ValueError(f"AUC needs both kinds: {n_positive} anomalous and {n_negative} normal sequences were given")
    if np.isnan(values).any():
        raise ValueError("AUC needs scores without NaN")
    rank_sum = float(rankdata(values)[positive].sum())
    return (rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a rate of which ``k`` in ``n`` were seen (Clopper & Pearson 1934).

    Raises ValueError unless 0 <= k <= n and n > 0.
    """
    if not 0 <= k <= n or n <= 0:
        raise ValueError(f"cannot have seen {k} of {n}")
    half = (1.0 - confidence) / 2.0
    low = float(beta.ppf(half, k, n - k + 1)) if k > 0 else 0.0
    high = float(beta.ppf(1.0 - half, k + 1, n - k)) if k < n else 1.0
    return low, high
