"""Recordings: batches of a small plant with their labels, one after the other on each fermenter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from streamad.simulation.batch import (
    LOOP_CHANNELS,
    MAX_HOURS,
    SAMPLES_PER_HOUR,
    STANDARD,
    LoopFault,
    Recipe,
    Trajectory,
    charged,
    draw_plan,
    onset_sample,
    run_batch,
)
from streamad.simulation.faults import (
    CHANNEL_NAMES,
    FAULTS,
    Fault,
    Injection,
    draw_injection,
    draw_noise,
    measure,
    sensor_error,
)

_EPOCH_US = 1_736_143_200_000_000  # 2025-01-06T06:00:00Z, a Monday's first shift
_SAMPLE_US = 3_600_000_000 // SAMPLES_PER_HOUR
SLOT_US = 32 * 3_600_000_000  # longer than any batch with the pause after it
STAGGER_US = 5 * 3_600_000_000  # between the starts of neighbouring streams
_FAULT_BLOCK = 8
_MAX_SAMPLES = int((MAX_HOURS + 4.0) * SAMPLES_PER_HOUR)
_FAULT_ORDER, _PLAN, _NOISE, _FAULT, _PAUSE, _FAULT_DRAW = range(6)


@dataclass(frozen=True, slots=True)
class Recording:
    """One batch as recorded, with its label.

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
    seed: int,
    index: int,
    fault: Fault | None = None,
    *,
    recipe: Recipe = STANDARD,
    offsets: Mapping[str, float] = MappingProxyType({}),
) -> tuple[NDArray[np.float32], Trajectory, Injection | None, int]:
    """Return batch `index` of `seed`: values float32 [n, C], its true course, the injected fault and its first sample.

    Up to the onset a faulty batch equals the batch without a fault. `recipe` and `offsets` are lasting changes of a
    plant: its recipe, and the offsets of sensors in the channel's unit (only sensors outside the control loops). Raises
    ValueError for offsets of other channels.
    """
    if in_loop := offsets.keys() & {CHANNEL_NAMES[channel] for channel in LOOP_CHANNELS}:
        raise ValueError(f"{sorted(in_loop)[0]} closes a loop: an offset of its reading alone is not possible")
    plan = draw_plan(_rng(seed, index, _PLAN), recipe)
    noise = draw_noise(_rng(seed, index, _NOISE), _MAX_SAMPLES).offset(offsets)
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
    """Return the fault of each batch: random places, kinds in turn."""
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

    Deterministic: charge and noise of batch i of a seed do not depend on counts or streams; a larger `first_index`
    gives later batches of the same plant. Sequence ids count from `B-0001` at index 0. `progress(done, total)` is
    called after each batch. Raises ValueError for negative counts or no stream.
    """
    if min(n_normal, n_faulty, first_index) < 0 or n_streams < 1:
        raise ValueError("simulate needs counts and first_index of at least 0 and n_streams of at least 1")
    free_at = [begin_us(first_index, n_streams, stream) for stream in range(n_streams)]
    dealt = _deal_faults(n_normal, n_faulty, seed, first_index)
    recordings = []
    for done, fault in enumerate(dealt):
        index = first_index + done
        recording = _record(seed, index, fault, f"fermenter-{index % n_streams + 1}", free_at[index % n_streams])
        free_at[index % n_streams] = _free_after(seed, index, recording)
        recordings.append(recording)
        if progress is not None:
            progress(done + 1, len(dealt))
    return recordings


def begin_us(first_index: int, n_streams: int, stream: int = 0) -> int:
    """Return the plant's time at which stream number ``stream`` starts, if ``first_index`` is the first batch."""
    return _EPOCH_US + (first_index // n_streams) * SLOT_US + stream * STAGGER_US


def _free_after(seed: int, index: int, recording: Recording) -> int:
    pause_s = int(_rng(seed, index, _PAUSE).uniform(1.5, 4.0) * 3600.0)
    return int(recording.times_us[-1]) + pause_s * 1_000_000


def simulate_stream(
    stream: int, n_batches: int | None, *, seed: int, first_index: int, n_streams: int, fault_share: float
) -> Iterator[Recording]:
    """Yield the batches of one stream, each simulated when it is needed.

    All `n_streams` together give the batches `first_index` to `first_index + n_batches - 1` (None: no end), with the
    numbers of `simulate`; of every eight batches about the share `fault_share` has a fault, kinds in turn.
    """
    free_at = begin_us(first_index, n_streams, stream)
    first = first_index + (stream - first_index) % n_streams
    for index in itertools.count(first, n_streams):
        if n_batches is not None and index >= first_index + n_batches:
            return
        fault = _fault_of(seed, index, fault_share)
        recording = _record(seed, index, fault, f"fermenter-{stream + 1}", free_at)
        free_at = _free_after(seed, index, recording)
        yield recording


def _fault_of(seed: int, index: int, share: float) -> Fault | None:
    """Return the fault of a batch: random places in each block of eight, so that faults are spread evenly."""
    block, place = divmod(index, _FAULT_BLOCK)
    before, after = (math.floor(n * _FAULT_BLOCK * share + 1e-9) for n in (block, block + 1))
    places = sorted(_rng(seed, block, _FAULT_DRAW).choice(_FAULT_BLOCK, after - before, replace=False).tolist())
    return FAULTS[(before + places.index(place)) % len(FAULTS)] if place in places else None


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
