"""The plant: the batches of each phase of its life, simulated beforehand on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from streamad.simulation.batch import Recipe
from streamad.simulation.faults import FAULTS, Fault
from streamad.simulation.messages import messages_of
from streamad.simulation.recordings import Recording, simulate_batch

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
_EVERY = 2  # of the simulator's samples, which are ten minutes apart
_SAMPLE_US = 1_200_000_000
_FERMENTERS = 16
_BEGIN_US = 7_200_000_000  # from one batch of the plant to the next: twelve a day


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the plant's life.

    ``faults`` is the share of faulty batches in its first two thirds, ``test_faults`` in its last. ``co2_offset``: by
    how many % of CO2 the off-gas analyser reads too high when the phase begins and when it ends. ``answered``: the
    share of alerts on which an operator says whether they were right.
    """

    name: str
    batches: int
    faults: float = 0.03
    test_faults: float = 1 / 6
    recipe: Recipe = field(default_factory=Recipe)
    co2_offset: tuple[float, float] = (0.0, 0.0)
    answered: float = 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: its number in the plant's life, the phase it falls into, the truth about it, and its message.

    ``fault`` is empty for a normal batch; ``end_us`` is the time of its last sample (Unix microseconds).
    """

    number: int
    phase: int
    fault: str
    end_us: int
    message: bytes


def thirds(n: int) -> tuple[range, range, range]:
    """Return the three parts of ``n`` batches."""
    first, second = n // 3, 2 * n // 3
    return range(first), range(first, second), range(second, n)


def simulated(phases: Sequence[Phase], seed: int, on_batch: Callable[[int, int], None]) -> list[Batch]:
    """Return all batches of the plant's life in the order of their beginning; deterministic for a seed.

    ``on_batch(done, total)`` is called after each.
    """
    orders = _orders(phases, seed)
    batches = []
    with ProcessPoolExecutor() as pool:
        for batch in pool.map(partial(_batch, seed), orders, chunksize=20):
            batches.append(batch)
            on_batch(len(batches), len(orders))
    return batches


@dataclass(frozen=True, slots=True)
class _Order:
    """A batch to simulate; ``fault`` is the index of its kind in FAULTS."""

    number: int
    phase: int
    fault: int | None
    recipe: Recipe
    co2_offset: float


def _orders(phases: Sequence[Phase], seed: int) -> list[_Order]:
    orders: list[_Order] = []
    n_faults = 0
    for place, phase in enumerate(phases):
        faulty = _faulty(phase, np.random.default_rng((seed, place)))
        begin, end = phase.co2_offset
        for i in range(phase.batches):
            fault = n_faults % len(FAULTS) if i in faulty else None
            n_faults += fault is not None
            offset = begin + (end - begin) * (i + 1) / phase.batches
            orders.append(_Order(len(orders), place, fault, phase.recipe, offset))
    return orders


def _faulty(phase: Phase, rng: np.random.Generator) -> set[int]:
    """Draw which batches of the phase are faulty."""
    first, second, last = thirds(phase.batches)
    before = range(first.start, second.stop)
    shares = ((before, phase.faults), (last, phase.test_faults))
    drawn = [rng.choice(part, round(len(part) * share), replace=False) for part, share in shares]
    return set(np.concatenate(drawn).tolist())


def _severe(fault: Fault) -> Fault:
    """Return ``fault`` in the upper half of its range of severity and the earlier half of its onset."""
    (mild, severe), (early, late) = fault.severity, fault.onset
    return replace(fault, severity=((mild + severe) / 2, severe), onset=(early, (early + late) / 2))


def _batch(seed: int, order: _Order) -> Batch:
    fault = None if order.fault is None else _severe(FAULTS[order.fault])
    offsets = {"offgas_co2": order.co2_offset}
    values = simulate_batch(seed, order.number, fault, recipe=order.recipe, offsets=offsets)[0][::_EVERY]
    start_us = START_US + order.number * _BEGIN_US
    recording = Recording(
        stream=f"fermenter-{order.number % _FERMENTERS + 1}",
        sequence=f"B-{order.number + 1:05d}",
        start_us=start_us,
        times_us=start_us + np.arange(len(values), dtype=np.int64) * _SAMPLE_US,
        values=values,
    )
    ((end_us, message),) = messages_of(recording, chunk_samples=len(values))
    return Batch(order.number, order.phase, fault.name if fault else "", end_us, message.encode())
