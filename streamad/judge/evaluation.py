"""Figures of verdicts: AUC, detection and false-alarm rates, in all and by label, and what chance alone gives."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamad.types import BoolArray, IntArray

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """Figures of the sequences with one label; ``rate`` is the share of them that alerted, unscorable ones included.

    ``auc`` is against all normal sequences: None for a label that means normal, or if one side has no score. Without
    an ``interval`` the label's sequences set the threshold (``evaluate``).
    """

    label: str
    is_anomalous: bool
    n_sequences: int
    n_alerts: int
    n_unscorable: int
    rate: float
    interval: tuple[float, float] | None
    auc: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of labelled sequences; a rate is None if there was no sequence of its kind.

    An unscorable sequence raises no alert, but it counts in the denominator of its rate. ``by_label``: each label that
    a sequence has, the anomalous ones first, then the most frequent. Intervals are exact, of 95 %.
    """

    auc: float | None
    detection_rate: float | None
    detection_interval: tuple[float, float] | None
    false_alarm_rate: float | None
    false_alarm_interval: tuple[float, float] | None
    n_normal: int
    n_anomalous: int
    n_unscorable: int
    by_label: tuple[LabelFigures, ...] = ()


def evaluate(
    scores: Sequence[float | None],
    alerts: npt.ArrayLike,
    labels: npt.ArrayLike,
    names: Sequence[str] = (),
    *,
    normal_calibrated: bool = False,
) -> Evaluation:
    """Compare ``scores`` [N] and ``alerts`` (bool [N]) with ``labels`` (bool [N], true = anomalous).

    A score of None means unscorable. The rates are over all N sequences, the AUC over those that have a score.
    ``names`` [N] are the labels' own texts; without them ``by_label`` is empty. ``normal_calibrated``: the normal
    sequences set the threshold, so their rates are no estimates and have no interval.
    """
    is_anomalous = np.asarray(labels, dtype=np.bool_)
    values = np.array([math.nan if score is None else score for score in scores], dtype=np.float64)
    normal_scores = np.sort(values[~is_anomalous & ~np.isnan(values)])
    judged = _Judged(values, np.asarray(alerts, dtype=np.bool_), normal_scores, normal_calibrated)
    of_label: dict[tuple[str, bool], list[int]] = {}
    for index, key in enumerate(zip(names, is_anomalous.tolist(), strict=True) if names else ()):
        of_label.setdefault(key, []).append(index)
    by_label = [judged.figures(name, np.array(of), anomalous=kind) for (name, kind), of in of_label.items()]
    anomalous, normal = np.flatnonzero(is_anomalous), np.flatnonzero(~is_anomalous)
    found = judged.figures("", anomalous, anomalous=True) if len(anomalous) else None
    false = judged.figures("", normal, anomalous=False) if len(normal) else None
    return Evaluation(
        auc=None if found is None else found.auc,
        detection_rate=None if found is None else found.rate,
        detection_interval=None if found is None else found.interval,
        false_alarm_rate=None if false is None else false.rate,
        false_alarm_interval=None if false is None else false.interval,
        n_normal=len(normal),
        n_anomalous=len(anomalous),
        n_unscorable=int(np.isnan(values).sum()),
        by_label=tuple(sorted(by_label, key=_place)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """What ``evaluate`` compares; ``scores`` float64 [N], NaN for unscorable, and the ascending ones of normals."""

    scores: npt.NDArray[np.float64]
    is_alert: BoolArray
    normal_scores: npt.NDArray[np.float64]
    normal_calibrated: bool

    def figures(self, label: str, of: IntArray, *, anomalous: bool) -> LabelFigures:
        """Return the figures of the sequences at the indexes ``of``, at least one, all of one kind."""
        own, n_alerts = self.scores[of], int(self.is_alert[of].sum())
        scored = own[~np.isnan(own)]
        is_estimate = anomalous or not self.normal_calibrated
        has_auc = anomalous and len(scored) > 0 and len(self.normal_scores) > 0
        return LabelFigures(
            label=label,
            is_anomalous=anomalous,
            n_sequences=len(of),
            n_alerts=n_alerts,
            n_unscorable=len(own) - len(scored),
            rate=n_alerts / len(of),
            interval=clopper_pearson(n_alerts, len(of)) if is_estimate else None,
            auc=_share_above(scored, self.normal_scores) if has_auc else None,
        )


def _place(one: LabelFigures) -> tuple[bool, int, list[tuple[int, str]]]:
    """Return the sort key of a label: anomalous first, then the most frequent, then "fault 2" before "fault 10"."""
    parts = re.split(r"([0-9]+)", one.label)
    return not one.is_anomalous, -one.n_sequences, [(len(part) if n % 2 else 0, part) for n, part in enumerate(parts)]


def auc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the probability that an anomalous sequence scores above a normal one, ties counting half.

    Raises ValueError if one of the two kinds is missing or a score is NaN.
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.bool_)
    if not positive.any() or positive.all() or np.isnan(values).any():
        raise ValueError(f"AUC needs anomalous and normal sequences, and no NaN, in {len(values)} scores")
    return _share_above(values[positive], np.sort(values[~positive]))


def _share_above(scores: npt.NDArray[np.float64], normal: npt.NDArray[np.float64]) -> float:
    """Return the share of pairs in which a score lies above one of ``normal`` (ascending), ties counting half."""
    twice = sum(int(np.searchsorted(normal, scores, side).sum()) for side in ("left", "right"))
    return twice / 2 / (len(scores) * len(normal))


def clopper_pearson(k: int, n: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a rate of which ``k`` in ``n`` were seen (Clopper & Pearson 1934).

    Raises ValueError unless 0 <= k <= n and n > 0.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 - 0.15 s; scipy.stats, which has the interval, takes 0.75 s

    if not 0 <= k <= n or n == 0:
        raise ValueError(f"k must be from 0 to n, and n above 0, not {k} of {n}")
    low = float(betaincinv(k, n - k + 1, 0.025)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return low, high


def alerts_by_chance(n_judged: int, n_calibration: int, rate: float) -> tuple[int, int] | None:
    """Return how many of ``n_judged`` normal sequences alert at ``rate``: the central 95 % of what chance gives.

    The calibration is chance, too: the rate that ``n_calibration`` exchangeable scores give is Beta distributed (Vovk
    2012, Conditional validity of inductive conformal predictors), so the number is beta-binomial. None if they do not
    certify the rate: then no law is known.
    """
    from scipy.special import betaln  # noqa: PLC0415 - as above

    rank = math.floor((n_calibration + 1) * rate + _ROUNDING)
    if rank < 1:
        return None
    if n_judged == 0:
        return 0, 0
    n_alerts, beyond = np.arange(n_judged + 1), n_calibration + 1 - rank
    ways = -math.log(n_judged + 1) - betaln(n_judged - n_alerts + 1, n_alerts + 1)
    chances = np.exp(ways + betaln(n_alerts + rank, n_judged - n_alerts + beyond) - betaln(rank, beyond))
    low, high = np.searchsorted(np.cumsum(chances), [0.025, 0.975])
    return int(low), int(high)
