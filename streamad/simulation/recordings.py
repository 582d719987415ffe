"""Recordings: batches of a small plant with their ground truth, one after the other on each fermenter."""

from __future__ import annotations

__all__ = ["Recording", "simulate", "simulate_batch"]

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamad.simulation.batch import (
    LOOP_CHANNELS,
    MAX_HOURS,
    SAMPLES_PER_HOUR,
    LoopFault,
    Trajectory,
    charged,
    draw_plan,
    onset_sample,
    run_batch,
)
from streamad.simulation.faults import FAULTS, Fault, Injection, draw_injection
from streamad.simulation.sensors import CHANNEL_NAMES, draw_noise, measure, sensor_error

_EPOCH_US = 1_736_143_200_000_000  # 2025-01-06T06:00:00Z, a Monday's first shift
_SAMPLE_US = 3_600_000_000 // SAMPLES_PER_HOUR
_SLOT_US = 32 * 3_600_000_000  # longer than any batch with the pause after it
_MAX_SAMPLES = int((MAX_HOURS + 4.0) * SAMPLES_PER_HOUR)
_FAULT_ORDER, _PLAN, _NOISE, _FAULT, _PAUSE = range(5)


@dataclass(frozen=True, slots=True)
class Recording:
    """One batch as recorded, with the truth about it.

    `times_us` int64 [n], Unix microseconds; `values` float32 [n, C] in the order of `CHANNELS`, NaN where a sample was
    lost. `fault` is empty for a normal batch; `severity` is in the unit of the fault.
    """

    stream: str
    sequence: str
    start_us: int
    times_us: NDArray[np.int64]
    values: NDArray[np.float32]
    fault: str = ""
    fault_channel: str | None = None
    onset_us: int | None = None
    severity: float = 0.0


def _rng(seed: int, index: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng((seed, index, purpose))


def simulate_batch(
    seed: int, index: int, fault: Fault | None = None
) -> tuple[NDArray[np.float32], Trajectory, Injection | None, int]:
    """Batch `index` of `seed`: values float32 [n, C], its true course, the injected fault and its first sample.

    With and without a fault it is the same batch up to the onset: same recipe, same noise.
    """
    plan = draw_plan(_rng(seed, index, _PLAN))
    noise = draw_noise(_rng(seed, index, _NOISE), _MAX_SAMPLES)
    if fault is None:
        course = run_batch(plan)
        return measure(course.signals, noise), course, None, 0

    rng = _rng(seed, index, _FAULT)
    injection = draw_injection(fault, rng)
    onset = onset_sample(plan, injection)
    channel = CHANNEL_NAMES.index(fault.channel)
    if fault.shape is None:
        upset = None if fault.upset is None else fault.upset(injection.severity)
        course = run_batch(charged(plan, injection), upset=upset, onset=onset)
        return measure(course.signals, noise), course, injection, onset

    signed = injection.direction * injection.severity
    error = sensor_error(fault.shape, _MAX_SAMPLES, onset, step=1.0 / SAMPLES_PER_HOUR, severity=signed, rng=rng)
    stuck = fault.shape == "stuck"
    loop = None
    if channel in LOOP_CHANNELS:
        loop = LoopFault(channel, error, float(noise.added[onset, channel]) if stuck else None)
    course = run_batch(plan, loop=loop, onset=onset)
    zero = None
    if fault.shape == "dropout":
        zero = slice(onset, onset + max(3, round(injection.severity * len(course.hours))))
    values = measure(
        course.signals, noise, channel=channel, error=error, stuck_from=onset if stuck else None, zero=zero
    )
    return values, course, injection, onset


def _deal_faults(n_normal: int, n_faulty: int, seed: int, first_index: int) -> list[Fault | None]:
    """Which batch gets which fault: random places, kinds in turn."""
    n = n_normal + n_faulty
    places = _rng(seed, first_index, _FAULT_ORDER).choice(n, n_faulty, replace=False)
    dealt: list[Fault | None] = [None] * n
    for turn, place in enumerate(sorted(places.tolist())):
        dealt[place] = FAULTS[turn % len(FAULTS)]
    return dealt


def simulate(
    n_normal: int,
    n_faulty: int,
    *,
    seed: int,
    first_index: int = 0,
    n_streams: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> list[Recording]:
    """Simulate `n_normal` normal and `n_faulty` faulty batches, faulty ones at random places, in order of their index.

    Deterministic: what batch i of a seed is charged with, and the noise on it, depend on neither the counts nor the
    streams; a call with a larger `first_index` gives further batches of the same plant, later in time. Sequence ids
    count from `B-0001` at index 0. `progress(done, total)` is called after each batch. Raises ValueError for negative
    counts or no stream.
    """
    if min(n_normal, n_faulty, first_index) < 0 or n_streams < 1:
        raise ValueError("simulate needs counts and first_index of at least 0 and n_streams of at least 1")
    free_at = [_EPOCH_US + (first_index // n_streams) * _SLOT_US + s * 5 * 3_600_000_000 for s in range(n_streams)]
    dealt = _deal_faults(n_normal, n_faulty, seed, first_index)
    recordings = []
    for done, fault in enumerate(dealt):
        index = first_index + done
        recording = _record(seed, index, fault, f"fermenter-{index % n_streams + 1}", free_at[index % n_streams])
        pause_s = int(_rng(seed, index, _PAUSE).uniform(1.5, 4.0) * 3600.0)
        free_at[index % n_streams] = int(recording.times_us[-1]) + pause_s * 1_000_000
        recordings.append(recording)
        if progress is not None:
            progress(done + 1, len(dealt))
    return recordings


def _record(seed: int, index: int, fault: Fault | None, stream: str, start_us: int) -> Recording:
    values, _, injection, onset = simulate_batch(seed, index, fault)
    times_us = start_us + np.arange(len(values), dtype=np.int64) * _SAMPLE_US
    sequence = f"B-{index + 1:04d}"
    if injection is None:
        return Recording(stream, sequence, start_us, times_us, values)
    return Recording(
        stream,
        sequence,
        start_us,
        times_us,
        values,
        fault=injection.fault.name,
        fault_channel=injection.fault.channel,
        onset_us=int(times_us[min(onset, len(times_us) - 1)]),
        severity=injection.severity,
    )
