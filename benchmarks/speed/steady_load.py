"""Windows of a made-up plant of nine channels, for the benchmarks of a steady load."""

from __future__ import annotations

import numpy as np

from streamad.types import WindowSet

CHANNELS, LENGTH = 9, 128


def make_windows(n: int, seed: int) -> WindowSet:
    """Return smooth random courses of nine channels."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 2 * np.pi, LENGTH)
    phase, pace = rng.uniform(0, 0.6, (n, CHANNELS, 1)), 1 + np.arange(CHANNELS)[:, None] / 4
    values = np.sin(grid * pace + phase) + rng.normal(0, 0.1, (n, CHANNELS, LENGTH))
    return WindowSet(values.astype(np.float32), np.full(n, LENGTH), tuple(f"{seed}-{i}" for i in range(n)))
