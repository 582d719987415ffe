"""From score to p-value: split-conformal ranks among held-out inliers, with a tail for where they are too few.

Shapes: n calibration sequences, K transformations.
"""

from __future__ import annotations

__all__ = ["Calibration", "certifiable_rate", "score_of", "scores_of"]

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.judge._tail import ParetoTail, fit_tail
from streamad.types import FloatArray, Tail


def certifiable_rate(n: int) -> float:
    """Return the smallest false-alarm rate that ``n`` calibration sequences can certify: 1 / (n + 1)."""
    return 1.0 / (n + 1)


def score_of(terms: FloatArray) -> float:
    """Return the score of the terms float32 [K]: their sum, in float64, the one way everywhere."""
    return float(terms.sum(dtype=np.float64))


def scores_of(terms: FloatArray) -> npt.NDArray[np.float64]:
    """Return the scores float64 [N] of the terms float32 [N, K]: ``score_of`` each."""
    scores: npt.NDArray[np.float64] = terms.sum(axis=1, dtype=np.float64)
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What held-out inliers scored: ``scores`` float64 [n], ``terms`` float32 [n, K], both ascending by column."""

    scores: npt.NDArray[np.float64]
    terms: FloatArray
    _pareto: ParetoTail | None = field(default=None)

    @classmethod
    def from_terms(cls, terms: FloatArray, false_alarm_rate: float | None = None) -> Calibration:
        """Make a calibration of terms float32 [n, K].

        Where ``false_alarm_rate`` lies below what n sequences can certify, the tail is extrapolated.
        Raises ArtifactError for an empty, misshapen or not finite array.
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
        """Say whether p-values are ranks alone or rest on the extrapolated tail."""
        return "empirical" if self._pareto is None else "extrapolated"

    def p_value(self, score: float) -> tuple[float, Tail]:
        """Return the conformal p-value of ``score``, never 0, never rising with the score, and the kind of its tail.

        p = (1 + #{calibration >= score}) / (n + 1) (split conformal: Vovk et al. 2005, Algorithmic Learning in a
        Random World; Bates et al. 2023, doi:10.1214/22-AOS2244). Raises ValueError for NaN or infinity.
        """
        if not np.isfinite(score):
            raise ValueError(f"a score must be finite, not {score}")
        if self._pareto is not None and score > self._pareto.threshold:
            return self._pareto.p_value(score), self.tail
        at_least = self.n - int(np.searchsorted(self.scores, score, side="left"))
        return (1 + at_least) / (self.n + 1), self.tail

    def term_quantiles(self, terms: FloatArray) -> tuple[float, ...]:
        """Return for each of the terms [K] the share of held-out inliers whose own term lies below it."""
        return tuple(
            int(np.searchsorted(column, term, side="left")) / self.n
            for column, term in zip(self.terms.T, terms, strict=True)
        )
