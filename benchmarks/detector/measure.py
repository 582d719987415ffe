"""Measures cells: what a user of a method gets on a task, and every choice of the grid in one pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.detector.baselines import LargestZ
from benchmarks.detector.cells import Cell
from benchmarks.detector.sets import Case
from benchmarks.paper.data.datasets import Task
from streamad.errors import UsageError
from streamad.judge.calibration import OUT_OF_FOLD_BELOW, Calibration, calibration_count, scores_of
from streamad.judge.evaluation import auc
from streamad.learn.training.calibrating import folds_of, hash_order
from streamad.plugins import make_detector
from streamad.ports import FittedDetector
from streamad.settings.learning import ModelSettings
from streamad.types import FloatArray

CHOICES: Final = "choices"
FORMER: Final = "former"
RATE: Final = 0.02
_SETTINGS: Final = ModelSettings()

Scores = npt.NDArray[np.float64]


def _former() -> Any:
    """Return the default of commit f4a4ae99. Raises UsageError unless its ``models`` folder comes first."""
    if find_spec("streamad_models.ensemble.fitting") is not None:
        raise UsageError("`former` is measured with the models folder of commit f4a4ae99 in PYTHONPATH")
    return make_detector("ensemble", {})


def _present(kind: str, options: dict[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        if find_spec("streamad_models.ensemble.fitting") is None:
            raise UsageError(f"`{kind}` is measured with the models folder of this checkout in PYTHONPATH")
        return make_detector(kind, options)

    return make


METHODS: Final[dict[str, Callable[[], Any]]] = {
    "ensemble": _present("ensemble", {}),
    "ensemble_normal": _present("ensemble", {"effort": "normal"}),
    "neutral_ad": _present("neutral_ad", {}),
    FORMER: _former,
    "nearest": _present("nearest", {}),
    "unfolded": _present("unfolded", {}),
    "largest_z": LargestZ,
    "minirocket": _present("minirocket", {}),
    "pca": _present("pca", {}),
}


def measure(case: Case, method: str, *, seed: int) -> Cell:
    """Return the cell of ``method`` on ``case``. Raises TrainingDataError, and UsageError with other models at hand."""
    if method == CHOICES:
        return _of_grid(case, seed)
    began_s = time.process_time()
    fitted, terms = calibrated(METHODS[method], case.task, seed)
    fit_s = time.process_time() - began_s
    scores = scores_of(fitted.score(case.task.test.values, case.task.test.lengths))
    is_alert = scores >= Calibration.from_terms(terms, RATE).alert_score(RATE)
    return Cell(
        *case.row,
        case.label,
        method,
        seed,
        n_training=len(case.task.train),
        n_calibration=len(terms),
        auc=_percent(auc(scores, case.task.is_anomaly)),
        found=_percent(is_alert[case.task.is_anomaly].mean()),
        false_alarms=_percent(is_alert[~case.task.is_anomaly].mean()),
        fit_s=round(fit_s, 2),
    )


def _of_grid(case: Case, seed: int) -> Cell:
    from benchmarks.detector.choices import measured  # noqa: PLC0415 - `former` runs with models that lack its parts

    aucs, shares = zip(*measured(case.task, seed), strict=True)
    return Cell(
        *case.row,
        case.label,
        CHOICES,
        seed,
        n_training=len(case.task.train),
        aucs=tuple(map(_percent, aucs)),
        shares=tuple(map(_percent, shares)),
    )


def calibrated(make: Callable[[], Any], task: Task, seed: int) -> tuple[FittedDetector, FloatArray]:
    """Return the model of ``streamad train`` and its calibration terms [n, K]. Raises TrainingDataError."""
    data = task.train.take(hash_order(task.train.ids, seed))
    if len(data) >= OUT_OF_FOLD_BELOW:
        n = calibration_count(len(data), _SETTINGS.calibration, RATE)
        held_out, training = data.take(np.arange(n)), data.take(np.arange(n, len(data)))
        fitted = make().fit(training, seed=seed, device="cpu")
        return fitted, fitted.score(held_out.values, held_out.lengths)
    terms = []
    for fold in folds_of(len(data), _SETTINGS.folds):
        others, held_out = data.take(np.setdiff1d(np.arange(len(data)), fold)), data.take(fold)
        terms.append(make().fit(others, seed=seed, device="cpu").score(held_out.values, held_out.lengths))
    return make().fit(data, seed=seed, device="cpu"), np.concatenate(terms)


def found_at_rank(scores: Scores, is_anomaly: npt.NDArray[np.bool_], rate: float) -> float:
    """Return the share of anomalies above all but the share ``rate`` of the normal windows, without a calibration."""
    normal = np.sort(scores[~is_anomaly])[::-1]
    return float((scores[is_anomaly] > normal[int(rate * len(normal))]).mean())


def _percent(share: float | np.floating) -> float:
    return round(100 * float(share), 2)
