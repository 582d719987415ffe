"""A simulated fed-batch fermenter with process and sensor faults: recordings that look like a plant's, with the truth.

Model and magnitudes: docs/model/simulation.md. Needs numpy and scipy only.
"""

from __future__ import annotations

from streamad.simulation.batch import Recipe
from streamad.simulation.faults import FAULTS, Fault
from streamad.simulation.messages import (
    LABEL_COLUMNS,
    LABELS_NAME,
    RECORDINGS_NAME,
    PlantMessage,
    PlantTime,
    label_row,
    longest_us,
    plant_messages,
    write_recordings,
)
from streamad.simulation.recordings import Recording, simulate, simulate_batch
from streamad.simulation.sensors import CHANNELS
from tests.support.sensor_faults import InjectedKind, inject_sensor_fault

__all__ = [
    "CHANNELS",
    "FAULTS",
    "LABELS_NAME",
    "LABEL_COLUMNS",
    "RECORDINGS_NAME",
    "Fault",
    "InjectedKind",
    "PlantMessage",
    "PlantTime",
    "Recipe",
    "Recording",
    "inject_sensor_fault",
    "label_row",
    "longest_us",
    "plant_messages",
    "simulate",
    "simulate_batch",
    "write_recordings",
]
