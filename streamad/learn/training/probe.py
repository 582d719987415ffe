"""The probe of a version: a few training windows whose terms every backend and every processor must reproduce.

A model that compares numbers decides ties by rounding, and another order of summation rounds otherwise. So of many
windows the probe takes those without a tie. Shapes: N candidates, C channels, L window length, K terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamad.learn.registry.arrays import PROBE_TOLERANCE, probe_deviation
from streamad.ports import Scorer
from streamad.types import FloatArray, IntArray, WindowSet

PROBE_WINDOWS = 4
_CANDIDATES = 32
_ROUNDINGS, _ROUNDING = 4, 1e-7

Probe = tuple[FloatArray, IntArray, FloatArray]
"""Windows float32 [P, C, L], lengths int64 [P] and the terms float32 [P, K] that the exported model gives."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbeCandidates:
    """Windows with the exported model's terms [N, K], and how far each one's terms move by rounding [N]."""

    windows: WindowSet
    terms: FloatArray
    moved: FloatArray

    @classmethod
    def of(cls, training: WindowSet, exported: Scorer) -> ProbeCandidates:
        """Return up to 32 of ``training``, spread over the lengths, scored by ``exported`` on a CPU."""
        by_length = np.argsort(training.lengths, kind="stable")
        spread = np.unique(by_length[np.linspace(0, len(by_length) - 1, _CANDIDATES, dtype=np.int64)])
        windows = training.take(spread)
        terms = exported.score(windows.values, windows.lengths)
        return cls(windows, terms, _moved(exported, windows, terms))

    def deviations(self, scorer: Scorer) -> FloatArray:
        """Return the largest deviation [N] of each window's terms by ``scorer``, scored together and alone."""
        values, lengths = self.windows.values, self.windows.lengths
        alone = [scorer.score(values[i : i + 1], lengths[i : i + 1])[0] for i in range(len(values))]
        return np.maximum(_deviations(scorer.score(values, lengths), self.terms), _deviations(alone, self.terms))

    def probe(self, deviations: Sequence[FloatArray] = ()) -> Probe:
        """Return the windows that move least by rounding, first of all those that all ``deviations`` [N] tolerate."""
        are_alike = np.all([each <= PROBE_TOLERANCE for each in deviations], axis=0) | np.zeros(len(self.moved), bool)
        order = np.lexsort((self.moved, ~are_alike))
        chosen = np.sort(order[:PROBE_WINDOWS])
        windows = self.windows.take(chosen)
        return windows.values, windows.lengths, self.terms[chosen]


def share_alike(deviations: FloatArray) -> float:
    """Return the share of the windows [N] whose terms deviate no further than a probe's may."""
    return float(np.mean(deviations <= PROBE_TOLERANCE))


def _moved(scorer: Scorer, windows: WindowSet, terms: FloatArray) -> FloatArray:
    """Return how far the terms of each window move if the last digit of every reading does."""
    rng = np.random.default_rng(0)
    largest = np.zeros(len(windows), np.float32)
    for _ in range(_ROUNDINGS):
        rounded = windows.values * (1.0 + _ROUNDING * rng.standard_normal(windows.values.shape))
        largest = np.maximum(largest, _deviations(scorer.score(rounded.astype(np.float32), windows.lengths), terms))
    return largest


def _deviations(found: Sequence[FloatArray] | FloatArray, terms: FloatArray) -> FloatArray:
    return np.array([probe_deviation(one, other) for one, other in zip(found, terms, strict=True)], np.float32)
