"""The sensors: channels, units, noise, resolution, and the readings of broken ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SensorShape = Literal["stuck", "bias", "drift", "spikes", "noise", "dropout"]

_MISSING_SHARE = 0.0015
_WANDER_MEMORY = 0.9


@dataclass(frozen=True, slots=True)
class Sensor:
    """One channel and its measurement: standard deviations in its unit, `relative` as a share of the value."""

    name: str
    unit: str
    noise: float
    relative: float = 0.0
    wander: float = 0.0  # slow, per step of an autoregression
    calibration: float = 0.0  # constant over one batch
    decimals: int = 2


SENSORS = (
    Sensor("temp_c", "°C", 0.05, calibration=0.05),
    Sensor("ph", "pH", 0.012, calibration=0.015, decimals=3),
    Sensor("dissolved_oxygen", "%", 0.6, wander=0.15, calibration=0.8),
    Sensor("agitator_power", "kW", 0.008, relative=0.015, decimals=3),
    Sensor("feed_rate", "L/h", 0.02, relative=0.01, decimals=3),
    Sensor("base_flow", "L/h", 0.01, relative=0.04, decimals=3),
    Sensor("coolant_flow", "L/h", 4.0, relative=0.015, decimals=1),
    Sensor("offgas_co2", "%", 0.03, relative=0.005, wander=0.008, calibration=0.03),
    Sensor("volume", "L", 0.5, calibration=0.8, decimals=1),
)
CHANNELS: tuple[tuple[str, str], ...] = tuple((sensor.name, sensor.unit) for sensor in SENSORS)
CHANNEL_NAMES = tuple(sensor.name for sensor in SENSORS)


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one batch, each [n, C]: float64 added, float64 as a share of the value, bool lost."""

    added: NDArray[np.float64]
    share: NDArray[np.float64]
    missing: NDArray[np.bool_]

    def offset(self, offsets: Mapping[str, float]) -> Noise:
        """Return this noise with constant offsets of channels, in their unit.

        Raises ValueError for an unknown channel.
        """
        if unknown := offsets.keys() - set(CHANNEL_NAMES):
            raise ValueError(f"no channel {sorted(unknown)[0]!r} (there are: {', '.join(CHANNEL_NAMES)})")
        return replace(self, added=self.added + [offsets.get(name, 0.0) for name in CHANNEL_NAMES])


def draw_noise(rng: np.random.Generator, n: int) -> Noise:
    """Return noise for up to `n` samples of all channels."""
    shape = (n, len(SENSORS))
    wander = np.array([*accumulate(rng.normal(size=shape), lambda before, step: step + _WANDER_MEMORY * before)])
    added = (
        rng.normal(size=shape) * [sensor.noise for sensor in SENSORS]
        + wander * [sensor.wander for sensor in SENSORS]
        + rng.normal(size=shape[1]) * [sensor.calibration for sensor in SENSORS]
    )
    share = rng.normal(size=shape) * [sensor.relative for sensor in SENSORS]
    return Noise(added, share, rng.random(shape) < _MISSING_SHARE)


def measure(
    signals: NDArray[np.float64],
    noise: Noise,
    *,
    channel: int = 0,
    error: NDArray[np.float64] | None = None,
    stuck_from: int | None = None,
    zero: slice | None = None,
) -> NDArray[np.float32]:
    """Return the readings of true `signals` [n, C]: float32 [n, C], rounded to the resolution, NaN if lost.

    In `channel`, `error` [>= n] is added, the reading freezes at sample `stuck_from`, or reads zero over `zero`.
    """
    n = len(signals)
    values = signals * (1.0 + noise.share[:n]) + noise.added[:n]
    if error is not None:
        values[:, channel] += error[:n]
    if stuck_from is not None:
        values[stuck_from:, channel] = values[stuck_from, channel]
    if zero is not None:
        values[zero, channel] = 0.0
    for c, sensor in enumerate(SENSORS):
        values[:, c] = np.round(np.maximum(values[:, c], 0.0), sensor.decimals)
    values[noise.missing[:n]] = np.nan
    return values.astype(np.float32)


def sensor_error(
    shape: SensorShape, n: int, onset: int, *, step: float, severity: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the error of a reading, float64 [n], zero before sample `onset`.

    `severity` is signed: the offset of a bias, the slope of a drift per unit of time (`step` is the time per sample),
    the size of spikes, the standard deviation of noise. Stuck and dropout replace readings, so they give zeros here.
    """
    error = np.zeros(n)
    after = n - onset
    if after <= 0:
        return error
    if shape == "bias":
        error[onset:] = severity
    elif shape == "drift":
        error[onset:] = severity * step * np.arange(1, after + 1)
    elif shape == "noise":
        error[onset:] = rng.normal(0.0, abs(severity), after)
    elif shape == "spikes":
        hit = rng.random(after) < 0.2
        hit[0] = True
        size = abs(severity) * rng.uniform(0.6, 1.4, after) * rng.choice((-1.0, 1.0), after)
        error[onset:] = np.where(hit, size, 0.0)
    return error
