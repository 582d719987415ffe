"""Small training sets for any detector, and anomalies so gross that every one of them must rank them above."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamad.types import WindowSet

N_NORMAL, N_ANOMALOUS = 48, 12


class Case(NamedTuple):
    """Windows for ``streamad.testing.check_detector``."""

    normal: WindowSet
    anomalous: WindowSet


def sequences(n: int = N_NORMAL, *, anomalous: bool = False, seed: int = 0) -> WindowSet:
    """Return windows [n, 3, 24] of lengths 18..24: slow sines of one phase, or noise four times as large."""
    rng = np.random.default_rng([seed, anomalous])
    steps, lengths = np.arange(24), rng.integers(18, 25, n)
    phase = rng.uniform(0, 0.4, (n, 1, 1)) + np.arange(3)[:, None]
    values = np.sin(phase + 0.5 * steps) + rng.normal(0, 0.05, (n, 3, 24))
    if anomalous:
        values = rng.normal(0, 4, (n, 3, 24))
    return windows(np.where(steps < lengths[:, None, None], values, 0.0), lengths)


def rows(n: int = N_NORMAL, *, anomalous: bool = False, seed: int = 0) -> WindowSet:
    """Return a table's rows as windows [n, 6, 1]: six mixtures of two hidden causes, or six that are unrelated."""
    rng = np.random.default_rng([seed, anomalous])
    angle = np.arange(6) * np.pi / 6
    mixing = np.stack([np.cos(angle), np.sin(angle)])
    values = 1 + rng.normal(0, 0.5, (n, 2)) @ mixing + rng.normal(0, 0.05, (n, 6))
    if anomalous:
        values = rng.normal(0, 8, (n, 6))
    return windows(values[:, :, None], np.ones(n))


def windows(values: np.ndarray, lengths: np.ndarray | None = None) -> WindowSet:
    """Return windows [n, C, L] with the ids s0, s1, ...; without ``lengths`` each is L long."""
    n, _, length = values.shape
    lengths = np.full(n, length) if lengths is None else lengths
    return WindowSet(values.astype(np.float32), lengths.astype(np.int64), tuple(f"s{i}" for i in range(n)))


SEQUENCES = Case(sequences(), sequences(N_ANOMALOUS, anomalous=True))
ROWS = Case(rows(), rows(N_ANOMALOUS, anomalous=True))
