"""Checks of a training set before the first epoch; errors name the plant's channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from streamad.errors import TrainingDataError, some_of
from streamad.types import ChannelSpec, WindowSet

_LEAST_SPAN = 1e-36


def check_training_data(data: WindowSet, channels: tuple[ChannelSpec, ...], length: int) -> None:
    """Raise TrainingDataError unless ``data`` is [N, C, L] of the plant's shape, finite and with distinct ids."""
    n, shape = len(data), (len(channels), length)
    if n == 0:
        raise TrainingDataError("no sequences to train on: record some, or point source.url at recordings")
    if data.values.shape != (n, *shape) or data.lengths.shape != (n,):
        raise TrainingDataError(
            f"training windows are {data.values.shape} with lengths {data.lengths.shape}, the config says {(n, *shape)}"
        )
    if data.lengths.min() < 1 or data.lengths.max() > length:
        raise TrainingDataError(f"lengths of training windows must lie within 1..{length}")
    _check_ids(data.ids)
    broken = np.argwhere(~np.isfinite(data.values).all(axis=2))
    if len(broken):
        window, channel = broken[0]
        raise TrainingDataError(
            f"sequence {data.ids[window]!r} holds values that are not finite in channel {channels[channel].name!r}: "
            "leave it out"
        )
    check_not_constant(data, channels)
    _check_scalable(data, channels)


def _check_scalable(data: WindowSet, channels: tuple[ChannelSpec, ...]) -> None:
    """Raise TrainingDataError for a channel whose variation is too small for 1 / it to be a 32-bit float."""
    valid = np.arange(data.values.shape[2]) < data.lengths[:, None]
    spans = np.ptp(data.values.transpose(0, 2, 1)[valid], axis=0)
    small = np.flatnonzero(spans < _LEAST_SPAN)
    if len(small):
        names = some_of([repr(channels[index].name) for index in small])
        raise TrainingDataError(
            f"the readings of {names} differ by less than {_LEAST_SPAN:g}, too little for 32-bit numbers: give them "
            "another unit"
        )


def _check_ids(ids: Sequence[str]) -> None:
    if twice := sorted(name for name, count in Counter(ids).items() if count > 1):
        raise TrainingDataError(
            f"{len(twice)} sequence ids occur more than once, such as {twice[0]!r}: one recording would both train and "
            "calibrate; give each sequence its own id; if they go on in the next file, set source.options.files: joined"
        )


def check_not_constant(data: WindowSet, channels: tuple[ChannelSpec, ...]) -> None:
    """Raise TrainingDataError naming the channels that never change: no scale can be fitted to them."""
    constant = data.constant_channels()
    if len(constant):
        names = some_of([repr(channels[index].name) for index in constant])
        what = "channel {} never changes" if len(constant) == 1 else "channels {} never change"
        raise TrainingDataError(
            f"{what.format(names)} in {len(data)} training sequences: take it out of channels, or record more"
        )
