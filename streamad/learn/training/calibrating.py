"""Splits sequences into calibration and training, and calibrates a model: by those held out, or out of fold.

The split is by a seeded hash of the id, whatever the order.

Shapes: N training sequences, n for calibration, K transformations.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from streamad.errors import TrainingDataError
from streamad.judge.calibration import CalibrationMethod, scores_of
from streamad.learn.training.fits import Fits, joined, score_windows
from streamad.learn.training.publishing import Calibrated
from streamad.learn.training.references import Beside, Part, measured, trial_beside, trial_terms
from streamad.ports import Scorer
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, IntArray, WindowSet


def hash_order(ids: tuple[str, ...], seed: int) -> IntArray:
    """Return the indexes that sort ``ids`` by a hash of seed and id."""
    keys = [(blake2b(f"{seed}:{name}".encode(), digest_size=16).digest(), name) for name in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def folds_of(n: int, n_folds: int) -> tuple[IntArray, ...]:
    """Return the held-out indexes of each fold; every index is held out once, sizes differ by at most one."""
    return tuple(np.arange(fold, n, n_folds, dtype=np.int64) for fold in range(n_folds))


def held_out(
    scorer: Scorer,
    part: Part,
    terms: FloatArray,
    settings: Settings,
    *,
    method: CalibrationMethod = "split",
    n_presumed: int = 0,
) -> Calibrated:
    """Return the calibration by ``terms`` [n, K], the scores of the windows that ``part`` holds out of the training."""
    trial = trial_beside(settings.model, part.held_out)
    on_trial = None if trial is None else score_windows(scorer, trial.windows)
    references = measured(trial, on_trial, terms, Beside.of(settings, part), settings.model)
    return Calibrated(terms, part.held_out.ids, method, n_presumed=n_presumed, references=references)


def out_of_fold(
    fits: Fits, data: WindowSet, others: WindowSet, *, presumed_anomalies: float = 0.0, remedy: str
) -> Calibrated:
    """Calibrate by ``data`` [N] and ``others``, which do not train, each scored by a fold model that did not see it.

    The share ``presumed_anomalies`` with the highest scores is left out. Raises TrainingDataError with the ``remedy``
    if ``data`` is too small for the folds.
    """
    settings, n_folds = fits.settings, fits.settings.model.folds
    if len(data) < 2 * n_folds:
        raise TrainingDataError(
            f"{len(data)} training sequences, but {n_folds} folds need at least {2 * n_folds}: {remedy}"
        )
    folds = folds_of(len(data), n_folds)
    beside_folds = [others.take(part) for part in folds_of(len(others), n_folds)]
    trial = trial_beside(settings.model, data.take(folds[0]))
    tried = None if trial is None else trial.windows
    first = fits.n_fits - n_folds  # the final fit is the last, and one on all may come before the folds
    terms = [
        fits.out_of_fold(data, fold, number, other, tried if number == first else None)
        for number, (fold, other) in enumerate(zip(folds, beside_folds, strict=True), first)
    ]
    terms, on_trial = trial_terms(trial, terms)
    medians = tuple(float(np.median(scores_of(part))) for part in terms)
    calibration = np.concatenate(terms)
    n_presumed = round(presumed_anomalies * len(calibration))
    lowest = np.argsort(scores_of(calibration), kind="stable")[: len(calibration) - n_presumed]
    kept = np.sort(lowest)
    calibration, every = calibration[kept], np.arange(len(data))
    parts = (
        Part(data.take(np.setdiff1d(every, fold)), joined(data.take(fold), other))
        for fold, other in zip(folds, beside_folds, strict=True)
    )
    beside = Beside.of(settings, *parts, n_presumed=n_presumed)
    references = measured(trial, on_trial, calibration, beside, settings.model)
    held_out_by = tuple(
        (*(data.ids[place] for place in fold), *other.ids) for fold, other in zip(folds, beside_folds, strict=True)
    )
    every_id = [name for fold in held_out_by for name in fold]
    ids = tuple(every_id[place] for place in kept)
    return Calibrated(calibration, ids, "out_of_fold", held_out_by, medians, n_presumed, references)
