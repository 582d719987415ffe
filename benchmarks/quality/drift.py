"""Drift events of plants that do not change, the delay of real changes, and the cost per sequence.

Stationary plants: channel levels and spreads from sequence to sequence are independent normal, heavy-tailed (Student t,
3 degrees of freedom), related (a first-order autoregression of 0.5, the p-values as well), sluggish (of 0.8), or normal
with faults: from sequence 300 on, 10 % of the sequences have the same channel off by 100 standard deviations and a
p-value near 0. Half of the sequences come in short runs, in which the beginning counts most, half in one long run. Then
one channel of a plant that ran for 500 sequences shifts by 1, 2 or 4 standard deviations, or creeps by 0.01 of them per
sequence.
Run: ``python benchmarks/quality/drift.py [--quick] [--json]``.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import chi2

from streamad.drift.monitor import Drift, DriftMonitor
from streamad.settings.learning import DriftSettings
from streamad.types import ChannelSpec, Window

KINDS = ("normal", "heavy", "related", "faulty", "sluggish")
RELATED = {"related": 0.5, "sluggish": 0.8}
LENGTH = 16
FAULTY_FROM, FAULTY_SHARE = 300, 0.1
SPREAD = 0.2  # of the logarithm of a channel's spread, from sequence to sequence
BEFORE = 500  # sequences before a change
PATIENCE = 2000  # sequences after it
CHANGES: dict[str, Callable[[int], float]] = {
    "1 sigma": lambda age: 1.0,
    "2 sigma": lambda age: 2.0,
    "4 sigma": lambda age: 4.0,
    "0.01 sigma per sequence": lambda age: 0.01 * age,
}
Array = npt.NDArray[np.float64]


class Judged(NamedTuple):
    """One sequence as the monitor gets it."""

    window: Window
    p_value: float


class Plant:
    """An endless source of judged sequences of one kind whose channels keep level and spread."""

    def __init__(self, kind: str, n_channels: int, seed: int) -> None:
        self.kind, self.n_channels = kind, n_channels
        self.rng = np.random.default_rng([seed, n_channels, KINDS.index(kind)])
        self._age = 0
        self._last = self.rng.normal(size=2 * n_channels + 1)
        points = np.linspace(-1, 1, LENGTH)
        self._shape = (points - points.mean()) / points.std()

    def sequences(self, n: int, shift: Callable[[int], float] = lambda age: 0.0) -> Iterator[Judged]:
        """Yield ``n`` sequences, the level of the first channel moved by ``shift`` standard deviations."""
        noise = self._noise(n)
        scale = np.sqrt(3.0) if self.kind == "heavy" else 1.0  # the standard deviation of Student's t
        for age, row in enumerate(noise):
            levels, spreads = row[: self.n_channels].copy(), np.exp(SPREAD * row[self.n_channels : -1])
            levels[0] += scale * shift(age)
            p_value = float(row[-1] if self.kind == "heavy" else ndtr(row[-1]))
            self._age += 1
            if self.kind == "faulty" and self._age > FAULTY_FROM and self.rng.random() < FAULTY_SHARE:
                levels[0] += 100
                p_value = 0.005
            values = levels[:, None] + spreads[:, None] * self._shape
            yield Judged(Window(values.astype(np.float32), LENGTH), p_value)

    def _noise(self, n: int) -> Array:
        columns = 2 * self.n_channels + 1
        if self.kind == "heavy":
            noise = self.rng.standard_t(3, size=(n, columns))
            noise[:, -1] = self.rng.random(n)  # p-values are uniform whatever the plant
            return noise
        noise = self.rng.normal(size=(n, columns))
        if self.kind in RELATED:
            share = RELATED[self.kind]
            for number in range(n):
                self._last = noise[number] = share * self._last + np.sqrt(1 - share**2) * noise[number]
        return noise


def monitor(n_channels: int) -> DriftMonitor:
    return DriftMonitor(tuple(ChannelSpec(f"c{number}") for number in range(n_channels)), DriftSettings())


def events(watching: DriftMonitor, sequences: Iterator[Judged]) -> Iterator[tuple[int, Drift]]:
    """Yield each event with the number of its sequence, which stands for the time."""
    for number, (window, p_value) in enumerate(sequences):
        for drift in watching.add(number, window, p_value):
            yield number, drift


def false_events(kind: str, n_channels: int, n: int, short: int, seed: int = 0) -> dict[str, float]:
    """Return the events in ``n`` sequences, half of them in runs of ``short``, and per 10,000 with a 95 % bound."""
    lengths = [short] * (n // 2 // short)
    lengths.append(n - sum(lengths))
    plants = (Plant(kind, n_channels, seed + run) for run in range(len(lengths)))
    counts = [
        sum(1 for _ in events(monitor(n_channels), plant.sequences(length)))
        for plant, length in zip(plants, lengths, strict=True)
    ]
    found = sum(counts)
    return {
        "sequences": n,
        "events": found,
        "per_10000": found / n * 1e4,
        "per_10000_at_most": float(chi2.ppf(0.95, 2 * found + 2)) / 2 / n * 1e4,
        "per_10000_short_runs": sum(counts[:-1]) / max(sum(lengths[:-1]), 1) * 1e4,
    }


def delays(kind: str, n_channels: int, repeats: int, seed: int = 1) -> dict[str, dict[str, float]]:
    """Return for each change the sequences until it is found, and how far off its beginning is estimated."""
    delay: dict[str, list[float]] = {change: [] for change in CHANGES}
    off: dict[str, list[float]] = {change: [] for change in CHANGES}
    for repeat in range(repeats):
        plant, warm = Plant(kind, n_channels, seed + repeat), monitor(n_channels)
        for _ in events(warm, plant.sequences(BEFORE)):
            pass
        for change, shift in CHANGES.items():
            number, since = _found(copy.deepcopy(warm), copy.deepcopy(plant), shift)
            delay[change].append(number + 1)
            off[change].append(since)
    return {
        change: {
            "median": float(np.median(delay[change])),
            "p95": float(np.quantile(delay[change], 0.95)),
            "since_off_median": float(np.nanmedian(np.abs(off[change]))),
            "missed": sum(count > PATIENCE for count in delay[change]),
        }
        for change in CHANGES
    }


def _found(watching: DriftMonitor, plant: Plant, shift: Callable[[int], float]) -> tuple[int, float]:
    sequences = plant.sequences(PATIENCE, shift)
    for number, (window, p_value) in enumerate(sequences):
        for drift in watching.add(BEFORE + number, window, p_value):
            if drift.what == "mean of c0":
                return number, drift.since_us - BEFORE
    return PATIENCE, float("nan")


def cost(n_channels: int, length: int, n: int = 2000) -> dict[str, float]:
    """Return microseconds of processor time per sequence, and their ratio to numpy's mean and std of the window."""
    rng, watching = np.random.default_rng(0), monitor(n_channels)
    windows = [Window(rng.normal(size=(n_channels, length)).astype(np.float32), length) for _ in range(64)]
    own, plain = np.zeros(n), np.zeros(n)
    for number in range(n):
        window, p_value = windows[rng.integers(64)], float(rng.random())
        began = time.thread_time()
        watching.add(number, window, p_value)
        between = time.thread_time()
        window.values.mean(axis=1), window.values.std(axis=1)
        if number == n - 50:
            windows = [Window(3 * window.values + 3, length) for window in windows]  # all move at once
        own[number], plain[number] = between - began, time.thread_time() - between
    median = float(np.median(own))
    return {
        "median_us": median * 1e6,
        "p99_us": float(np.quantile(own, 0.99)) * 1e6,
        "most_us": float(own.max()) * 1e6,
        "over_plain_mean_and_spread": median / float(np.median(plain)),
    }


