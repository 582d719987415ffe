"""The check of the laws of ``Detector``; ``streamad.testing`` exports it.

It raises AssertionError with the broken law. Shapes: B windows, C channels, L window length, K transformations.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic import BaseModel

from streamad.errors import ArtifactError, TrainingDataError
from streamad.ports import Detector, FittedDetector, TrainingStep
from streamad.testing.conformance import check_scorer, require, require_alike, require_terms
from streamad.types import FloatArray, IntArray, WindowSet

_ABOVE = 0.75
_COPY_TOLERANCE = 0.25  # of how far the anomaly lies above the median

MakeDetector: TypeAlias = Callable[[], Detector]
_Score: TypeAlias = Callable[[FloatArray, IntArray], FloatArray]


def check_detector(
    make: MakeDetector,
    *,
    normal: WindowSet,
    anomalous: WindowSet,
    folder: Path,
    seed: int = 0,
    min_auc: float = 0.95,
    tolerance: float = 1e-4,
) -> None:
    """Check a detector on a CPU; ``make`` constructs it, always with the same options.

    It is trained (four times) on the first three quarters of ``normal``, at least 16 windows without a constant
    channel; the rest of them and ``anomalous``, gross anomalies, are scored. ``folder`` is empty and takes the export.

    - Seeding: the same seed gives the same scores, bit by bit, whatever the state of the global random generators of
      Python, numpy and torch; training, scoring and loading leave that state unchanged.
    - Score direction: the anomaly scores higher in a share of all pairs of at least ``min_auc``.
    - Training scores are terms like those of ``score``, one row a training window, as if it were not in the model's
      reference set: a gross anomaly in training scores above three quarters of the others, and a window that is
      there twice has about the score that a third copy of it has.
    - Save and load: the folder holds exactly the export's files; a new detector loads them and scores alike. An empty
      folder is an ArtifactError.
    - Purity: a window's terms depend neither on the other windows of its batch, nor on its place there, nor on values
      beyond its length; one window can be scored, and none; arguments are not changed.
    - Types: float64 windows and views that are not contiguous score like the same in float32; terms are finite
      float32 [B, K].
    - Training data: NaN, and fewer than two windows, are a TrainingDataError; a constant channel gives finite scores
      or a TrainingDataError.
    - Progress counts epochs from 1 to the last; the summary states the number of sequences.

    Terms may differ by ``tolerance`` (relative to the largest term of the set), but for seeding.
    """
    n_training = len(normal) * 3 // 4
    require(n_training >= 12 and len(anomalous) >= 2, "give at least 16 normal and 2 anomalous windows to check")
    training, held = normal.take(np.arange(n_training)), normal.take(np.arange(n_training, len(normal)))
    _check_construction(make)
    with _untouched("fit", training):
        fitted = _fit(make(), training, seed)
    _check_seeding(make, training, held, seed, fitted)
    for part in (held, anomalous):
        with _untouched("score", part):
            _check_terms(fitted.score, part, tolerance)
    _check_direction(fitted, held, anomalous, min_auc)
    _check_training_scores(make, (training, anomalous), seed, fitted, min_auc)
    _check_export(make, fitted, (held, anomalous), folder, tolerance)
    _check_training_data(make, training, seed)
    _check_constant_channel(make, training, held, seed)


# --- construction and training --------------------------------------------------------------------------------------


def _check_construction(make: MakeDetector) -> None:
    detector = make()
    require(isinstance(detector, Detector), f"{type(detector).__name__} must have options_model, fit and load")
    model = type(detector).options_model
    require(issubclass(model, BaseModel), "options_model must be a pydantic model")
    forbids = model.model_config.get("extra") == "forbid" and model.model_config.get("frozen") is True
    require(forbids, "options_model must forbid unknown options and be frozen")


def _fit(detector: Detector, data: WindowSet, seed: int) -> FittedDetector:
    steps: list[TrainingStep] = []
    fitted = detector.fit(data, seed=seed, device="cpu", progress=steps.append)
    require(
        isinstance(fitted, FittedDetector), f"fit must return summary, score and export, not {type(fitted).__name__}"
    )
    found, epochs = fitted.summary.n_sequences, [step.epoch for step in steps]
    require(found <= len(data), f"the summary must state the sequences trained on: {found} of {len(data)}")
    in_order = epochs == list(range(1, len(epochs) + 1)) and all(step.n_epochs >= len(epochs) for step in steps)
    require(in_order, f"progress must count epochs from 1 to the last, it reported {epochs}")
    return fitted


def _check_seeding(make: MakeDetector, training: WindowSet, held: WindowSet, seed: int, fitted: FittedDetector) -> None:
    with _other_random_state():
        again = make().fit(training, seed=seed, device="cpu")
        found = again.score(held.values, held.lengths)
    same = np.array_equal(found, fitted.score(held.values, held.lengths))
    require(same, "the same seed must give the same scores, bit by bit, whatever the global random state")


def _check_direction(fitted: FittedDetector, held: WindowSet, anomalous: WindowSet, min_auc: float) -> None:
    low, high = (fitted.score(part.values, part.lengths).sum(axis=1, dtype=np.float64) for part in (held, anomalous))
    above, equal = high[:, None] > low[None, :], high[:, None] == low[None, :]
    auc = float((above + 0.5 * equal).mean())
    require(
        auc >= min_auc, f"anomalies must score higher than normal windows: AUC {auc:.3f}, at least {min_auc} is due"
    )


def _check_training_scores(
    make: MakeDetector, parts: tuple[WindowSet, WindowSet], seed: int, fitted: FittedDetector, min_auc: float
) -> None:
    training, anomalous = parts
    terms = fitted.training_scores()
    require_terms(terms, (len(training), fitted.score(training.values[:1], training.lengths[:1]).shape[1]))
    joined = training, training.take([0]), anomalous.take([0])
    data = WindowSet(
        np.concatenate([part.values for part in joined]),
        np.concatenate([part.lengths for part in joined]),
        tuple(map(str, range(len(training) + 2))),
    )
    spoilt = make().fit(data, seed=seed, device="cpu")
    own = spoilt.training_scores().sum(axis=1, dtype=np.float64)
    usual = float(np.median(own))
    below = float((own[:-1] <= own[-1]).mean())
    require(
        below >= min(min_auc, _ABOVE),
        f"a gross anomaly in training must score high there, not above {below:.2f} of all",
    )
    copy = float(spoilt.score(data.values[:1], data.lengths[:1]).sum(dtype=np.float64))
    apart = abs(copy - float(own[0])) / max(abs(float(own[-1]) - usual), 1e-30)
    require(apart <= _COPY_TOLERANCE, f"a window trained on twice must score like its copies, not {apart:.2f} apart")


def _check_training_data(make: MakeDetector, training: WindowSet, seed: int) -> None:
    spoilt = training.values.copy()
    spoilt[0, 0, 0] = np.nan
    for data, what in ((replace(training, values=spoilt), "NaN"), (training.take([0]), "a single window")):
        try:
            make().fit(data, seed=seed, device="cpu")
        except TrainingDataError:
            continue
        raise AssertionError(f"{what} in training must be a TrainingDataError")


def _check_constant_channel(make: MakeDetector, training: WindowSet, held: WindowSet, seed: int) -> None:
    values = training.values.copy()
    values[:, 0] = 3.0
    try:
        fitted = make().fit(replace(training, values=values), seed=seed, device="cpu")
    except TrainingDataError:
        return
    terms = fitted.score(held.values, held.lengths)
    require(bool(np.isfinite(terms).all()), "a channel constant in training must give finite scores, or an error")


# --- scoring, saving and loading ------------------------------------------------------------------------------------


def _check_terms(score: _Score, part: WindowSet, tolerance: float) -> None:
    values, lengths = part.values, part.lengths
    terms = score(values, lengths)
    require_terms(terms, (len(part), terms.shape[-1]))
    require_alike(score(values[:1], lengths[:1]), terms[:1], tolerance, "one window alone must score as in its batch")
    double: Any = values.astype(np.float64)
    found = score(double, lengths)
    require(found.dtype == np.float32, f"terms of float64 windows must be float32, they are {found.dtype}")
    require_alike(found, terms, tolerance, "float64 windows must score like float32")
    strided = np.repeat(values, 2, axis=2)[:, :, ::2]
    require_alike(score(strided, lengths), terms, tolerance, "windows that are not contiguous must score like others")


def _check_export(
    make: MakeDetector, fitted: FittedDetector, parts: tuple[WindowSet, ...], folder: Path, tolerance: float
) -> None:
    empty, full = folder / "empty", folder / "export"
    empty.mkdir()
    full.mkdir()
    before = [fitted.score(part.values, part.lengths) for part in parts]
    names, found = sorted(fitted.export(full)), sorted(path.name for path in full.iterdir())
    require(names == found and bool(names), f"export must return the files it wrote, {found}, not {names}")
    with _untouched("load", parts[0]):
        scorer = make().load(full, device="cpu")
    for part, expected in zip(parts, before, strict=True):
        check_scorer(scorer, part.values, part.lengths, tolerance=tolerance)
        _check_terms(scorer.score, part, tolerance)
        loaded = scorer.score(part.values, part.lengths)
        require_alike(loaded, expected, tolerance, "a loaded model must score like the one that was exported")
        same = np.array_equal(fitted.score(part.values, part.lengths), expected)
        require(same, "export must leave the fitted model as it was")
    try:
        make().load(empty, device="cpu")
    except ArtifactError:
        return
    raise AssertionError("loading from an empty folder must be an ArtifactError")


# --- random state ---------------------------------------------------------------------------------------------------


def _random_state() -> tuple[object, ...]:
    """Return the states of the global generators, comparable; torch's only if torch is loaded."""
    name, keys, *rest = np.random.get_state(legacy=True)
    torch: Any = sys.modules.get("torch")
    return random.getstate(), name, np.asarray(keys).tobytes(), *rest, torch and torch.get_rng_state().numpy().tobytes()


@contextmanager
def _untouched(what: str, data: WindowSet) -> Iterator[None]:
    """Require that the block leaves ``data`` and the global random state unchanged."""
    state, values, lengths = _random_state(), data.values.copy(), data.lengths.copy()
    loaded = "torch" in sys.modules
    yield
    after = _random_state()
    compared = len(state) if loaded else -1
    require(after[:compared] == state[:compared], f"{what} must leave the caller's random state alone")
    same = np.array_equal(values, data.values) and np.array_equal(lengths, data.lengths)
    require(same, f"{what} must not change its arguments")


@contextmanager
def _other_random_state() -> Iterator[None]:
    """Advance the global random generators for the block, and restore them afterwards."""
    torch: Any = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state(), torch and torch.get_rng_state()
    random.random()
    np.random.random()
    if torch:
        torch.rand(1)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if torch:
            torch.set_rng_state(states[2])
