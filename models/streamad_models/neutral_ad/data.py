"""The checks of a training set before an epoch is spent on it, its scaling, and its validation split.

Legend: N windows, C channels, L window length.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamad.errors import TrainingDataError, some_of
from streamad.types import WindowSet

Scaling = Literal["standard", "range", "quantiles", "none"]

MIN_LENGTH = 2  # the reflection of one step needs a second one
MIN_SEQUENCES = 8  # a quarter of them is a batch of two
AUTO_VALIDATION_FROM = 200
OUTER_QUANTILES = (0.01, 0.99)
QUANTILE_SPAN = 4.0  # as wide as standard scaling makes a channel: with 1, deep encoders do not leave the start


def check_training_data(data: WindowSet) -> None:
    """Raise TrainingDataError unless ``data`` can give a model; the message names the channels at fault."""
    check_windows(data, MIN_SEQUENCES)
    check_length(data.values.shape[2], MIN_LENGTH, "the model")
    constant = data.constant_channels()
    if len(constant):
        raise TrainingDataError(f"{_channels(constant)} never changes in the training sequences: leave it out")


def check_length(length: int, at_least: int, who: str) -> None:
    """Raise TrainingDataError if windows of ``length`` steps are too short for ``who``."""
    if length < at_least:
        raise TrainingDataError(f"windows of length {length}: {who} needs at least {at_least} steps")


def check_windows(data: WindowSet, at_least: int) -> None:
    """Raise TrainingDataError for wrong shapes or lengths, too few windows, and values that are not finite."""
    values = data.values
    if values.ndim != 3 or data.lengths.shape != values.shape[:1]:
        raise TrainingDataError(f"training windows must be [N, C, L] with N lengths, not {values.shape}")
    if len(values) < at_least:
        raise TrainingDataError(f"{len(values)} training sequences: at least {at_least} are needed, record more")
    if data.lengths.min() < 1 or data.lengths.max() > values.shape[2]:
        raise TrainingDataError(f"sequence lengths must lie within 1..{values.shape[2]}")
    not_finite = np.flatnonzero(~np.isfinite(values).all(axis=(0, 2)))
    if len(not_finite):
        raise TrainingDataError(f"NaN or infinite values in {_channels(not_finite)}: fill or drop them first")


def fit_scaling(data: WindowSet, kind: Scaling) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return each channel's origin and factor [C] over valid samples only: ``(x - origin) * factor``.

    "standard" gives mean and 1 / standard deviation, "range" smallest value and 1 / range, "none" 0 and 1. "quantiles"
    maps the 1 % quantile to 0 and the 99 % quantile to 4, which single spikes do not move; of a channel whose two
    quantiles are equal the smallest and the largest value. The factor of a channel that never changes is 1.
    """
    valid_NL = np.arange(data.values.shape[2])[None, :] < data.lengths[:, None]
    samples = data.values.transpose(0, 2, 1)[valid_NL].astype(np.float64)
    if kind == "standard":
        origin, spread = samples.mean(axis=0), samples.std(axis=0)
    elif kind == "range":
        origin, spread = samples.min(axis=0), np.ptp(samples, axis=0)
    elif kind == "quantiles":
        origin, spread = _between_quantiles(samples)
    else:
        origin, spread = np.zeros(samples.shape[1]), np.ones(samples.shape[1])
    spread[data.constant_channels()] = 1.0
    return origin.astype(np.float32), (1.0 / spread).astype(np.float32)


def _between_quantiles(samples_NC: npt.NDArray[np.float64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    low, high = np.quantile(samples_NC, OUTER_QUANTILES, axis=0)
    is_wide = high > low
    origin = np.where(is_wide, low, samples_NC.min(axis=0))
    return origin, np.where(is_wide, high - low, np.ptp(samples_NC, axis=0)) / QUANTILE_SPAN


def split_validation(data: WindowSet, share: float | str, seed: int) -> tuple[WindowSet, WindowSet | None]:
    """Return the training and the validation sequences; "auto" takes a tenth for validation from 200 sequences on.

    Raises TrainingDataError if the split leaves too few to train on.
    """
    if share == "auto":
        share = 0.1 if len(data) >= AUTO_VALIDATION_FROM else 0.0
    count = round(float(share) * len(data))
    if count == 0:
        return data, None
    if len(data) - count < MIN_SEQUENCES:
        raise TrainingDataError(f"validation takes {count} of {len(data)} sequences: {MIN_SEQUENCES} must stay")
    order = np.random.default_rng(seed).permutation(len(data))
    return data.take(np.sort(order[count:])), data.take(np.sort(order[:count]))


def _channels(indexes: npt.NDArray[np.int64]) -> str:
    return ("channel " if len(indexes) == 1 else "channels ") + some_of(indexes.tolist())
