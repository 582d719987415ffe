from __future__ import annotations

import numpy as np
import pytest
import torch

from streamad_models.ensemble.intervals import Moments


def test_the_statistics_are_those_of_the_samples_before_the_end() -> None:
    values = np.random.default_rng(0).normal(size=(4, 2, 20)).astype(np.float32)
    lengths = [20, 11, 2, 1]
    for row, length in zip(values, lengths, strict=True):
        row[:, length:] = 0.0
    found = Moments(2, 20)(torch.from_numpy(values), torch.tensor(lengths)).numpy()
    for row, course, length in zip(found, values, lengths, strict=True):
        inside = course[:, :length].astype(np.float64)
        changes = np.diff(inside, axis=1) if length > 1 else np.zeros((2, 1))
        expected = [
            inside.mean(axis=1),
            np.sqrt(inside.var(axis=1) + 1e-6),
            inside.min(axis=1),
            inside.max(axis=1),
            inside[:, -1] - inside[:, 0],
            np.sqrt(changes.var(axis=1) + 1e-6),
            [length / 20],
        ]
        assert row == pytest.approx(np.concatenate(expected), abs=1e-5)
