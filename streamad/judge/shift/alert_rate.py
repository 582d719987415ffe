"""Says when far more sequences alert than a false-alarm rate, its calibration and many faults explain. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streamad.judge.calibration import Calibration

LATEST = 100
"""The share of alerts is that of so many of the latest judged sequences of a model."""
FEWEST = 10
"""Fewer judged sequences say nothing."""
MANY_FAULTS = 0.3
"""The share of sequences that a plant like its training may have of real faults."""
_UNLUCKY = 1e-3  # of the calibrations
_BY_CHANCE = 1e-6  # of the windows of such a calibration


@dataclass(frozen=True, eq=False)
class AllowedRate:
    """The share of sequences that may alert at a ``configured`` false-alarm rate with a ``calibration``.

    ``faults``: the share of sequences that may be real faults; 0 if all are labelled normal.
    """

    configured: float
    calibration: Calibration
    faults: float = MANY_FAULTS

    @cached_property
    def highest(self) -> float:
        """Return the false-alarm rate that one of 1,000 calibrations by as many exchangeable scores exceeds.

        If m of n calibration scores would alert themselves, a new normal one alerts with a probability that is
        Beta(m + 1, n - m) distributed (Vovk 2012, Conditional validity of inductive conformal predictors). Counting
        them serves extrapolated rates, too; to scores out of fold the law does not apply strictly.
        """
        from scipy.special import betaincinv  # noqa: PLC0415 - 0.15 s, and most plants never need it

        scores, n = self.calibration.scores, self.calibration.n
        n_below = int(np.searchsorted(scores, self.calibration.alert_score(self.configured), side="left"))
        return float(betaincinv(n - n_below + 1, n_below, 1 - _UNLUCKY))  # the lowest score never alerts: rate < 1

    def is_exceeded_by(self, n_alerts: int, n_judged: int) -> bool:
        """Return whether ``n_alerts`` of ``n_judged`` sequences, ``FEWEST`` at least, are far more than allowed.

        At the highest plausible share (the faults, and the ``highest`` rate of the others) so many alert by chance in
        at most one of a million such windows. Among M independent sequences of a plant like its training with at most
        so many faults, the probability of a false answer is therefore at most 0.001 + M / 1,000,000.
        """
        if n_judged < FEWEST or n_alerts <= self.faults * n_judged:
            return False
        from scipy.special import bdtrc  # noqa: PLC0415 - as above

        return float(bdtrc(n_alerts - 1, n_judged, self._plausible)) <= _BY_CHANCE

    def is_kept_again_by(self, n_alerts: int, n_judged: int) -> bool:
        """Return whether no more than the highest plausible share of the sequences alert."""
        return n_alerts <= self._plausible * n_judged

    @property
    def _plausible(self) -> float:
        return self.faults + (1 - self.faults) * self.highest
