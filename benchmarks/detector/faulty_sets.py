"""The family of faults: recordings in which the anomalies are faults, beside the movements and shapes of ``sets``.

A robot's failures, a simulated chemical plant in windows of 60 samples, fermenters with weak faults (as they are, and
as 40 channels of which 20 are noise, in runs that differ by 30 % in length), and real batches of a nylon reactor and
a dryer with injected faults. Each is divided by a seed into training windows, later normal ones and faulty ones.
Legend: N sequences, C channels, L window length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.detector.faults import windows_of
from benchmarks.detector.sets import Case, Row
from benchmarks.paper.data.datasets import Task, data_path
from streamad.injected_faults import channel_scales, injected_windows
from streamad.simulation.faults import CHANNELS, FAULTS
from streamad.simulation.recordings import Recording, simulate, simulate_batch
from streamad.types import WindowSet

Values = npt.NDArray[np.float32]

FAULTY: Final = ("robot_failures_lp1", "tennessee_eastman", "weak_faults", "wide_plant", "batch_nylon", "batch_dryer")
SPLITS: Final = (0, 1)
"""The seeds of the divisions; they stand in the place of a class in ``Case.label``, for robots 10 times with it."""
_ROBOT_UNITS: Final = ("N", "N", "N", "N m", "N m", "N m")
_WINDOW: Final = 60
_ONSET: Final = 160  # the sample at which a fault of the test runs begins
_WEAK: Final = (0.25, 0.5)  # of a fault's smallest severity
_N_TRAINING, _N_LATER, _N_EACH = 60, 60, 4
_N_CHANNELS, _N_NOISE = 40, 20


def faulty_cases(dataset: str) -> Iterator[Case]:
    """Yield the tasks of a set of the family."""
    yield from _CASES[dataset]()


def _robots() -> Iterator[Case]:
    """Each class normal in turn and each left out; half of the normal windows train."""
    with np.load(data_path("robot_failures_lp1.npz"), allow_pickle=False) as arrays:
        values, lengths, classes = arrays["x"], arrays["len"].astype(np.int64), arrays["y"]
    windows = _set(values, lengths, _ROBOT_UNITS)
    for protocol in ("one_vs_rest", "n_vs_rest"):
        for label in np.unique(classes).tolist():
            is_normal = (classes == label) if protocol == "one_vs_rest" else (classes != label)
            for seed in SPLITS:
                order = np.random.default_rng(seed).permutation(np.flatnonzero(is_normal))
                half = (len(order) + 1) // 2
                test = np.sort(np.concatenate([order[half:], np.flatnonzero(~is_normal)]))
                task = Task(windows.take(np.sort(order[:half])), windows.take(test), ~is_normal[test])
                yield Case(Row("robot_failures_lp1", protocol), 10 * label + seed, task)


def _chemical_plant() -> Iterator[Case]:
    """Windows of the runs without a fault and from before a fault are normal; 13 windows of each of 21 faults."""
    with np.load(data_path("tennessee_eastman.npz"), allow_pickle=False) as arrays:
        first, runs = arrays["train_x"][0][:, : int(arrays["train_len"][0])], arrays["test_x"]
    normal = [*_pieces(first), *_pieces(runs[0])]
    normal += [piece for run in runs[1:] for piece in _pieces(run[:, :_ONSET])]
    faulty = [piece for run in runs[1:] for piece in _pieces(run[:, _ONSET:])[::3]]
    for seed in SPLITS:
        order = np.random.default_rng(seed).permutation(len(normal))
        half = len(normal) // 2
        training, later = ([normal[i] for i in part] for part in (order[:half], order[half:]))
        yield _case("tennessee_eastman", seed, _same_length(training), _same_length(later), _same_length(faulty))


def _pieces(run: Values) -> list[Values]:
    return [run[:, start : start + _WINDOW] for start in range(0, run.shape[1] - _WINDOW + 1, _WINDOW)]


def _same_length(pieces: list[Values]) -> WindowSet:
    values = np.stack(pieces)
    return _set(values, np.full(len(values), values.shape[2], np.int64), ())


def _weak_faults() -> Iterator[Case]:
    for seed in SPLITS:
        yield _case("weak_faults", seed, *_fermenters(seed))


def _wide_plant() -> Iterator[Case]:
    """Real channels, their sums in pairs, and noise; each run is stretched by up to 15 % either way."""
    for seed in SPLITS:
        rng = np.random.default_rng(seed)
        parts = _fermenters(seed)
        values = parts[0].values
        n_real = values.shape[1]
        level, spread = values.mean(axis=(0, 2)), values.std(axis=(0, 2))
        pairs = rng.integers(0, n_real, (_N_CHANNELS - _N_NOISE - n_real, 2))
        factors = rng.choice([0.01, 0.1, 1.0, 10.0], len(pairs))
        units = (*(unit for _, unit in CHANNELS), *("bar",) * len(pairs), *("%",) * (_N_NOISE // 2))
        units += ("",) * (_N_CHANNELS - len(units))

        def widened(part: WindowSet) -> WindowSet:
            found, lengths = [], []
            for window, length in zip(part.values, part.lengths.tolist(), strict=True):
                n = round(length * rng.uniform(0.85, 1.15))  # noqa: B023 - called within the turn
                places = np.linspace(0, length - 1, n)
                course = np.stack([np.interp(places, np.arange(length), each[:length]) for each in window])
                scaled = (course - level[:, None]) / spread[:, None]  # noqa: B023
                sums = (scaled[pairs[:, 0]] + scaled[pairs[:, 1]]) * factors[:, None]  # noqa: B023
                noise = rng.standard_normal((_N_NOISE, n)) * 3.0 + 20.0  # noqa: B023
                found.append(np.concatenate([course, sums, noise]).astype(np.float32))
                lengths.append(n)
            most = 148
            padded = np.zeros((len(found), _N_CHANNELS, most), np.float32)
            for row, course in zip(padded, found, strict=True):
                row[:, : course.shape[1]] = course[:, :most]
            return _set(padded, np.minimum(np.array(lengths, np.int64), most), units)  # noqa: B023

        yield _case("wide_plant", seed, *(widened(part) for part in parts))


def _fermenters(seed: int) -> tuple[WindowSet, WindowSet, WindowSet]:
    """Return training windows, later normal ones, and four weak faults of each kind of another plant for each seed."""
    batches = simulate(_N_TRAINING + _N_LATER, 0, seed=100 + seed)
    faulty: list[Recording] = []
    for kind in FAULTS:
        low = min(abs(each) for each in kind.severity)
        weak = replace(kind, severity=(low * _WEAK[0], low * _WEAK[1]))
        for turn in range(_N_EACH):
            index = 1000 + len(faulty) + turn
            values = simulate_batch(100 + seed, index, weak)[0]
            times_us = np.arange(len(values), dtype=np.int64) * 600_000_000
            faulty.append(Recording("fermenter-1", f"F-{index}", 0, times_us, values, fault=kind.name))
    units = tuple(unit for _, unit in CHANNELS)
    parts = (windows_of(each) for each in (batches[:_N_TRAINING], batches[_N_TRAINING:], faulty))
    training, later, odd = (replace(each, units=units) for each in parts)
    return training, later, odd


def _batches(name: str) -> Callable[[], Iterator[Case]]:
    """Return the tasks of real batches: 60 % train, every kind of fault at each strength goes into the others."""

    def tasks() -> Iterator[Case]:
        with np.load(data_path(f"{name}.npz"), allow_pickle=False) as arrays:
            windows = _set(np.nan_to_num(arrays["x"]), arrays["len"].astype(np.int64), ())
        for seed in SPLITS:
            order = np.random.default_rng(seed).permutation(len(windows))
            n = round(0.6 * len(windows))
            training, later = windows.take(np.sort(order[:n])), windows.take(np.sort(order[n:]))
            found = [each for _, _, each in injected_windows(later, channel_scales(training), seed=seed)]
            kept = np.random.default_rng(seed).permutation(sum(map(len, found)))[:300]
            values, lengths = (np.concatenate([getattr(each, of) for each in found]) for of in ("values", "lengths"))
            faulty = _set(values, lengths, ())
            yield _case(name, seed, training, later, faulty.take(np.sort(kept)))

    return tasks


def _case(dataset: str, seed: int, training: WindowSet, later: WindowSet, faulty: WindowSet) -> Case:
    is_anomaly = np.repeat([False, True], [len(later), len(faulty)])
    values, lengths = (np.concatenate([getattr(later, of), getattr(faulty, of)]) for of in ("values", "lengths"))
    return Case(Row(dataset, "faults"), seed, Task(training, _set(values, lengths, training.units), is_anomaly))


def _set(values: Any, lengths: Any, units: tuple[str, ...]) -> WindowSet:
    return WindowSet(values.astype(np.float32), lengths, tuple(f"w-{i:04d}" for i in range(len(values))), units)


_CASES: Final[dict[str, Callable[[], Iterator[Case]]]] = {
    "robot_failures_lp1": _robots,
    "tennessee_eastman": _chemical_plant,
    "weak_faults": _weak_faults,
    "wide_plant": _wide_plant,
    "batch_nylon": _batches("batch_nylon"),
    "batch_dryer": _batches("batch_dryer"),
}
