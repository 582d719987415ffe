"""The share of injected faults that a calibration finds at the configured false-alarm rate, and how sure that is.

Whether a fault is found is the calibration's own word: ``Calibration.alerts``, by which a verdict is anomalous. Shapes:
F faulty windows, n calibration sequences, K terms, D draws, T thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.judge.calibration import Calibration, fitted_law
from streamad.learn.early.training import TrainedEarly
from streamad.learn.registry.manifest import EarlyExpectation, LargerCalibration
from streamad.types import FloatArray, IntArray

Scores: TypeAlias = npt.NDArray[np.float64]

CONFIDENCE = 0.9
DRAWS = 2000
_THRESHOLDS = 100
_ENLARGED = (2, 4)
_ENOUGH_RANK = 5
"""The threshold of a calibration in which so many normal scores may alert owes little to one of them."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Scores [F] of faulty windows, made of the normal windows ``bases`` [F], and the calibration terms [n, K]."""

    scores: Scores
    bases: IntArray
    terms: FloatArray
    rate: float

    @cached_property
    def calibration(self) -> Calibration:
        """Return the calibration as a worker loads it."""
        return Calibration.from_terms(self.terms, self.rate)

    @cached_property
    def found(self) -> npt.NDArray[np.bool_]:
        """Return which faulty windows [F] would be alerts."""
        return self.calibration.alerts(self.scores, self.rate)

    @property
    def share(self) -> float:
        """Return the share of the faulty windows that would be alerts."""
        return float(self.found.mean())

    def interval(self) -> tuple[float, float]:
        """Return the 90 % interval of the share in further sequences with faults, for this threshold.

        A bootstrap draws the sequences, each with all faults of its own, with quantiles expanded for few sequences. If
        none is found, or all are, it has no spread, and the limit is exact: the mean of n numbers between 0 and 1 that
        are all 0 is 0 with a probability of at most (1 - mean) ^ n (Hanley and Lippman-Hand, JAMA 249, 1983).
        """
        n = len(np.unique(self.bases))
        at_most = 1.0 - ((1.0 - CONFIDENCE) / 2) ** (1.0 / n)
        if not self.found.any():
            return 0.0, at_most
        if self.found.all():
            return 1.0 - at_most, 1.0
        return quantiles(_shares(self.found[None], self.bases)[0], n)

    def gain_of(self, other: Judged) -> tuple[float, float]:
        """Return the 90 % interval of the share that ``other`` finds, of the same windows, less this one's.

        Draws of sequences are the same for both. Each calibration is drawn anew by itself: a threshold that owes its
        place to one sequence must not decide which detector is better.
        """
        gain = shares_by_draws(other, 1) - shares_by_draws(self, 0)
        at = np.arange(DRAWS)
        return quantiles(gain[at % _THRESHOLDS, at], len(np.unique(self.bases)))

    def with_more(self) -> tuple[LargerCalibration, ...]:
        """Return estimates of the share with 2 and 4 times as many calibration sequences that certify the rate.

        The threshold is then a rank among them, and the probability beyond it has a beta law (Vovk 2012, Conditional
        validity of inductive conformal predictors). The score with this probability is read between the ranks of
        today's scores; beyond the highest, a law fitted to all of them says how they go on. The model, and how well it
        is trained, stay the same. None if five normal scores or more may alert already, or no law can be fitted.
        """
        n, law = self.calibration.n, fitted_law(self.calibration.scores)
        if law is None or rank_at(n, self.rate) >= _ENOUGH_RANK:
            return ()
        fitted = Calibration(self.calibration.scores, self.calibration.terms, law)
        rng, found = np.random.default_rng(2), []
        for n_more in dict.fromkeys(exact_count(times * n, self.rate) for times in _ENLARGED):
            rank = rank_at(n_more, self.rate)
            lowest = [_score_beyond(fitted, share) for share in rng.beta(rank, n_more + 1 - rank, _THRESHOLDS)]
            found.append(LargerCalibration(n_calibration=n_more, share=self._share_above(np.array(lowest))))
        return tuple(found)

    def _share_above(self, lowest: Scores) -> float:
        return float((self.scores >= lowest[:, None]).mean())


