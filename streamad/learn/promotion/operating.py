"""A model at its operating point: its alerts on held-out sequences at the configured false-alarm rate.

Shapes: N sequences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streamad.judge.calibration import Calibration, scores_of
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.training.fits import score_windows
from streamad.learn.training.presumed import Scores, presumed_anomalies, separated
from streamad.learn.training.publishing import check_finite
from streamad.learn.training.selection import HeldOut
from streamad.types import BoolArray, WindowSet

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class OperatingPoint:
    """A model at the configured ``rate``: its ``scores`` [N] of held-out sequences, and which of them are excluded.

    A score alerts only above ``above``, whatever its p-value.
    """

    model: LoadedModel
    rate: float
    calibration: Calibration
    scores: Scores
    left_out: BoolArray
    above: float = -np.inf

    @classmethod
    def of(cls, model: LoadedModel, half: HeldOut, windows: WindowSet, rate: float) -> OperatingPoint:
        """Judge the sequences of ``half``, whose windows are ``windows``, by ``model``.

        Its presumed anomalies are excluded: the part of its excess of alerts that stands apart from its other scores.
        The rest are false alarms of a badly calibrated model. Raises DetectorError for scores that are not finite.
        """
        calibration = Calibration.from_terms(model.calibration_terms, rate)
        scores = _scores(model, windows)
        alerts = calibration.alerts(scores, rate)
        left_out, free = np.zeros(len(half), dtype=np.bool_), ~half.is_normal
        n_alerts, n_free = int((alerts & free).sum()), int(free.sum())
        left_out[free] = presumed_anomalies(scores[free], n_alerts=n_alerts, n_judged=n_free, rate=rate)
        return cls(model, rate, calibration, scores, left_out)

    def alerts(self, scores: Scores) -> BoolArray:
        """Return which of ``scores`` [N] are alerts."""
        return self.calibration.alerts(scores, self.rate) & (scores > self.above)

    def p_values(self, windows: WindowSet) -> Scores:
        """Return the p-values [N] of ``windows``, whatever ``above`` is."""
        return np.array([self.calibration.p_value(score)[0] for score in _scores(self.model, windows)])

    def n_alerts_on(self, windows: WindowSet | None) -> int:
        """Return how many of ``windows`` (None: there are none) are alerts."""
        if windows is None or not len(windows):
            return 0
        return int(self.alerts(_scores(self.model, windows)).sum())

    @property
    def n_kept(self) -> int:
        """Return how many sequences are not presumed anomalies."""
        return int((~self.left_out).sum())

    @property
    def n_false(self) -> int:
        """Return how many of those kept are alerts."""
        return int((self.alerts(self.scores) & ~self.left_out).sum())

    @property
    def n_allowed(self) -> int:
        """Return how many of those kept may alert at the rate."""
        return math.ceil(self.rate * self.n_kept - _ROUNDING)

    def at_most(self, n_false: int) -> OperatingPoint:
        """Return this point with the threshold raised, if needed, so that at most ``n_false`` of the half alert."""
        if self.n_false <= n_false:
            return self
        above = float(np.sort(self.scores[~self.left_out])[::-1][n_false])
        return OperatingPoint(self.model, self.rate, self.calibration, self.scores, self.left_out, above)


def _scores(model: LoadedModel, windows: WindowSet) -> Scores:
    terms = score_windows(model.scorer, windows)
    check_finite(f"model {model.ref.name} {model.ref.version}", terms)
    return scores_of(terms)


def standing_apart(model: LoadedModel, windows: WindowSet, rate: float) -> BoolArray:
    """Return on which of ``windows`` [N] ``model`` alerts with a score that no chance among normal ones explains.

    That is one among the calibration scores that stand apart from the others, or above all if none does. Raises
    DetectorError for scores that are not finite.
    """
    known = np.sort(scores_of(model.calibration_terms))
    n_apart = separated(known, len(known) // 3)
    scores = _scores(model, windows)
    is_far = scores >= known[-n_apart] if n_apart else scores > known[-1]
    return np.asarray(is_far, np.bool_) & Calibration.from_terms(model.calibration_terms, rate).alerts(scores, rate)
