"""The faults of the simulation, with magnitudes that matter to a plant, and the channel that shows each first.

Process faults change the plant or its charge, so the control loops react. Sensor faults change the reading of a probe;
if the probe is part of a control loop, the loop acts on the false reading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from streamad.simulation.plant import Plan, Upset
from streamad.simulation.sensors import SensorShape


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
