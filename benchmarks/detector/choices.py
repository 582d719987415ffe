"""The grid of choices: which members, how local, how joined. It was committed before the first cell was measured.

A member is a measure in a feature space. Its logarithm is that of the plain measure minus ``locality`` times that of
its neighbours, so one pass over the data gives every choice. Legend: N training windows, B test windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamad_models.ensemble.detector import WEIGHTS, common_scale
from streamad_models.ensemble.neighbours import LOCALITY, MEASURES

Logs = npt.NDArray[np.float64]

_WEIGHTS: Final[dict[str, dict[str, float]]] = {
    "minirocket": {"minirocket": 1.0},
    "hydra": {"hydra": 1.0},
    "intervals": {"intervals": 1.0},
    "minirocket+hydra": {"minirocket": 1.0, "hydra": 1.0},
    "minirocket+hydra+intervals/2": {"minirocket": 1.0, "hydra": 1.0, "intervals": 0.5},
    "minirocket+hydra+intervals": {"minirocket": 1.0, "hydra": 1.0, "intervals": 1.0},
}
_MEASURES: Final = {"distance": (0,), "leverage": (1,), "both": (0, 1)}
_LOCALITIES: Final = (0.0, 0.5, 0.75, 1.0)
_JOININGS: Final = ("softplus", "sum")


class Choice(NamedTuple):
    """The spaces with their weights, the measures, the power of the neighbours' own values, and how terms are made."""

    spaces: str
    measures: str
    locality: float
    joining: str

    def __str__(self) -> str:
        return f"{self.spaces}; {self.measures}; {self.locality:g}; {self.joining}"


GRID: Final = tuple(Choice(*each) for each in product(_WEIGHTS, _MEASURES, _LOCALITIES, _JOININGS))


def default() -> Choice:
    """Return the choice that the product's default is."""
    spaces = next(name for name, weights in _WEIGHTS.items() if weights == WEIGHTS)
    assert len(MEASURES) == len(_MEASURES["both"])
    return Choice(spaces, "both", LOCALITY, "softplus")


class Parts(NamedTuple):
    """A space's logarithms [N, 2] and [B, 2] of training and test windows, without (0) and with (1) full locality."""

    training: tuple[Logs, Logs]
    test: tuple[Logs, Logs]


def scores(choice: Choice, parts: Mapping[str, Parts]) -> Logs:
    """Return the scores [B] of the test windows by ``choice``."""
    weights = _WEIGHTS[choice.spaces]
    columns = list(_MEASURES[choice.measures])
    training, test = (
        np.concatenate([_between(parts[name][which], choice.locality)[:, columns] for name in weights], axis=1)
        for which in (0, 1)
    )
    median, spread = common_scale(training)
    z = (test - median) / spread
    terms = np.logaddexp(0.0, z) if choice.joining == "softplus" else z
    total: Logs = terms @ np.repeat(list(weights.values()), len(columns))
    return total


def _between(logs: tuple[Logs, Logs], locality: float) -> Logs:
    return logs[0] + locality * (logs[1] - logs[0])
