"""The grid of rules that were compared for the default; committed before a cell of it was measured.

One pass over a task gives all of them: networks and features are computed once, distances once a scaling and damping.
Legend: N training windows, B test windows, C channels, K members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.detector.measure import RATE, found_at_rank
from benchmarks.paper.data.datasets import Task
from streamad.judge.evaluation import auc
from streamad.types import WindowSet
from streamad_models.ensemble import EnsembleOptions
from streamad_models.ensemble.fitting import Weights, common_scale, weights_of
from streamad_models.ensemble.learned import LearnedFits
from streamad_models.ensemble.model import EnsembleModel, joined, without_fills
from streamad_models.ensemble.neighbours import Neighbours, fit_reference
from streamad_models.ensemble.options import SPACES
from streamad_models.ensemble.scaling import fit_channel_scaling
from streamad_models.ensemble.spaces import DAMPING, features_of, fit_spaces
from streamad_models.neutral_ad.data import fit_scaling

Logs = npt.NDArray[np.float64]

SCALINGS: Final = ("own", "unit", "repeated", "both")
"""A channel's own spread; that of all channels of its unit; own, weighted by the share that repeats; both."""
WEIGHTINGS: Final = ("former", "fixed", "course")
"""Those of the former default; those by course as they are halfway between movements and batches; by course."""
POWERS: Final = (0.75, 0.9, 1.0)
"""The largest power of the neighbours' own values; the least is 0.75."""
DAMPINGS: Final = ("one", "space")
NETWORKS: Final = (0.0, 0.75)
"""The second is the default's on few windows; on more than 40 it weighs less than in the cells."""
_FORMER: Final[Weights] = {
    "minirocket": (1.0, 1.0, 0.0),
    "hydra": (1.0, 1.0, 0.0),
    "intervals": (0.5, 0.5, 0.0),
    "readings": (0.5, 0.0, 0.0),
    "moments": (0.0, 0.0, 0.0),
}
_HALFWAY: Final = weights_of(2, 0.5)  # course 1/4, few channels
_SHARE: Final = 0.3  # of the share found in what a rule is chosen by


class Choice(NamedTuple):
    """A rule: scaling of channels, weights of members, largest power, damping of spaces, weight of a network."""

    scaling: str
    weights: str
    power: float
    damping: str
    network: float

    def __str__(self) -> str:
        return "; ".join(f"{each:g}" if isinstance(each, float) else each for each in self)


GRID: Final = tuple(Choice(*each) for each in product(SCALINGS, WEIGHTINGS, POWERS, DAMPINGS, NETWORKS))
DEFAULT: Final = Choice("both", "course", 0.9, "space", NETWORKS[1])


class _Members(NamedTuple):
    """Logarithms of training [N, K] and test windows [B, K] without neighbours' own, and the latter with their powers.

    ``theirs`` are what neighbours have, to be taken off ``power`` times; a power is at most 1.
    """

    training: Logs
    test: Logs
    training_theirs: Logs
    test_theirs: Logs
    power: Logs

    def at(self, most: float) -> tuple[Logs, Logs]:
        """Return the logarithms of training and test windows with powers of at most ``most``."""
        power = np.minimum(self.power, most)
        return self.training - power * self.training_theirs, self.test - power * self.test_theirs


