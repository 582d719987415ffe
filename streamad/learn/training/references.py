"""What simple detectors reach beside a trained model: injected faults, told from held-out normal sequences.

The figure is the AUC. It asks how a detector ranks windows, and needs no threshold: with few held-out sequences a
threshold at a small false-alarm rate is an extrapolation, and would decide the comparison. Only faults of the kinds by
which no detector may choose anything are injected. Nothing here changes the model, its calibration or its promotion.

Shapes: N held-out normal and F faulty windows, K terms, D draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.errors import StreamadError, TrainingDataError
from streamad.injected_faults import UNSEEN_KINDS, channel_scales, injected_windows
from streamad.judge.calibration import scores_of
from streamad.judge.evaluation import auc
from streamad.learn.registry.manifest import ReferenceFigures, References
from streamad.learn.training.fits import joined, score_windows
from streamad.plugins import make_detector
from streamad.settings.plant_yaml import ModelSettings
from streamad.types import FloatArray, IntArray, WindowSet

Scores: TypeAlias = npt.NDArray[np.float64]

MIN_HELD_OUT = 4
"""Fewer held-out sequences give no references."""
MAX_HELD_OUT = 200
_FAULTY_WINDOWS = 20  # per kind and strength: 360 in all
_CONFIDENCE = 0.9
_DRAWS = 2000


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

    def interval(self, ours: Scores, theirs: Scores) -> tuple[float, float]:
        """Return the 90 % interval of the mean AUC of ``theirs`` less that of ``ours``, both scores [N + F].

        A paired bootstrap that draws held-out windows with all faults injected into them; its quantiles are expanded
        for few windows (Hesterberg, The American Statistician 69, 2015, section 5.3).
        """
        weights = self._draws()  # [D, N]
        of_faulty = weights[:, self.bases]  # [D, F]
        total, n_kinds = np.zeros(_DRAWS), np.zeros(_DRAWS)
        for kind in dict.fromkeys(self.kinds.tolist()):
            of_kind = self.kinds == kind
            gain = self._wins(theirs, of_kind) - self._wins(ours, of_kind)
            n_faulty = of_faulty[:, of_kind].sum(axis=1)
            gained = ((of_faulty[:, of_kind] @ gain) * weights).sum(axis=1)
            total += gained / (np.maximum(n_faulty, 1) * self.n_normal)
            n_kinds += n_faulty > 0  # a kind whose windows are not drawn has no figure
        low = _expanded((1 - _CONFIDENCE) / 2, self.n_bases)
        found = np.quantile((total / np.maximum(n_kinds, 1))[n_kinds > 0], [low, 1 - low])
        return float(found[0]), float(found[1])

    def _wins(self, scores: Scores, of_kind: npt.NDArray[np.bool_]) -> Scores:
        """Return [F, N] whether a faulty window scores above a normal one; 1/2 for equal scores."""
        odd, normal = scores[self.n_normal :][of_kind][:, None], scores[: self.n_normal]
        won: Scores = (odd > normal) + 0.5 * (odd == normal)
        return won

    def _draws(self) -> Scores:
        """Return how often each normal window is drawn [D, N], those with faults and the others apart."""
        rng = np.random.default_rng(0)
        parts = [n for n in (self.n_bases, self.n_normal - self.n_bases) if n]
        return np.concatenate([rng.multinomial(n, np.full(n, 1 / n), _DRAWS) for n in parts], axis=1).astype(float)


def _expanded(tail: float, n: int) -> float:
    from scipy.stats import norm, t  # noqa: PLC0415 - scipy.stats takes 0.75 s to import

    return float(norm.cdf(math.sqrt(n / (n - 1)) * t.ppf(tail, n - 1)))


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
    trial: Trial | None, terms: FloatArray | None, training: WindowSet, model: ModelSettings
) -> References | None:
    """Return the figures of a model with ``terms`` of the trial's windows, trained on ``training``, and of the others.

    None without a trial, or if the model's terms are not finite.
    """
    if trial is None or terms is None:
        return None
    return references_of(trial, terms, scores_of_kinds(_kinds_beside(model), trial, training, model.seed))


def _kinds_beside(model: ModelSettings) -> tuple[str, ...]:
    return tuple(kind for kind in model.references if kind != model.detector)


def scores_of_kinds(kinds: Iterable[str], trial: Trial, training: WindowSet, seed: int) -> dict[str, Scores | str]:
    """Return for each of ``kinds`` its scores [N + F] of the trial's windows after a fit on ``training``, on the CPU.

    The kinds have their default options. For one that is not installed, cannot be fitted or gives no finite scores:
    why.
    """
    found: dict[str, Scores | str] = {}
    for kind in dict.fromkeys(kinds):
        try:
            fitted = make_detector(kind, {}).fit(training, seed=seed, device="cpu")
            found[kind] = _finite(scores_of(score_windows(fitted, trial.windows)))
        except StreamadError as error:
            found[kind] = " ".join(str(error).split())
    return found


def _finite(scores: Scores) -> Scores:
    if not np.isfinite(scores).all():
        raise TrainingDataError("its scores are not finite")
    return scores


def references_of(trial: Trial, terms: FloatArray, others: dict[str, Scores | str]) -> References | None:
    """Return the figures of the model with ``terms`` [N + F, K] and of the ``others`` (see ``scores_of_kinds``).

    None if the model's terms are not finite.
    """
    ours = scores_of(terms)
    if not np.isfinite(ours).all():
        return None
    by_fault = trial.by_fault(ours)
    return References(
        n_held_out=trial.n_normal,
        n_injected=len(trial.kinds),
        auc=_mean(by_fault),
        by_fault=by_fault,
        others=tuple(_figures(trial, ours, kind, theirs) for kind, theirs in others.items()),
    )


def _figures(trial: Trial, ours: Scores, kind: str, theirs: Scores | str) -> ReferenceFigures:
    if isinstance(theirs, str):
        return ReferenceFigures(kind=kind, left_out=theirs)
    by_fault = trial.by_fault(theirs)
    return ReferenceFigures(
        kind=kind,
        auc=_mean(by_fault),
        by_fault=by_fault,
        difference=_mean(by_fault) - _mean(trial.by_fault(ours)),
        interval=trial.interval(ours, theirs),
    )


def _mean(by_fault: dict[str, float]) -> float:
    return float(np.mean(list(by_fault.values())))
