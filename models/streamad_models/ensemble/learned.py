"""The trainings of the ensemble's networks, each also without folds, so that no training window judges itself.

Legend: N training windows, K transformations, V = K + 1 views of Z features, D = V Z.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.types import WindowSet
from streamad_models.ensemble.model import NetworkMember
from streamad_models.ensemble.neighbours import Neighbours, fit_reference
from streamad_models.ensemble.options import Effort, EnsembleOptions
from streamad_models.fitted import MAX_REFERENCES
from streamad_models.neutral_ad.data import MIN_SEQUENCES
from streamad_models.neutral_ad.model import NeutralADModel, contrastive_terms
from streamad_models.neutral_ad.networks import block_widths, depth_for_length
from streamad_models.neutral_ad.options import NeutralADOptions, Parametrisation
from streamad_models.neutral_ad.training import fit_model

NETWORKS: dict[Effort, tuple[tuple[Parametrisation, int], ...]] = {
    "distances": (),
    "quick": (("multiplicative", 0),),
    "normal": (("multiplicative", 0),),
    "thorough": tuple((form, step) for step in (0, 1) for form in ("multiplicative", "residual", "feed_forward")),
}
"""The networks of an effort: the form of T_k, and what is added to the seed."""
MOST_SECONDS: Final = 20.0
"""CPU seconds of the network of a quick fit by ``cpu_seconds``, or it has none."""
CONTRAST, VIEW_DISTANCE = "contrast", "view_distance"
_STEPS: Final = 96
"""Of the optimiser, or one epoch. Held-out windows are told apart best after 50 to 100 steps (three sets,
throw-away runs); the loss falls on, and so does that of held-out windows."""
_BATCH: Final = 16
_MOST_STEPS: Final = MAX_REFERENCES // _BATCH
_OPERATIONS_A_SECOND, _SECONDS_A_STEP = 5e10, 0.008  # of one thread of the machine of docs/internals/speed.md
_ROWS = 64


def n_folds(n: int) -> int:
    """Return in how many folds ``n`` windows judge one another: halves of few would leave too little to train on."""
    return 2 if n >= 2 * MIN_SEQUENCES else 4


def schedule(n: int) -> tuple[int, int]:
    """Return epochs and batch size of a training on ``n`` windows.

    >>> [schedule(n) for n in (8, 30, 100, 2000)]
    [(48, 4), (24, 7), (16, 16), (1, 16)]
    """
    batch = min(max(n // 4, 4), _BATCH)
    return max(_STEPS // max(n // batch, 1), 1), batch


def cpu_seconds(n_channels: int, length: int) -> float:
    """Return about how long all trainings of one network take at most, one thread: the same on every machine.

    It is that of 2,000 windows, whatever their number: fits on all and without a fold must have the same terms. The
    operations are those of the mask networks' and the encoder's convolutions, three times for forward and backward.
    """
    n_transformations = NeutralADOptions().n_transformations
    masks = n_transformations * 8 * 3 * n_channels**2 * length
    widths, steps, encoder = [n_channels, *block_widths(depth_for_length(length))], length, 0
    for place, (n_in, n_out) in enumerate(pairwise(widths)):
        inwards, steps = steps * n_in**2, steps if place == 0 else (steps + 1) // 2
        encoder += inwards + steps * (3 * n_in**2 + 4 * n_in * n_out)
    n_steps = 3 * _MOST_STEPS
    operations = 6.0 * n_steps * _BATCH * (masks + (n_transformations + 1) * encoder)
    return operations / _OPERATIONS_A_SECOND + n_steps * _SECONDS_A_STEP


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

    def __init__(self, options: EnsembleOptions, progress: TrainingProgress | None) -> None:
        self._effort, self._limit_s, self._progress = options.effort, options.time_limit_s, progress
        self._n_fits = 0
        self._done: list[TrainingSummary] = []

    def run(self, data: WindowSet, *, seed: int, device: str, resume: Path | None) -> list[Learned]:
        """Train each network on ``data``, and without each fold for that fold.

        With effort ``quick`` none that may take longer than ``MOST_SECONDS``. The numbers of channels and steps
        decide, never a clock: the same data have the same members everywhere. Raises DetectorError if a training
        diverges, OutputError if a resume file cannot be written.
        """
        if self._effort == "quick" and cpu_seconds(*data.values.shape[1:]) > MOST_SECONDS:
            return []
        networks = NETWORKS[self._effort]
        self._n_fits = len(networks) * (n_folds(len(data)) + 1)
        return [self._fit(data, form, seed + added, device, resume) for form, added in networks]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the remarks on all trainings so far, each once."""
        stopped = [each.settings["stopped_by"] == "time_limit" for each in self._done]
        found = [remark for each, late in zip(self._done, stopped, strict=True) if not late for remark in each.remarks]
        if any(stopped):
            found.insert(0, f"{sum(stopped)} of {len(stopped)} trainings of networks ended at the time limit")
        return tuple(dict.fromkeys(found))

    def _fit(self, data: WindowSet, form: Parametrisation, seed: int, device: str, resume: Path | None) -> Learned:
        folds = n_folds(len(data))
        of_fold = np.random.default_rng(seed).permutation(len(data)) % folds  # modes may alternate
        logs = np.empty((len(data), 2))
        for fold in range(folds):
            others, held_out = (data.take(np.flatnonzero(mask)) for mask in (of_fold != fold, of_fold == fold))
            member, _ = self._trained(others, form, seed, device, resume)
            logs[of_fold == fold] = _outputs(member, held_out)[0]
        member, summary = self._trained(data, form, seed, device, resume)
        return Learned(member, logs, _outputs(member, data)[1], summary)

    def _trained(
        self, data: WindowSet, form: Parametrisation, seed: int, device: str, resume: Path | None
    ) -> tuple[NetworkMember, TrainingSummary]:
        epochs, batch = schedule(len(data))
        options = NeutralADOptions(
            transformation=form,
            epochs=epochs,
            batch_size=batch,
            patience=None,
            validation=0.0,
            time_limit_s=self._time_left_s(),
        )
        path = None if resume is None else resume.with_name(f"{resume.name}.{len(self._done)}")
        progress = self._step_of(options.epochs)
        untrained = NeutralADModel(data.values.shape[1], data.values.shape[2], options, seed)
        is_small = cpu_seconds(*data.values.shape[1:]) <= MOST_SECONDS
        with one_thread() if is_small else nullcontext():
            fitted = fit_model(untrained, data, options, seed=seed, device=device, progress=progress, resume=path)
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread: with small batches two save little, and wait for each other on a busy machine.

    Measured by ``benchmarks/speed/ensemble.py threads`` on two cores that other programs used: 18 s, with two 62 s.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
