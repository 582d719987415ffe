"""From score to p-value: split-conformal ranks among held-out inliers, extrapolated if they are too few.

Shapes: n calibration sequences, K transformations.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.messages import Tail
from streamad.types import BoolArray, FloatArray

_TOP_SHARE = 0.2  # exceedances taken for the tail
_MIN_TOP = 10  # but at least these, if there are so many
_MIN_FIT = 20  # fewer exceedances: an exponential tail, which has one parameter
_POWERS = (-0.25, 0.0, 0.25, 0.5)
_MIN_AVERAGED = 4
_MIN_SPREAD = 1e-6  # of ratios: below, they differ by rounding
_MAX_SHAPE = 1.0  # a heavier tail has no mean: such a fit has failed


@dataclass(frozen=True, slots=True)
class ParetoTail:
    """p-values above ``threshold``: ``p_threshold`` times the survival of a generalised Pareto law, shape > 0."""

    threshold: float
    p_threshold: float
    shape: float
    scale: float

    def p_value(self, score: float) -> float:
        """Return the extrapolated p-value of a score above the threshold; never 0."""
        excess = (score - self.threshold) / self.scale
        survival = math.exp(-math.log1p(self.shape * excess) / self.shape)
        return max(self.p_threshold * survival, sys.float_info.min)


@dataclass(frozen=True, slots=True)
class BoxCoxTail:
    """p-values above the median ``threshold``, from several laws for all scores; each law's weight is its likelihood.

    A law says that the Box-Cox transform of a score with one power is normal: then a new one has Student's law.
    """

    threshold: float
    p_threshold: float
    centre: float
    powers: tuple[float, ...]
    weights: tuple[float, ...]
    locations: tuple[float, ...]
    scales: tuple[float, ...]
    freedom: float
    _at_threshold: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the survival at the threshold, by which every p-value is divided."""
        object.__setattr__(self, "_at_threshold", self._survival(self.threshold))

    def p_value(self, score: float) -> float:
        """Return the extrapolated p-value of a score above the threshold; never 0."""
        share = self._survival(score) / self._at_threshold
        return max(self.p_threshold * share, sys.float_info.min)

    def _survival(self, score: float) -> float:
        from scipy.special import boxcox, stdtr  # noqa: PLC0415 - not every command needs it

        places = (np.array(self.locations) - boxcox(score / self.centre, np.array(self.powers))) / self.scales
        return float(np.dot(self.weights, stdtr(self.freedom, places)))


def fit_tail(scores: npt.NDArray[np.float64]) -> ParetoTail | BoxCoxTail | None:
    """Fit the tail of ascending ``scores`` [n]; None if fewer than two are distinct.

    Below 100 scores, if all are positive, see ``_box_cox_tail``. Else the tail is a generalised Pareto law. It is
    conservative, that is its p-values err upwards. It never ends: a negative shape would call every score
    beyond a fitted end point impossible, which a few exceedances cannot show, so it becomes 0. Half a standard error
    of the shape, (1 + shape) / sqrt(exceedances) (Coles 2001), is added: with maximum likelihood alone the false
    alarms came out at 1.3 to 3.4 times the configured rate on distributions with tails heavier than normal.
    """
    n = len(scores)
    n_top = min(max(_MIN_TOP, math.ceil(_TOP_SHARE * n)), n - 1)
    if n_top < 1:
        return None
    if n_top < _MIN_FIT and (averaged := _box_cox_tail(scores)) is not None:
        return averaged
    threshold = float(scores[n - 1 - n_top])
    excesses = scores[scores > threshold] - threshold
    if not len(excesses) or not math.isfinite(mean := float(excesses.mean())):
        return None
    shape, scale = _fit(excesses, mean)
    shape += (1.0 + shape) / (2.0 * math.sqrt(len(excesses)))
    return ParetoTail(threshold, (1 + len(excesses)) / (n + 1), shape, scale)


def fitted_law(scores: npt.NDArray[np.float64]) -> ParetoTail | BoxCoxTail | None:
    """Return a law of the ascending ``scores`` [n] without allowance for their number; None if it cannot be fitted.

    It is for estimates of what more scores would say. p-values need the allowance: see ``fit_tail``.
    """
    law = _box_cox_tail(scores)
    if law is None:
        return fit_tail(scores)
    allowance = math.sqrt(1.0 + 1.0 / len(scores))
    return replace(law, scales=tuple(scale / allowance for scale in law.scales), freedom=math.inf)


