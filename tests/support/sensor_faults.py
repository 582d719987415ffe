"""Puts a sensor fault into one known channel of any recorded sequence, to test what a monitor makes of it."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from streamad.simulation.faults import sensor_error

InjectedKind = Literal["stuck", "bias", "drift", "spike", "noise"]


def inject_sensor_fault(  # noqa: PLR0917  reads as: into these values, in this channel, this kind
    values: NDArray[np.float32],
    channel: int,
    kind: InjectedKind,
    rng: np.random.Generator,
    severity: float,
    sigma: float,
) -> NDArray[np.float32]:
    """Return a copy of `values`, float32 [n, C], with a fault in one channel.

    The fault begins at a random place between 10 and 60 % of the sequence. Its size is `severity` times `sigma`, the
    channel's usual standard deviation: the offset of a bias, what a drift has reached at the end, the size of a spike,
    the standard deviation of the noise; a stuck channel repeats its last good reading and has no size. Missing values
    stay missing, except that a stuck channel repeats its value there too.
    Raises ValueError for an unknown kind, a channel out of range, or fewer than three samples.
    """
    n, n_channels = values.shape
    if kind not in get_args(InjectedKind):
        raise ValueError(f"unknown kind {kind!r}: one of {', '.join(get_args(InjectedKind))}")
    if not 0 <= channel < n_channels or n < 3:
        raise ValueError(f"cannot put a fault into channel {channel} of an array of shape {values.shape}")
    onset = int(rng.integers(max(1, n // 10), max(2, int(n * 0.6))))
    broken = values.astype(np.float32, copy=True)
    if kind == "stuck":
        seen = broken[:onset, channel]
        good = seen[np.isfinite(seen)]
        broken[onset:, channel] = good[-1] if good.size else 0.0
        return broken
    signed = severity * sigma * (1.0 if rng.random() < 0.5 else -1.0)
    shape = "spikes" if kind == "spike" else kind
    error = sensor_error(shape, n, onset, step=1.0 / (n - onset), severity=signed, rng=rng)
    broken[:, channel] += error.astype(np.float32)
    return broken