def goodness(aucs: npt.ArrayLike, shares: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return what a rule is chosen by: AUC + 0.3 x share found at the rank threshold."""
    return np.asarray(aucs, np.float64) + _SHARE * np.asarray(shares, np.float64)


def measured(task: Task, seed: int) -> Iterator[tuple[float, float]]:
    """Yield AUC and share found at the rank threshold of each choice of the grid."""
    for scores in scores_of_grid(task, seed):
        yield auc(scores, task.is_anomaly), found_at_rank(scores, task.is_anomaly, RATE)


def scores_of_grid(task: Task, seed: int) -> list[Logs]:
    """Return the scores [B] of the test windows by each choice, in the grid's order."""
    course = weights_of(task.train.values.shape[1], fit_channel_scaling(task.train).aligned)
    weights = {
        name: np.array([each for space in SPACES for each in of_spaces[space]])
        for name, of_spaces in zip(WEIGHTINGS, (_FORMER, _HALFWAY, course), strict=True)
    }
    network = _of_network(task, seed)
    factors = dict(zip(SCALINGS, _factors(task.train), strict=True))
    known: dict[bytes, dict[str, _Members]] = {}
    terms: dict[tuple[str, str, float], Logs] = {}
    for scaling, factor in factors.items():
        if factor.tobytes() not in known:  # without units two scalings are the same
            known[factor.tobytes()] = _of_spaces(task, factor, seed)
        for damping, most in product(DAMPINGS, POWERS):
            terms[scaling, damping, most] = _terms(*known[factor.tobytes()][damping].at(most))
    return [
        terms[each.scaling, each.damping, each.power] @ weights[each.weights] + each.network * network for each in GRID
    ]


def _factors(data: WindowSet) -> tuple[Logs, Logs, Logs, Logs]:
    """Return the factors [C] of the four scalings."""
    own = fit_scaling(without_fills(data), "standard")[1].astype(np.float64)
    repeated, both = (fit_channel_scaling(each).factor for each in (replace(data, units=()), data))
    return own, both / (repeated / own), repeated, both


@torch.inference_mode()
def _of_spaces(task: Task, factor: Logs, seed: int) -> dict[str, _Members]:
    """Return the members by damping, three a space."""
    n_channels, length = task.train.values.shape[1:]
    scaling = EnsembleModel(n_channels, length, [])
    scaling.set_channel_scaling(fit_channel_scaling(task.train).origin, factor)
    lengths = [torch.from_numpy(part.lengths) for part in (task.train, task.test)]
    windows = [torch.from_numpy(part.values) for part in (task.train, task.test)]
    training, test = (scaling.prepare(*pair) for pair in zip(windows, lengths, strict=True))
    parts: dict[str, list[_Members]] = {damping: [] for damping in DAMPINGS}
    for name, space in fit_spaces(training, EnsembleOptions(), seed).items():
        known, new = features_of(space, training, lengths[0]), features_of(space, test, lengths[1])
        one = _members(known, new, 1.0)
        parts["one"].append(one)
        parts["space"].append(one if DAMPING[name] == 1.0 else _members(known, new, DAMPING[name]))
    return {damping: _joined_members(found) for damping, found in parts.items()}


def _members(known: npt.NDArray[np.float32], new: npt.NDArray[np.float32], damping: float) -> _Members:
    reference = fit_reference(known, (POWERS[0], POWERS[-1]), damping)
    rows = torch.from_numpy(new)
    plain, relative = (
        Neighbours(replace(reference, locality=(power, power)))(rows).numpy().astype(np.float64) for power in (0.0, 1.0)
    )
    power = np.array([*reference.locality, 0.0])
    theirs = (reference.own - reference.training_logs[:, :2]) / np.array(reference.locality)
    own = np.column_stack([reference.own, reference.training_logs[:, 2]])
    return _Members(own, plain, np.column_stack([theirs, np.zeros(len(own))]), plain - relative, power)


def _joined_members(parts: list[_Members]) -> _Members:
    return _Members(*(np.concatenate(each, axis=-1) for each in zip(*parts, strict=True)))


def _of_network(task: Task, seed: int) -> Logs:
    """Return the terms [B] of the network with weight 1; zeros where none trains in seconds."""
    learned = LearnedFits(EnsembleOptions(), None).run(task.train, seed=seed, device="cpu", resume=None)
    total = np.zeros(len(task.test))
    for each in learned:
        with torch.inference_mode():
            test = each.member(torch.from_numpy(task.test.values), torch.from_numpy(task.test.lengths))[0].numpy()
        total += _terms(each.logs, test.astype(np.float64)).sum(axis=1) / len(learned)
    return total


def _terms(training: Logs, test: Logs) -> Logs:
    """Return the terms [B, K] with weight 1 of the test windows' logarithms."""
    median, spread = common_scale(training)
    terms: Logs = joined(torch.from_numpy((test - median) / spread)).numpy()
    return terms
