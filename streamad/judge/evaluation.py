"""Figures of verdicts: AUC, detection rate, false-alarm rate with its interval, and what chance alone gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of a labelled replay; a rate is None if there was no sequence of its kind.

    An unscorable sequence raises no alert, but it counts in the denominator of its rate.
    """

    auc: float | None
    detection_rate: float | None
    false_alarm_rate: float | None
    false_alarm_interval: tuple[float, float] | None
    n_normal: int
    n_anomalous: int
    n_unscorable: int


def evaluate(scores: Sequence[float | None], alerts: npt.ArrayLike, labels: npt.ArrayLike) -> Evaluation:
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
        false_alarm_interval=clopper_pearson(n_false, n_normal) if n_normal else None,
    )


def auc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the probability that an anomalous sequence scores above a normal one, ties counting half.

    Raises ValueError if one of the two kinds is missing or a score is NaN.
    """
    from scipy.stats import mannwhitneyu  # noqa: PLC0415 - scipy.stats takes 0.75 s to import

    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.bool_)
    pairs = int(positive.sum()) * int((~positive).sum())
    if not pairs or np.isnan(values).any():
        raise ValueError(f"AUC needs anomalous and normal sequences, and no NaN, in {len(values)} scores")
    return float(mannwhitneyu(values[positive], values[~positive], method="asymptotic").statistic) / pairs


def clopper_pearson(k: int, n: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a rate of which ``k`` in ``n`` were seen (Clopper & Pearson 1934).

    Raises ValueError unless 0 <= k <= n and n > 0.
    """
    from scipy.stats import binomtest  # noqa: PLC0415 - as above

    low, high = binomtest(k, n).proportion_ci(0.95, method="exact")
    return float(low), float(high)


def alerts_by_chance(n_judged: int, n_calibration: int, rate: float) -> tuple[int, int] | None:
    """Return how many of ``n_judged`` normal sequences alert at ``rate``: the central 95 % of what chance gives.

    The calibration is chance, too: the rate that ``n_calibration`` exchangeable scores give is Beta distributed (Vovk
    2012, Conditional validity of inductive conformal predictors), so the number is beta-binomial. None if they do not
    certify the rate: then no law is known.
    """
    from scipy.stats import betabinom  # noqa: PLC0415 - as above

    rank = math.floor((n_calibration + 1) * rate + _ROUNDING)
    if rank < 1:
        return None
    if n_judged == 0:
        return 0, 0
    law = betabinom(n_judged, rank, n_calibration + 1 - rank)
    return int(law.ppf(0.025)), int(law.ppf(0.975))
