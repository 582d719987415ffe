"""Makes a challenger: a first fit, a final fit without the worst sequences, calibration on held-out sequences.

Shapes: N training sequences, n for calibration, K transformations.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from streamad.judge.calibration import calibration_count, scores_of
from streamad.learn.training import calibrating
from streamad.learn.training.calibrating import hash_order
from streamad.learn.training.fits import Fits, joined, score_windows
from streamad.learn.training.publishing import Calibrated, LooksTraining, Publisher
from streamad.learn.training.references import Part
from streamad.learn.training.selection import Plan, to_windows
from streamad.ports import Scorer
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import Settings
from streamad.types import BoolArray, WindowSet


@dataclass(frozen=True, slots=True, eq=False)
class Challenger:
    """Makes one version from ``plan``; ``training`` holds its windows [N] in the order of a hash."""

    plan: Plan
    settings: Settings
    learning: LearningSettings
    training: WindowSet

    @classmethod
    def of(cls, plan: Plan, settings: Settings, learning: LearningSettings) -> Challenger:
        """Return the maker of a version from ``plan``, whose order does not matter."""
        windows = to_windows(plan.training)
        return cls(plan, settings, learning, windows.take(hash_order(windows.ids, settings.model.seed)))

    @property
    def n_dropped(self) -> int:
        """Return how many training sequences are dropped by the first fit: ``trim`` of those that may be dropped.

        It is more if more anomalies are presumed among those that no version has judged.
        """
        n = len(self.plan.training) - len(self.plan.protected)
        share = max(n * self.learning.trim, self.plan.n_unjudged * self.learning.presumed_anomalies)
        return int(share + 1e-9)

    @property
    def n_fits(self) -> int:
        """Return the number of fits: the first if it drops any, the folds if they calibrate, the final one."""
        return (self.n_dropped > 0) + (self.settings.model.folds if self._is_out_of_fold else 0) + 1

    @property
    def key(self) -> tuple[object, ...]:
        """Return what the fits depend on beside the training windows."""
        protected = blake2b("\n".join(sorted(self.plan.protected)).encode(), digest_size=16).hexdigest()
        scored_by_folds = [each.id for each in self.plan.calibration.sequences] if self._is_out_of_fold else None
        return "retrain", self.n_dropped, protected, scored_by_folds

    @property
    def _is_out_of_fold(self) -> bool:
        return self.plan.method == "out_of_fold"

    def make(self, fits: Fits, publisher: Publisher, early: LooksTraining | None = None) -> str:
        """Train, calibrate and publish, with the looks of ``early``; returns the version's number.

        The sequences with the worst scores by a first fit on all are dropped before the final one (one round of
        iterative trimmed loss minimisation: Shen and Sanghavi, ICML 2019). Raises as ``Publisher.publish``, and
        TrainingDataError.
        """
        keep = self._kept(fits)
        kept, dropped = self.training.take(np.flatnonzero(keep)), self.training.take(np.flatnonzero(~keep))
        calibrated = self._out_of_fold(fits, kept, dropped) if self._is_out_of_fold else None
        held_out = (*dropped.ids, *(each.id for each in self.plan.calibration.sequences))
        return publisher.publish(
            fits.final(kept),
            kept,
            lambda scorer: calibrated or self._held_out(scorer, kept),
            calibration_ids=held_out,
            names={each.id: each.name for each in self.plan.training},
            early=early,
        )

    def _kept(self, fits: Fits) -> BoolArray:
        keep = np.ones(len(self.training), dtype=np.bool_)
        if self.n_dropped:
            scores = scores_of(fits.first(self.training))
            free = np.flatnonzero([name not in self.plan.protected for name in self.training.ids])
            keep[free[np.argsort(scores[free], kind="stable")[len(free) - self.n_dropped :]]] = False
        return keep

    def _out_of_fold(self, fits: Fits, kept: WindowSet, dropped: WindowSet) -> Calibrated:
        """Calibrate by all sequences, reserved and dropped ones too, each scored by a fold model that did not see it.

        The dropped ones were selected for high scores: without them the upper tail would be cut off.
        """
        reserved, presumed = self.plan.calibration.sequences, self.learning.presumed_anomalies
        others = joined(to_windows(reserved), dropped) if reserved else dropped
        return calibrating.out_of_fold(fits, kept, others, presumed_anomalies=presumed, remedy="wait for more")

    def _held_out(self, scorer: Scorer, training: WindowSet) -> Calibrated:
        """Score the plan's calibration sequences, leave presumed anomalies out, and keep the exact count of the rest.

        Which of them calibrate is decided by a hash: see ``calibration_count``.
        """
        rate, held_out = self.settings.alerts.false_alarm_rate, self.plan.calibration
        windows = to_windows(held_out.sequences)
        terms = score_windows(scorer, windows)
        left_out = held_out.presumed(scores_of(terms), rate, self.learning.presumed_anomalies)
        kept = np.flatnonzero(~left_out)
        ids = tuple(held_out.sequences[i].id for i in kept)
        chosen = kept[hash_order(ids, self.settings.model.seed)[: calibration_count(len(kept), 1.0, rate)]]
        part, n_presumed = Part(training, windows.take(chosen)), int(left_out.sum())
        return calibrating.held_out(
            scorer, part, terms[chosen], self.settings, method=self.plan.method, n_presumed=n_presumed
        )
