"""The faults of the simulation, with magnitudes that matter to a plant, and its sensors, of which each fault has one.

Process faults change the plant or its charge, so the control loops react. Sensor faults change the reading of a probe;
if the probe is part of a control loop, the loop acts on the false reading. Sensors have units, noise and resolution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamad.simulation.plant import Plan, Upset

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


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    `channel` shows it first, `severity` is its range in `unit`, `onset` that of the onset as a share of the planned
    duration. Exactly one of `upset`, `charge` (severity signed) and `shape` is its effect.
    """

    name: str
    kind: Literal["process", "sensor"]
    channel: str
    severity: tuple[float, float]
    unit: str
    onset: tuple[float, float]
    upset: Callable[[float], Upset] | None = None
    charge: Callable[[Plan, float], Plan] | None = None
    shape: SensorShape | None = None


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault in one batch: severity, sign, and onset as a share of the planned duration."""

    fault: Fault
    severity: float
    direction: float
    onset_share: float


def _loss(severity: float) -> float:
    return 1.0 - severity


FAULTS: tuple[Fault, ...] = (
    Fault(
        "cooling_fouling",
        "process",
        "coolant_flow",
        (0.35, 0.6),
        "share of heat transfer lost",
        (0.0, 0.55),
        upset=lambda s: Upset(jacket_transfer=_loss(s)),
    ),
    Fault("ph_sensor_bias", "sensor", "ph", (0.2, 0.5), "pH, either way", (0.2, 0.85), shape="bias"),
    Fault(
        "feed_pump_loss",
        "process",
        "feed_rate",
        (0.2, 0.5),
        "share of delivery lost",
        (0.4, 0.75),
        upset=lambda s: Upset(feed_pump=_loss(s)),
    ),
    Fault("temp_sensor_stuck", "sensor", "temp_c", (1.0, 1.0), "frozen at its last reading", (0.2, 0.7), shape="stuck"),
    Fault(
        "aeration_loss",
        "process",
        "offgas_co2",
        (0.35, 0.65),
        "share of air lost",
        (0.1, 0.7),
        upset=lambda s: Upset(air_supply=_loss(s)),
    ),
    Fault(
        "do_sensor_drift", "sensor", "dissolved_oxygen", (4.0, 10.0), "% per h, either way", (0.2, 0.6), shape="drift"
    ),
    Fault(
        "wrong_feed_concentration",
        "process",
        "offgas_co2",
        (0.25, 0.5),
        "share of glucose missing in the feed",
        (0.0, 0.0),
        charge=lambda plan, s: replace(plan, feed_glucose_g_l=plan.feed_glucose_g_l * _loss(abs(s))),
    ),
    Fault("ph_sensor_spikes", "sensor", "ph", (0.15, 0.5), "pH, either way", (0.1, 0.7), shape="spikes"),
    Fault(
        "coolant_valve_stuck",
        "process",
        "temp_c",
        (0.15, 0.45),
        "share below its position at onset",
        (0.45, 0.8),
        upset=lambda s: Upset(coolant_valve=_loss(s)),
    ),
    Fault(
        "feed_meter_dropout",
        "sensor",
        "feed_rate",
        (0.15, 0.3),
        "share of the batch reading zero",
        (0.6, 0.7),
        shape="dropout",
    ),
    Fault(
        "contamination",
        "process",
        "base_flow",
        (0.3, 1.5),
        "g/L of contaminant at onset",
        (0.15, 0.4),
        upset=lambda s: Upset(contaminant_g_l=s),
    ),
    Fault("temp_sensor_noise", "sensor", "temp_c", (0.3, 1.0), "°C standard deviation", (0.1, 0.7), shape="noise"),
    Fault(
        "agitator_slip",
        "process",
        "agitator_power",
        (0.55, 0.8),
        "share of power lost",
        (0.1, 0.7),
        upset=lambda s: Upset(stirrer=_loss(s)),
    ),
    Fault("volume_sensor_drift", "sensor", "volume", (2.0, 5.0), "L per h, either way", (0.1, 0.5), shape="drift"),
    Fault(
        "base_line_blocked",
        "process",
        "ph",
        (0.5, 0.85),
        "share of delivery lost",
        (0.3, 0.7),
        upset=lambda s: Upset(base_pump=_loss(s)),
    ),
    Fault(
        "wrong_initial_charge",
        "process",
        "dissolved_oxygen",
        (0.35, 0.6),
        "share of glucose, too little or too much",
        (0.0, 0.0),
        charge=lambda plan, s: replace(plan, glucose_g_l=plan.glucose_g_l * (1.0 + s)),
    ),
)


def draw_injection(fault: Fault, rng: np.random.Generator) -> Injection:
    """Draw severity, sign and onset, uniform over the ranges of the fault."""
    severity, onset = rng.uniform(*fault.severity), rng.uniform(*fault.onset)
    return Injection(fault, float(severity), 1.0 if rng.random() < 0.5 else -1.0, float(onset))
