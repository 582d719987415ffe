"""The trainings of the ensemble's networks, each also on halves, so that no training window judges itself.

Legend: N training windows, K transformations, V = K + 1 views of Z features, D = V Z.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.types import WindowSet
from streamad_models.ensemble.neighbours import Neighbours, fit_reference
from streamad_models.ensemble.network import NetworkMember
from streamad_models.ensemble.options import Effort
from streamad_models.neutral_ad.data import MIN_SEQUENCES
from streamad_models.neutral_ad.detector import NeutralAD
from streamad_models.neutral_ad.loss import contrastive_terms
from streamad_models.neutral_ad.model import NeutralADModel
from streamad_models.neutral_ad.options import NeutralADOptions, Parametrisation

NETWORKS: dict[Effort, tuple[tuple[Parametrisation, int], ...]] = {
    "quick": (),
    "normal": (("multiplicative", 0),),
    "thorough": tuple((form, step) for step in (0, 1) for form in ("multiplicative", "residual", "feed_forward")),
}
"""The networks of an effort: the form of T_k, and what is added to the seed."""
CONTRAST, VIEW_DISTANCE = "contrast", "view_distance"
FEWEST_WINDOWS = 2 * MIN_SEQUENCES
_FOLDS = 2
_ROWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A trained member; ``logs`` [N, 2] of the training windows are by networks that did not see them.

    ``shares`` [N, K] are the member's own, ``summary`` that of its training on all windows.
    """

    member: NetworkMember
    logs: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float32]
    summary: TrainingSummary


class LearnedFits:
    """The trainings of the networks of an effort, one after the other; their steps are reported as those of one."""

    def __init__(self, effort: Effort, time_limit_s: float | None, progress: TrainingProgress | None) -> None:
        self._networks = NETWORKS[effort]
        self._n_fits = len(self._networks) * (_FOLDS + 1)
        self._limit_s = time_limit_s
        self._progress = progress
        self._done: list[TrainingSummary] = []

    def run(self, data: WindowSet, *, seed: int, device: str, resume: Path | None) -> list[Learned]:
        """Train each network on ``data``, and on each half of it for the other half; none on fewer than 16 windows.

        Raises DetectorError if a training diverges, OutputError if a resume file cannot be written.
        """
        if len(data) < FEWEST_WINDOWS:
            return []
        return [self._fit(data, form, seed + added, device, resume) for form, added in self._networks]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the remarks on all trainings so far, each once."""
        stopped = [each.settings["stopped_by"] == "time_limit" for each in self._done]
        found = [remark for each, late in zip(self._done, stopped, strict=True) if not late for remark in each.remarks]
        if any(stopped):
            found.insert(0, f"{sum(stopped)} of {len(stopped)} trainings of networks ended at the time limit")
        return tuple(dict.fromkeys(found))

    def _fit(self, data: WindowSet, form: Parametrisation, seed: int, device: str, resume: Path | None) -> Learned:
        of_fold = np.random.default_rng(seed).permutation(len(data)) % _FOLDS  # modes may alternate
        logs = np.empty((len(data), 2))
        for fold in range(_FOLDS):
            others, held_out = (data.take(np.flatnonzero(mask)) for mask in (of_fold != fold, of_fold == fold))
            member, _ = self._trained(others, form, seed, device, resume)
            logs[of_fold == fold] = _outputs(member, held_out)[0]
        member, summary = self._trained(data, form, seed, device, resume)
        return Learned(member, logs, _outputs(member, data)[1], summary)

    def _trained(
        self, data: WindowSet, form: Parametrisation, seed: int, device: str, resume: Path | None
    ) -> tuple[NetworkMember, TrainingSummary]:
        options = NeutralADOptions(transformation=form, time_limit_s=self._time_left_s())
        path = None if resume is None else resume.with_name(f"{resume.name}.{len(self._done)}")
        progress = self._step_of(options.epochs)
        fitted = NeutralAD(options).fit(data, seed=seed, device=device, progress=progress, resume=path)
        self._done.append(fitted.summary)
        network = fitted.model.cpu()
        views, terms = _embedded(network, data)
        usual = torch.from_numpy(np.median(terms, axis=0))
        return NetworkMember(network, Neighbours(fit_reference(views)), usual).eval(), fitted.summary

    def _time_left_s(self) -> float | None:
        """Return the limit of the next training: an equal part of what the trainings before have left."""
        if self._limit_s is None:
            return None
        left_s = self._limit_s - sum(each.duration_s for each in self._done)
        return max(left_s / (self._n_fits - len(self._done)), 1e-6)

    def _step_of(self, epochs: int) -> TrainingProgress | None:
        if self._progress is None:
            return None
        report, before = self._progress, sum(each.n_epochs for each in self._done)
        n_most = before + (self._n_fits - len(self._done)) * epochs
        is_last_fit = len(self._done) == self._n_fits - 1

        def step(one: TrainingStep) -> None:
            report(TrainingStep(before + one.epoch, n_most, one.loss, one.validation_loss, one.is_last and is_last_fit))

        return step


@torch.inference_mode()
def _embedded(network: NeutralADModel, data: WindowSet) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the normalised views [N, D] and the terms [N, K]."""
    embedded = [network.embeddings(*part) for part in _parts(data)]
    views = [F.normalize(z_BVZ, dim=2).flatten(1).numpy() for z_BVZ in embedded]
    terms = [contrastive_terms(z_BVZ, network.temperature).numpy() for z_BVZ in embedded]
    return np.concatenate(views), np.concatenate(terms)


@torch.inference_mode()
def _outputs(member: NetworkMember, data: WindowSet) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    found = [member(*part) for part in _parts(data)]
    logs, shares = (np.concatenate([each[which].numpy() for each in found]) for which in (0, 1))
    return logs, shares


def _parts(data: WindowSet) -> Iterator[tuple[Tensor, Tensor]]:
    values, lengths = torch.from_numpy(data.values), torch.from_numpy(data.lengths)
    return zip(torch.split(values, _ROWS), torch.split(lengths, _ROWS), strict=True)
