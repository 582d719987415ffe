"""Simple detectors as references for a trained model: how well they tell injected faults from held-out sequences.

Two figures: the share that each finds at the configured false-alarm rate, by a calibration of its own, which is what a
user gets; and the AUC, which asks only how it ranks windows. Only faults of the kinds by which no detector may choose
anything are injected. Nothing here changes the model, its calibration or its promotion.

Shapes: N held-out normal and F faulty windows, K terms, D draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamad.errors import StreamadError, TrainingDataError
from streamad.injected_faults import UNSEEN_KINDS, channel_scales, injected_windows
from streamad.judge.calibration import calibration_sequences_for, scores_of
from streamad.judge.evaluation import auc
from streamad.learn.registry.manifest import FoundAtRate, ReferenceFigures, References
from streamad.learn.training.fits import joined, score_windows, with_channels
from streamad.learn.training.found import DRAWS, Judged, Scores, quantiles
from streamad.plugins import make_detector
from streamad.ports import FittedDetector
from streamad.settings.learning import ModelSettings
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, IntArray, WindowSet

MIN_HELD_OUT = 4
"""Fewer held-out sequences give no references."""
MAX_HELD_OUT = 200
_FAULTY_WINDOWS = 20  # per kind and strength: 360 in all


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """``windows`` [N + F]: the normal ones, then the faulty ones.

    ``kinds`` [F] are the names of their faults, ``bases`` [F] the normal windows that these were injected into: the
    first ``n_bases`` of all.
    """

    windows: WindowSet
    n_normal: int
    n_bases: int
    kinds: npt.NDArray[np.str_]
    bases: IntArray

    @classmethod
    def of(cls, held_out: WindowSet, seed: int) -> Trial | None:
        """Return the trial on the first 200 of ``held_out``; None if they are too few or no fault changes them."""
        if len(held_out) < MIN_HELD_OUT:
            return None
        normal = held_out.take(np.arange(min(len(held_out), MAX_HELD_OUT)))
        bases = normal.take(np.arange(min(len(normal), _FAULTY_WINDOWS)))
        place = {name: index for index, name in enumerate(bases.ids)}
        injected = [*injected_windows(bases, channel_scales(normal), seed=seed, kinds=UNSEEN_KINDS)]
        faulty = joined(*(windows for _, _, windows in injected))
        kinds = np.repeat([kind.name for kind, _, _ in injected], [len(windows) for _, _, windows in injected])
        at = np.array([place[name] for name in faulty.ids], np.int64)
        return cls(joined(normal, faulty), len(normal), len(bases), kinds, at) if len(faulty) else None

    def by_fault(self, scores: Scores) -> dict[str, float]:
        """Return the AUC for each kind of fault of the ``scores`` [N + F]."""
        normal, faulty = scores[: self.n_normal], scores[self.n_normal :]
        found = {}
        for kind in dict.fromkeys(self.kinds.tolist()):
            odd = faulty[self.kinds == kind]
            found[kind] = auc(np.r_[normal, odd], np.repeat([False, True], [len(normal), len(odd)]))
        return found

    def judged(self, scored: Scored, rate: float) -> Judged:
        """Return the faulty windows as a detector judges them at ``rate``."""
        return Judged(scores_of(scored.trial)[self.n_normal :], self.bases, scored.calibration, rate)

    def found(self, judged: Judged, *, with_more: bool = False) -> FoundAtRate:
        """Return the share that is found, of all and of each kind of fault; ``with_more``: also estimates."""
        kinds = dict.fromkeys(self.kinds.tolist())
        return FoundAtRate(
            rate=judged.rate,
            n_calibration=judged.calibration.n,
            share=judged.share,
            interval=judged.interval(),
            by_fault={kind: float(judged.found[self.kinds == kind].mean()) for kind in kinds},
            with_more=judged.with_more() if with_more else (),
        )

    def interval(self, ours: Scores, theirs: Scores) -> tuple[float, float]:
        """Return the 90 % interval of the mean AUC of ``theirs`` less that of ``ours``, both scores [N + F].

        A paired bootstrap that draws held-out windows with all faults injected into them; its quantiles are expanded
        for few windows (Hesterberg, The American Statistician 69, 2015, section 5.3).
        """
        weights = self._draws()  # [D, N]
        of_faulty = weights[:, self.bases]  # [D, F]
        total, n_kinds = np.zeros(DRAWS), np.zeros(DRAWS)
        for kind in dict.fromkeys(self.kinds.tolist()):
            of_kind = self.kinds == kind
            gain = self._wins(theirs, of_kind) - self._wins(ours, of_kind)
            n_faulty = of_faulty[:, of_kind].sum(axis=1)
            gained = ((of_faulty[:, of_kind] @ gain) * weights).sum(axis=1)
            total += gained / (np.maximum(n_faulty, 1) * self.n_normal)
            n_kinds += n_faulty > 0  # a kind whose windows are not drawn has no figure
        return quantiles((total / np.maximum(n_kinds, 1))[n_kinds > 0], self.n_bases)

    def _wins(self, scores: Scores, of_kind: npt.NDArray[np.bool_]) -> Scores:
        """Return [F, N] whether a faulty window scores above a normal one; 1/2 for equal scores."""
        odd, normal = scores[self.n_normal :][of_kind][:, None], scores[: self.n_normal]
        won: Scores = (odd > normal) + 0.5 * (odd == normal)
        return won

    def _draws(self) -> Scores:
        """Return how often each normal window is drawn [D, N], those with faults and the others apart."""
        rng = np.random.default_rng(0)
        parts = [n for n in (self.n_bases, self.n_normal - self.n_bases) if n]
        return np.concatenate([rng.multinomial(n, np.full(n, 1 / n), DRAWS) for n in parts], axis=1).astype(float)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one fit is trained on, and the normal windows that it scores to calibrate."""

    training: WindowSet
    held_out: WindowSet


