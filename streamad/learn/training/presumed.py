"""Presumed anomalies: held-out sequences that are probably unlabelled anomalies, by their scores alone.

The rule, and its rates in simulation: docs/learning/promotion.md.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import numpy.typing as npt

from streamad.types import BoolArray

_MOST = 1 / 3  # of all may be candidates: nearer to the median, the tail's scale cannot be estimated
_REGAIN = 1.25  # times the excess may be left out, so that a threshold that came out too high recovers
_CANDIDATES = (_REGAIN, 2.0)  # times the alerts are candidates: with too few, the highest other score is an anomaly
_NOISE = 1.0  # standard deviations of the expected count that a stretch of candidates must rise above it
_UNSEEN = 1.2  # anomalies for each that stands apart: some lie too near

Scores = npt.NDArray[np.float64]


def excess_alerts(n_alerts: int, n: int, rate: float) -> int:
    """Return how many of ``n`` sequences must be anomalies if ``n_alerts`` alerted and normal ones do at ``rate``.

    k anomalies, all found, and (n - k) rate false alarms make the alerts: k = (alerts - n rate) / (1 - rate).
    """
    return max(0, round((n_alerts - n * rate) / (1.0 - rate)))


def most_presumed(n_alerts: int, n: int, rate: float) -> int:
    """Return how many of ``n`` sequences, of which ``n_alerts`` alerted, may be presumed anomalies at most."""
    return math.ceil(_REGAIN * excess_alerts(n_alerts, n, rate))


def separated(scores: Scores, n_candidates: int) -> int:
    """Return how many of the highest ``n_candidates`` (at most a third of all) stand apart from the tail of the others.

    If all were normal, about c exp(-(x - x_c) / scale) of the c candidates would lie above x, the square root of a
    score's distance to the lowest: the tail beyond the highest other score x_c is modelled as exponential (the limit
    for the excesses of any tail that is not heavy: Pickands 1975), with the scale between the median and x_c. The count
    is the largest surplus over that, less the standard deviation of a Poisson count. Those sequences are then removed
    from the sample, which shortens the scale, until nothing changes.
    """
    n = len(scores)
    c = min(n_candidates, int(n * _MOST))
    if c <= 0:
        return 0
    ordered = _tamed(np.sort(scores))
    edge = ordered[n - c - 1]
    beyond, at_least = ordered[n - c :] - edge, c - np.arange(c)
    k = 0
    while k < c:
        middle = (n - k) // 2
        n_above = n - k - middle - 1
        if not edge > ordered[middle] or n_above <= c - k:
            break
        scale = (edge - ordered[middle]) / math.log(n_above / (c - k))
        with np.errstate(over="ignore"):
            expected = (c - k) * np.exp(-beyond / max(scale, sys.float_info.min))
        surplus = math.floor(np.max(at_least - expected - _NOISE * np.sqrt(expected)))
        if surplus <= k:
            break
        k = surplus
    return k


def presumed_anomalies(
    scores: Scores, *, n_alerts: int, n_judged: int, rate: float, n_unjudged: int = 0, unjudged_share: float = 0.0
) -> BoolArray:
    """Return which of ``scores`` [N] are left out as presumed anomalies: the highest, never half of all or more.

    ``n_alerts`` of the ``n_judged`` alerted. If that exceeds ``rate``, 1.2 times as many as stand apart from the other
    scores are left out, but at most 1.25 times the excess: the excess of a champion that falls behind a drifting plant
    does not stand apart, and a rare kind of normal sequence stands apart but has no excess. Of the ``n_unjudged``,
    which no version has judged, ``unjudged_share`` is left out.
    """
    given = round(unjudged_share * n_unjudged)
    candidates = [math.ceil(times * n_alerts) + given for times in _CANDIDATES]
    apart = max(0, *(separated(scores, n) - given for n in candidates))
    k = given + min(math.ceil(_UNSEEN * apart), most_presumed(n_alerts, n_judged, rate))
    left_out = np.zeros(len(scores), dtype=np.bool_)
    left_out[np.argsort(scores, kind="stable")[len(scores) - min(k, (len(scores) - 1) // 2) :]] = True
    return left_out


def _tamed(ordered: Scores) -> Scores:
    """Return ascending scores on a scale that shortens heavy tails and keeps their order."""
    return np.asarray(np.sqrt(ordered - ordered[0]))
