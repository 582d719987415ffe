"""What the recurrent baselines share: windows as steps, the mean over a window's valid steps, sequences only.

Legend: B windows, C channels, L window length.
"""

from __future__ import annotations

__all__ = ["mean_over_steps", "need_sequences", "valid_steps"]

import torch
from torch import Tensor

from streamad.errors import TrainingDataError

MIN_LENGTH = 2


def need_sequences(length: int, name: str) -> None:
    """Raise TrainingDataError for windows of one step, a table's rows: ``name`` models what follows what."""
    if length < MIN_LENGTH:
        raise TrainingDataError(f"windows of {length} step: {name} needs sequences of at least {MIN_LENGTH} steps")


def valid_steps(length: int, lengths_B: Tensor) -> Tensor:
    """Return bool [L, B]: the steps before each window's length. Scriptable."""
    steps_L = torch.arange(length, device=lengths_B.device)
    return steps_L[:, None] < lengths_B[None, :]


def mean_over_steps(values_LB: Tensor, lengths_B: Tensor) -> Tensor:
    """Return [B]: the mean of each window's valid steps. Scriptable."""
    valid_LB = valid_steps(values_LB.shape[0], lengths_B)
    total_B = values_LB.masked_fill(~valid_LB, 0.0).sum(0)
    return total_B / lengths_B.to(total_B.dtype)