def _box_cox_tail(scores: npt.NDArray[np.float64]) -> BoxCoxTail | None:
    """Return the tail of few ascending positive ``scores`` [n]; all of them contribute, not the largest alone.

    Sums of squares are nearly normal in the power 1/4 (Hawkins and Wixley, The American Statistician 40, 1986),
    products in the logarithm, and few scores do not tell which they are: Bayesian model averaging (Hoeting et al.,
    Statistical Science 14, 1999). None for fewer than four scores, or almost no spread.
    """
    from scipy.special import boxcox  # noqa: PLC0415

    n = len(scores)
    if n < _MIN_AVERAGED or scores[0] <= 0:
        return None
    centre, middle = float(np.exp(np.log(scores).mean())), float(scores[(n - 1) // 2])
    transformed = [boxcox(scores / centre, power) for power in _POWERS]
    spreads = np.array([values.std(ddof=1) for values in transformed])
    n_above = int((scores > middle).sum())
    if not n_above or not np.isfinite(spreads).all() or spreads.min() < _MIN_SPREAD:
        return None
    log_likelihoods = -n * np.log(spreads)  # the transforms of ratios to the geometric mean share their Jacobian
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    return BoxCoxTail(
        threshold=middle,
        p_threshold=(1 + n_above) / (n + 1),
        centre=centre,
        powers=_POWERS,
        weights=tuple((weights / weights.sum()).tolist()),
        locations=tuple(float(values.mean()) for values in transformed),
        scales=tuple((spreads * math.sqrt(1.0 + 1.0 / n)).tolist()),
        freedom=n - 1,
    )


def _fit(excesses: npt.NDArray[np.float64], mean: float) -> tuple[float, float]:
    """Return shape and scale by maximum likelihood; the exponential (0, mean) if that fails or has an end."""
    if len(excesses) < _MIN_FIT:
        return 0.0, mean
    from scipy.stats import genpareto  # noqa: PLC0415 - scipy.stats takes 0.75 s to import

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            shape, _, scale = genpareto.fit(excesses / mean, floc=0.0)
        except (ValueError, RuntimeError):  # no convergence
            return 0.0, mean
    usable = math.isfinite(shape) and math.isfinite(scale) and 0.0 < shape <= _MAX_SHAPE and scale > 0.0
    return (float(shape), float(scale) * mean) if usable else (0.0, mean)


CalibrationMethod = Literal["split", "out_of_fold", "reserve"]
"""The calibration data: sequences held out by a hash, out-of-fold scores, or the calibration half of the reserve."""
_ROUNDING = 1e-9
OUT_OF_FOLD_BELOW = 150
"""Fewer sequences than this are too few to hold any out: their calibration scores are out of fold."""


def certifiable_rate(n: int) -> float:
    """Return the smallest false-alarm rate that ``n`` calibration sequences can certify: 1 / (n + 1)."""
    return 1.0 / (n + 1)


def calibration_sequences_for(rate: float) -> int:
    """Return how many calibration sequences certify the false-alarm ``rate``: the smallest n with 1 / (n + 1) <= rate.

    Raises ValueError unless 0 < rate < 1.
    """
    if not 0.0 < rate < 1.0:
        raise ValueError(f"a false-alarm rate lies between 0 and 1, not {rate}")
    n = max(1, math.ceil(1.0 / rate) - 1)
    return n + 1 if certifiable_rate(n) > rate else n - (n > 1 and certifiable_rate(n - 1) <= rate)


def calibration_count(n: int, share: float, false_alarm_rate: float) -> int:
    """Return how many of ``n`` sequences calibrate: at most ``share``, and such that the rate comes out exact.

    With m calibration scores the conformal rule "alert when p <= r" alerts on a fresh inlier with probability
    floor((m + 1) r) / (m + 1) (exchangeable scores without ties): r itself only where (m + 1) r is whole, less
    otherwise. So of the counts between half the share and the share, the one that loses least is taken, the largest of
    equals: 99, not 100, for r = 0.02. If even the share is too small for r, all of it.
    """
    most = int(n * share + _ROUNDING)
    if math.floor((most + 1) * false_alarm_rate + _ROUNDING) == 0:
        return most
    return max(range(math.ceil(most / 2), most + 1), key=lambda m: (_attained(m, false_alarm_rate), m))


def recordings_for(n_calibration: int, share: float) -> int:
    """Return the fewest recordings of which ``train_model`` holds at least ``n_calibration`` out.

    If ``n_calibration`` is what a rate needs, ``calibration_count`` never takes fewer once the share allows so many.
    """
    n = max(OUT_OF_FOLD_BELOW, math.floor((n_calibration - 1) / share))
    while int(n * share + _ROUNDING) < n_calibration:
        n += 1
    return n


def _attained(m: int, rate: float) -> float:
    return round(math.floor((m + 1) * rate + _ROUNDING) / ((m + 1) * rate), 9)


def _count_within(rate: float, n: int) -> int:
    """Return the largest k with k / n <= rate, as floats divide."""
    k = math.floor(rate * n)
    return k + 1 if (k + 1) / n <= rate else k - (k / n > rate)


def score_of(terms: FloatArray) -> float:
    """Return the score of the terms float32 [K]: their sum in float64."""
    return float(terms.sum(dtype=np.float64))


def scores_of(terms: FloatArray) -> npt.NDArray[np.float64]:
    """Return the scores float64 [N] of the terms float32 [N, K]: ``score_of`` each."""
    scores: npt.NDArray[np.float64] = terms.sum(axis=1, dtype=np.float64)
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Scores float64 [n] and terms float32 [n, K] of held-out inliers, both ascending by column."""

    scores: npt.NDArray[np.float64]
    terms: FloatArray
    _tail: ParetoTail | BoxCoxTail | None = field(default=None)

    @classmethod
    def from_terms(cls, terms: FloatArray, false_alarm_rate: float | None = None) -> Calibration:
        """Make a calibration of terms float32 [n, K]; raises ArtifactError if they are empty, misshapen or not finite.

        The tail is extrapolated if ``false_alarm_rate`` is below the rate that n sequences certify.
        """
        if terms.ndim != 2 or not terms.size:
            raise ArtifactError(f"calibration terms are {terms.shape}, not sequences x transformations: train again")
        if not np.isfinite(terms).all():
            raise ArtifactError("calibration terms hold NaN or infinity: the model is unusable, train again")
        scores = np.sort(scores_of(terms))
        below = false_alarm_rate is not None and false_alarm_rate < certifiable_rate(len(scores))
        return cls(scores, np.sort(terms, axis=0), fit_tail(scores) if below else None)

    @property
    def n(self) -> int:
        """Return the number of calibration sequences."""
        return len(self.scores)

    @property
    def tail(self) -> Tail:
        """Return whether p-values are ranks alone or use the extrapolated tail."""
        return "empirical" if self._tail is None else "extrapolated"

    def p_value(self, score: float) -> tuple[float, Tail]:
        """Return the conformal p-value of ``score``, never 0, never rising with the score, and the kind of its tail.

        p = (1 + #{calibration >= score}) / (n + 1) (split conformal: Vovk et al. 2005, Algorithmic Learning in a
        Random World; Bates et al. 2023, doi:10.1214/22-AOS2244). Raises ValueError for NaN or infinity.
        """
        if not math.isfinite(score):
            raise ValueError(f"a score must be finite, not {score}")
        if self._tail is not None and score > self._tail.threshold:
            return self._tail.p_value(score), self.tail
        at_least = self.n - int(self.scores.searchsorted(score))
        return (1 + at_least) / (self.n + 1), self.tail

    def alerts(self, scores: npt.NDArray[np.float64], rate: float) -> BoolArray:
        """Return which of ``scores`` [N] have a p-value of at most ``rate``. Raises ValueError for NaN or infinity."""
        return np.array([self.p_value(score)[0] <= rate for score in scores.tolist()], dtype=np.bool_)

    def alert_score(self, rate: float) -> float:
        """Return the lowest score whose p-value is at most ``rate``; infinity if none is."""
        if self._tail is not None and rate < self.p_value(self._tail.threshold)[0]:
            return self._on_tail(self._tail.threshold, rate)
        rank = _count_within(rate, self.n + 1)  # of the lowest alert among n + 1 scores
        if rank < 1:
            return math.inf
        if rank > self.n:
            return -math.inf
        return float(np.nextafter(self.scores[self.n - rank], math.inf))

    def _on_tail(self, low: float, rate: float) -> float:
        """Find by bisection the lowest score above ``low`` with a p-value of at most ``rate``."""
        step = max(abs(low), 1.0)
        while self.p_value(low + step)[0] > rate:
            step *= 2.0
            if not math.isfinite(low + step):
                return math.inf
        high = low + step
        while (middle := low + (high - low) / 2) not in (low, high):
            low, high = (low, middle) if self.p_value(middle)[0] <= rate else (middle, high)
        return high

    def term_quantiles(self, terms: FloatArray) -> tuple[float, ...]:
        """Return for each of the terms [K] the share of held-out inliers whose own term lies below it."""
        return tuple(
            int(np.searchsorted(column, term, side="left")) / self.n
            for column, term in zip(self.terms.T, terms, strict=True)
        )

    def term_excesses(self, terms: FloatArray) -> tuple[float, ...]:
        """Return for each of the terms [K] how far it lies above its median over held-out inliers; 0 if below."""
        return tuple(np.maximum(terms.astype(np.float64) - np.median(self.terms, axis=0), 0.0).tolist())
