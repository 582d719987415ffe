"""Small models and training sets that the tests of this folder share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from streamad.types import WindowSet
from streamad_models.neutral_ad import NeutralADOptions
from streamad_models.neutral_ad.model import NeutralADModel

PARAMETRISATIONS = ("feed_forward", "residual", "multiplicative")


def options(**changes: Any) -> NeutralADOptions:
    return NeutralADOptions.model_validate({"n_transformations": 3, "embedding_dim": 8, "epochs": 4, **changes})


def model(n_channels: int = 3, length: int = 16, *, seed: int = 0, **changes: Any) -> NeutralADModel:
    return NeutralADModel(n_channels, length, options(**changes), seed).eval()


def windows(n: int, n_channels: int = 3, length: int = 16, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x_BCL = torch.randn(n, n_channels, length, generator=generator)
    return x_BCL, torch.full((n,), length)


def sines(n: int = 24, n_channels: int = 3, length: int = 16, *, seed: int = 0) -> WindowSet:
    """Noisy sines in engineering units far from standard: offset 100, amplitude 5; lengths vary, zero padded."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 0.5, (n, n_channels, 1)) + np.arange(n_channels)[:, None]
    values = 100 + 5 * np.sin(phase + 0.5 * np.arange(length)) + rng.normal(0, 0.1, (n, n_channels, length))
    lengths = rng.integers(length - 4, length + 1, n)
    values[np.arange(length) >= np.broadcast_to(lengths[:, None, None], values.shape)] = 0.0
    return WindowSet(values.astype(np.float32), lengths.astype(np.int64), tuple(f"s{i}" for i in range(n)))
