"""The grid of choices: which members, how local, how joined, how weighted; committed before a cell was measured.

A member is a measure in a feature space. Its logarithm is that of the plain measure minus ``locality`` times that of
its neighbours, so one pass over the data gives every choice. Legend: N training windows, B test windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from streamad_models.ensemble.fitting import WEIGHTS, common_scale
from streamad_models.ensemble.model import joined
from streamad_models.ensemble.neighbours import LOCALITY

Logs = npt.NDArray[np.float64]

_WEIGHTS: Final[dict[str, dict[str, float]]] = {
    "minirocket": {"minirocket": 1.0},
    "hydra": {"hydra": 1.0},
    "intervals": {"intervals": 1.0},
    "minirocket+hydra": {"minirocket": 1.0, "hydra": 1.0},
    "minirocket+hydra+intervals/2": {"minirocket": 1.0, "hydra": 1.0, "intervals": 0.5},
    "minirocket+hydra+intervals": {"minirocket": 1.0, "hydra": 1.0, "intervals": 1.0},
    "minirocket+hydra+intervals/2+readings/2": {"minirocket": 1.0, "hydra": 1.0, "intervals": 0.5, "readings": 0.5},
}
_MEASURES: Final = {"distance": (0,), "leverage": (1,), "both": (0, 1)}
_LOCALITIES: Final = (0.0, 0.75, 1.0)
_JOININGS: Final = ("softplus to 3, then log", "softplus", "sum")
_WEIGHTINGS: Final = ("by held-out modes", "fixed")  # the order of the stored cells


class Choice(NamedTuple):
    """Spaces with prior weights, measures, power of the neighbours' own values, form of the terms, and weighting.

    Of ``readings`` the leverage never counts beside other spaces.
    """

    spaces: str
    measures: str
    locality: float
    joining: str
    weighting: str

    def __str__(self) -> str:
        return f"{self.spaces}; {self.measures}; {self.locality:g}; {self.joining}; {self.weighting}"


GRID: Final = tuple(Choice(*each) for each in product(_WEIGHTS, _MEASURES, _LOCALITIES, _JOININGS, _WEIGHTINGS))


def default() -> Choice:
    """Return the choice that the product's default is."""
    wanted = {name: pair[0] for name, pair in WEIGHTS.items()}
    spaces = next(name for name, weights in _WEIGHTS.items() if weights == wanted)
    return Choice(spaces, "both", LOCALITY, _JOININGS[0], "fixed")


class Parts(NamedTuple):
    """A space's logarithms [N, 2] and [B, 2] of training and test windows, without (0) and with (1) full locality."""

    training: tuple[Logs, Logs]
    test: tuple[Logs, Logs]


def scores(choice: Choice, parts: Mapping[str, Parts], gains: Mapping[str, Logs]) -> Logs:
    """Return the scores [B] of the test windows by ``choice``.

    ``gains`` [2] are what held-out modes make of the prior weights of a space's two measures.
    """
    total = np.zeros(0)
    for name, prior in _WEIGHTS[choice.spaces].items():
        for column in _MEASURES[choice.measures]:
            if name == "readings" and column:
                continue
            training, test = (_between(each, choice.locality)[:, column] for each in parts[name])
            median, spread = common_scale(training[:, None])
            weight = prior * (gains[name][column] if choice.weighting != "fixed" else 1.0)
            term = weight * _joined((test - median) / spread, choice.joining)
            total = term if not total.size else total + term
    return total


def _joined(z: Logs, joining: str) -> Logs:
    if joining == "sum":
        return z
    return np.logaddexp(0.0, z) if joining == "softplus" else joined(torch.from_numpy(z)).numpy()


def _between(logs: tuple[Logs, Logs], locality: float) -> Logs:
    return logs[0] + locality * (logs[1] - logs[0])