def _score_beyond(fitted: Calibration, share: float) -> float:
    """Return the score beyond which a ``share`` of normal ones lies, unbiased in the median.

    Positions of the ranks: Hyndman and Fan, The American Statistician 50, 1996, definition 8.
    """
    n, scores = fitted.n, fitted.scores
    positions = (np.arange(1, n + 1) - 1 / 3) / (n + 1 / 3)
    beyond_all = 1.0 - float(positions[-1])
    if share >= beyond_all:
        return float(np.interp(1.0 - share, positions, scores))
    return fitted.alert_score(share / beyond_all * fitted.p_value(scores[-1])[0])


def shares_by_draws(judged: Judged, seed: int) -> Scores:
    """Return the shares [T, D] that are found if calibration [T] and sequences with faults [D] are drawn anew."""
    rng, n = np.random.default_rng((1, seed)), len(judged.terms)
    drawn = (judged.terms[rng.integers(0, n, n)] for _ in range(_THRESHOLDS))
    lowest = [Calibration.from_terms(terms, judged.rate).alert_score(judged.rate) for terms in drawn]
    return _shares(judged.scores >= np.array(lowest)[:, None], judged.bases)


def rank_at(n: int, rate: float) -> int:
    """Return how many of ``n`` calibration scores, the highest ones, may alert at ``rate``."""
    return math.floor((n + 1) * rate + 1e-9)


def exact_count(at_least: int, rate: float) -> int:
    """Return the least number of calibration sequences, from ``at_least`` on, whose ranks reach ``rate`` exactly.

    That is up to rounding: rank / (number + 1) lies at or just below the rate.
    """
    rank = max(1, math.ceil((at_least + 1) * rate - 1e-9))
    return math.ceil(rank / rate - 1e-9) - 1


def _shares(found: npt.NDArray[np.bool_], bases: IntArray) -> Scores:
    """Return the shares [T, D] of ``found`` [T, F] if the sequences are drawn anew, each with all its faults."""
    _, at, n_faults = np.unique(bases, return_inverse=True, return_counts=True)
    n = len(n_faults)
    of_base = np.zeros((len(found), n))
    np.add.at(of_base.T, at, found.T)
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS).astype(float)  # [D, n]
    shares: Scores = (of_base @ weights.T) / (weights @ n_faults)
    return shares


def quantiles(drawn: Scores, n: int) -> tuple[float, float]:
    """Return the 90 % interval of ``drawn`` [D], its quantiles expanded for ``n`` units.

    Hesterberg, The American Statistician 69, 2015, section 5.3.
    """
    from scipy.special import ndtr, stdtrit  # noqa: PLC0415 - 0.15 s; scipy.stats takes 0.75 s

    low = float(ndtr(math.sqrt(n / max(n - 1, 1)) * stdtrit(max(n - 1, 1), (1 - CONFIDENCE) / 2)))
    found = np.quantile(drawn, [low, 1 - low])
    return float(found[0]), float(found[1])


def expected_of(early: TrainedEarly, rate: float) -> EarlyExpectation | None:
    """Return which share of injected faults is warned of by each look at ``rate``; None if none were injected."""
    odd = early.faulty
    if odd is None:
        return None
    terms = early.maxima.astype(np.float32)[:, None]
    by_look = [Judged(largest, odd.bases, terms, rate) for largest in odd.largest.T]
    return EarlyExpectation(
        rate=rate,
        n_faults=len(odd.bases),
        n_bases=len(np.unique(odd.bases)),
        begun=tuple(float((odd.onsets < look.form.n_points).mean()) for look in early.looks),
        warned=tuple(judged.share for judged in by_look),
        interval=by_look[-1].interval(),
    )
