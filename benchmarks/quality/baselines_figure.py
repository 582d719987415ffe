"""Prints how many faulty batches two plain methods find at 2 % false alarms: the figures in docs/model/simulation.md.

Run from the root of the repository (about a minute of processor time): python benchmarks/quality/baselines_figure.py
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamad.simulation.faults import FAULTS
from streamad.simulation.recordings import Recording, simulate

SEEDS = (0, 1, 2)
N_TRAINING, N_NORMAL, N_FAULTY = 100, 300, 160
LENGTH = 128
N_COMPONENTS = 15
FALSE_ALARM_RATE = 0.02

Array = NDArray[np.float64]


def windows(recordings: list[Recording], mean: Array, deviation: Array) -> Array:
    """Filled, z-scored, zero-padded windows [N, L * C]."""
    out = np.zeros((len(recordings), LENGTH, len(mean)))
    for row, recording in zip(out, recordings, strict=True):
        values = recording.values[:LENGTH].astype(np.float64)
        for channel in values.T:
            lost = np.isnan(channel)
            channel[lost] = np.interp(np.flatnonzero(lost), np.flatnonzero(~lost), channel[~lost])
        row[: len(values)] = (values - mean) / deviation
    return out.reshape(len(recordings), -1)


def nearest_neighbour(train: Array, test: Array) -> Array:
    """Squared distance to the nearest training window."""
    squares = (test**2).sum(1)[:, None] + (train**2).sum(1)[None] - 2 * test @ train.T
    return squares.min(axis=1)


def residual(train: Array, test: Array) -> Array:
    """Squared residual beyond the first principal components of the training windows."""
    centre = train.mean(axis=0)
    components = np.linalg.svd(train - centre, full_matrices=False)[2][:N_COMPONENTS]
    rest = test - centre
    return ((rest - rest @ components.T @ components) ** 2).sum(axis=1)


def main() -> None:
    """Simulate, score, print."""
    methods = (nearest_neighbour, residual)
    found: dict[str, list[list[bool]]] = {fault.name: [[] for _ in methods] for fault in FAULTS}
    for seed in SEEDS:
        training = simulate(N_TRAINING, 0, seed=seed)
        test = simulate(N_NORMAL, N_FAULTY, seed=seed, first_index=N_TRAINING)
        samples = np.concatenate([recording.values for recording in training])
        mean, deviation = np.nanmean(samples, axis=0), np.nanstd(samples, axis=0)
        train_windows, test_windows = (windows(recordings, mean, deviation) for recordings in (training, test))
        for m, method in enumerate(methods):
            scores = method(train_windows, test_windows)
            normal = [score for score, recording in zip(scores, test, strict=True) if not recording.fault]
            threshold = np.quantile(normal, 1.0 - FALSE_ALARM_RATE)
            for score, recording in zip(scores, test, strict=True):
                if recording.fault:
                    found[recording.fault][m].append(bool(score > threshold))
    for name, hits in found.items():
        print(f"| `{name}` | " + " | ".join(f"{100 * np.mean(hit):.0f}" for hit in hits) + " |")
    overall = [np.mean([hit for hits in found.values() for hit in hits[m]]) for m in range(len(methods))]
    print("| all | " + " | ".join(f"{100 * share:.0f}" for share in overall) + " |")


if __name__ == "__main__":
    main()
