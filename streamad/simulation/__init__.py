"""A simulated fed-batch fermenter with process and sensor faults: recordings that look like a plant's, with the truth.

Model and magnitudes: docs/simulation.md. Needs numpy and scipy only.
"""

from __future__ import annotations

from streamad.simulation.faults import FAULTS, Fault
from streamad.simulation.inject import InjectedKind, inject_sensor_fault
from streamad.simulation.recordings import Recording, simulate, simulate_batch
from streamad.simulation.sensors import CHANNELS
from streamad.simulation.writing import LABELS_NAME, RECORDINGS_NAME, write_recordings

__all__ = [
    "CHANNELS",
    "FAULTS",
    "LABELS_NAME",
    "RECORDINGS_NAME",
    "Fault",
    "InjectedKind",
    "Recording",
    "inject_sensor_fault",
    "simulate",
    "simulate_batch",
    "write_recordings",
]