def trial_beside(model: ModelSettings, held_out: WindowSet) -> Trial | None:
    """Return the trial of a training on ``held_out``, in the order of a hash; None if it has no references."""
    return Trial.of(held_out, model.seed) if _kinds_beside(model) else None


def trial_terms(trial: Trial | None, parts: list[FloatArray]) -> tuple[list[FloatArray], FloatArray | None]:
    """Return the terms of folds without those of the trial's windows, which follow in the first, and the latter."""
    if trial is None:
        return parts, None
    n = len(parts[0]) - len(trial.windows)
    return [parts[0][:n], *parts[1:]], parts[0][n:]


def measured(
    trial: Trial | None, terms: FloatArray | None, calibration: FloatArray, beside: Beside, model: ModelSettings
) -> References | None:
    """Return the figures of a model with ``terms`` of the trial's windows and ``calibration`` terms [n, K].

    None without a trial, or if the model's terms are not finite.
    """
    if trial is None or terms is None:
        return None
    others = beside.terms_of(_kinds_beside(model), trial)
    return references_of(trial, Scored(terms, calibration), others, beside.rate)


def _kinds_beside(model: ModelSettings) -> tuple[str, ...]:
    return tuple(kind for kind in model.references if kind != model.detector)


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What a detector says: its terms [N + F, K] of the trial's windows, and those that calibrate it [n, K]."""

    trial: FloatArray
    calibration: FloatArray

    @property
    def is_finite(self) -> bool:
        """Return whether all terms are finite."""
        return bool(np.isfinite(self.trial).all() and np.isfinite(self.calibration).all())


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Fits the kinds beside a model on the same ``parts``, and calibrates them by what they score there.

    The first part's fit also scores the trial, whose normal windows are the first that it holds out. ``n_presumed`` of
    the calibration are left out, the highest of each kind, as of the model.
    """

    parts: Sequence[Part]
    rate: float
    seed: int
    n_presumed: int = 0

    @classmethod
    def of(cls, settings: Settings, *parts: Part, n_presumed: int = 0) -> Beside:
        """Return the fits at the configured rate and seed, on windows with the units of the plant's channels."""
        known = [replace(part, training=with_channels(part.training, settings)) for part in parts]
        return cls(known, settings.alerts.false_alarm_rate, settings.model.seed, n_presumed)

    def terms_of(self, kinds: Iterable[str], trial: Trial) -> dict[str, Scored | str]:
        """Return for each of ``kinds`` what it says, fitted on the CPU with its default options.

        For one that is not installed, cannot be fitted or gives no finite scores: why.
        """
        found: dict[str, Scored | str] = {}
        for kind in dict.fromkeys(kinds):
            try:
                found[kind] = self._terms_of(kind, trial)
            except StreamadError as error:
                found[kind] = " ".join(str(error).split())
        return found

    def _terms_of(self, kind: str, trial: Trial) -> Scored:
        most = max(MAX_HELD_OUT, calibration_sequences_for(self.rate))  # more of a part would cost more than they tell
        first, *others = self.parts
        fitted = self._fitted(kind, first)
        on_trial = score_windows(fitted, trial.windows)
        held_out = [on_trial[: trial.n_normal]]
        if trial.n_normal < (n := min(len(first.held_out), most)):
            held_out.append(score_windows(fitted, first.held_out.take(np.arange(trial.n_normal, n))))
        held_out += [score_windows(self._fitted(kind, part), part.held_out) for part in others]
        terms = np.concatenate(held_out)
        kept = np.argsort(scores_of(terms), kind="stable")[: len(terms) - self.n_presumed]
        scored = Scored(on_trial, terms[kept])
        if not scored.is_finite:
            raise TrainingDataError("its scores are not finite")
        return scored

    def _fitted(self, kind: str, part: Part) -> FittedDetector:
        return make_detector(kind, {}).fit(part.training, seed=self.seed, device="cpu")


def references_of(trial: Trial, model: Scored, others: Mapping[str, Scored | str], rate: float) -> References | None:
    """Return the figures of the ``model`` and of the ``others`` (see ``Beside``) at a false-alarm ``rate``.

    None if the model's terms are not finite.
    """
    if not model.is_finite:
        return None
    by_fault, ours = trial.by_fault(scores_of(model.trial)), trial.judged(model, rate)
    return References(
        n_held_out=trial.n_normal,
        n_injected=len(trial.kinds),
        n_bases=trial.n_bases,
        auc=_mean(by_fault),
        by_fault=by_fault,
        others=tuple(_figures(trial, model, ours, kind, theirs) for kind, theirs in others.items()),
        found=trial.found(ours, with_more=True),
    )


def _figures(trial: Trial, model: Scored, ours: Judged, kind: str, theirs: Scored | str) -> ReferenceFigures:
    if isinstance(theirs, str):
        return ReferenceFigures(kind=kind, left_out=theirs)
    scores, judged = scores_of(theirs.trial), trial.judged(theirs, ours.rate)
    by_fault = trial.by_fault(scores)
    return ReferenceFigures(
        kind=kind,
        auc=_mean(by_fault),
        by_fault=by_fault,
        difference=_mean(by_fault) - _mean(trial.by_fault(scores_of(model.trial))),
        interval=trial.interval(scores_of(model.trial), scores),
        found=trial.found(judged),
        gain=judged.share - ours.share,
        gain_interval=ours.gain_of(judged),
    )


def _mean(by_fault: dict[str, float]) -> float:
    return float(np.mean(list(by_fault.values())))
