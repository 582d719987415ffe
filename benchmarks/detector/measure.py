"""Measures cells: every choice of the grid in one pass, and peers, on each task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch

from benchmarks.detector.cells import Cell
from benchmarks.detector.choices import GRID, Logs, Parts, default, scores
from benchmarks.detector.modes import chosen_weights
from benchmarks.detector.peers import PEERS
from benchmarks.detector.sets import Case, fewer
from benchmarks.paper.data.datasets import Task
from streamad.judge.evaluation import auc
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.ensemble.fitting import WEIGHTS
from streamad_models.ensemble.model import EnsembleModel
from streamad_models.ensemble.neighbours import LOCALITY, Neighbours, fit_reference
from streamad_models.ensemble.spaces import features_of, fit_spaces

CHOICES: Final = "choices"


def _nearest() -> Any:
    from streamad_models.baselines.estimators.nearest import NearestNeighbour  # noqa: PLC0415

    return NearestNeighbour()


def _local_outlier_factor() -> Any:
    from streamad_models.baselines.estimators.shallow import LocalOutlierFactor  # noqa: PLC0415

    return LocalOutlierFactor()


def _minirocket() -> Any:
    from streamad_models.baselines.estimators.minirocket import MiniRocketNearest  # noqa: PLC0415

    return MiniRocketNearest()


def _rockad() -> Any:
    from streamad_models.baselines.estimators.rockad import Rockad  # noqa: PLC0415

    return Rockad()


def _neutral_ad() -> Any:
    from streamad_models.neutral_ad import NeutralAD  # noqa: PLC0415

    return NeutralAD()


def _with_network() -> Any:
    return Ensemble(EnsembleOptions(effort="normal"))


METHODS: Final[dict[str, Callable[[], Any]]] = {
    "ensemble": Ensemble,
    "ensemble_normal": _with_network,
    "nearest": _nearest,
    "lof": _local_outlier_factor,
    "minirocket": _minirocket,
    "rockad": _rockad,
    "neutral_ad": _neutral_ad,
    **PEERS,
}


def measure(case: Case, method: str, *, n_training: int, seed: int) -> Cell:
    """Return the cell of ``method`` on ``case`` with ``n_training`` windows (0: all). Raises TrainingDataError."""
    task = case.task if n_training == 0 else fewer(case.task, n_training, seed)
    common: dict[str, Any] = {
        "dataset": case.row.dataset,
        "protocol": case.row.protocol,
        "label": case.label,
        "method": method,
        "n_training": n_training,
        "seed": seed,
    }
    if method == CHOICES:
        return Cell(**common, aucs=tuple(round(100 * value, 2) for value in _of_choices(task, seed)))
    began_s = time.process_time()
    fitted = METHODS[method]().fit(task.train, seed=seed, device="cpu")
    fit_s = time.process_time() - began_s
    began_s = time.process_time()
    found = fitted.score(task.test.values, task.test.lengths).sum(axis=1, dtype=np.float64)
    score_ms = (time.process_time() - began_s) / len(found) * 1e3
    value = auc(found, task.is_anomaly)
    return Cell(**common, auc=round(100 * value, 2), fit_s=round(fit_s, 2), score_ms=round(score_ms, 2))


def _of_choices(task: Task, seed: int) -> Iterator[float]:
    parts, gains = _parts(task, seed)
    for choice in GRID:
        yield auc(scores(choice, parts, gains), task.is_anomaly)


@torch.inference_mode()
def _parts(task: Task, seed: int) -> tuple[dict[str, Parts], dict[str, Logs]]:
    n_channels, length = task.train.values.shape[1:]
    scaling = EnsembleModel(n_channels, length, [])
    scaling.set_scaling(task.train)
    lengths = [torch.from_numpy(part.lengths) for part in (task.train, task.test)]
    windows = [torch.from_numpy(part.values) for part in (task.train, task.test)]
    training, test = (scaling.prepare(*pair) for pair in zip(windows, lengths, strict=True))
    parts, of_default = {}, {}
    for name, space in fit_spaces(training, EnsembleOptions(), seed).items():
        known, unknown = (
            features_of(space, training, lengths[0]),
            torch.from_numpy(features_of(space, test, lengths[1])),
        )
        references = [fit_reference(known, locality) for locality in (0.0, 1.0)]
        of_default[name] = replace(references[0], locality=LOCALITY)
        found = [Neighbours(reference)(unknown).numpy().astype(np.float64) for reference in references]
        parts[name] = Parts((references[0].training_logs, references[1].training_logs), (found[0], found[1]))
    weights = chosen_weights(of_default, seed).reshape(-1, 2)
    return parts, {
        name: weights[place] / np.maximum(prior, 1e-9) for place, (name, prior) in enumerate(WEIGHTS.items())
    }


def default_index() -> int:
    """Return the place of the product's default in the grid."""
    return GRID.index(default())