def measure(n: int, short: int, repeats: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"false_events": {}, "delay": {}, "cost": {}}
    for n_channels in (9, 24):
        for kind in KINDS:
            name = f"{n_channels} channels, {kind}"
            print(name, file=sys.stderr)
            figures["false_events"][name] = false_events(kind, n_channels, n, short)
            figures["delay"][name] = delays(kind, n_channels, repeats)
        for length in (128, 1024):
            figures["cost"][f"{n_channels} channels, {length} points"] = cost(n_channels, length)
    return figures


def show(figures: dict[str, Any]) -> None:
    print("false events per 10,000 sequences (95 % bound), in short runs")
    for name, row in figures["false_events"].items():
        print(
            f"  {name:22} {row['events']} in {row['sequences']}: {row['per_10000']:.2f}"
            f" ({row['per_10000_at_most']:.2f}), {row['per_10000_short_runs']:.2f}"
        )
    print("sequences until a change of one channel is found: median / 95 % (missed), beginning off by")
    for name, changes in figures["delay"].items():
        for change, row in changes.items():
            missed = f" ({row['missed']} missed)" if row["missed"] else ""
            print(
                f"  {name:22} {change:24} {row['median']:.0f} / {row['p95']:.0f}{missed}, {row['since_off_median']:.0f}"
            )
    print("cost per sequence")
    for name, row in figures["cost"].items():
        print(
            f"  {name:26} {row['median_us']:.0f} us (99 %: {row['p99_us']:.0f}, most: {row['most_us']:.0f}),"
            f" {row['over_plain_mean_and_spread']:.1f} times numpy's mean and std"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=60_000, help="stationary ones per kind and plant")
    parser.add_argument("--repeats", type=int, default=40, help="changes of each size per kind and plant")
    parser.add_argument("--quick", action="store_true", help="a twentieth of it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    share = 20 if options.quick else 1
    figures = measure(options.sequences // share, 1000, max(options.repeats // share, 4))
    if options.json:
        print(json.dumps(figures))
    else:
        show(figures)


if __name__ == "__main__":
    main()
