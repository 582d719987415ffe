"""The readings themselves at 64 places of a window: the space of plants whose sequences are aligned in time.

Legend: B windows, C channels, L window length, G grid points.
"""

import torch
from torch import Tensor, nn

from streamad_models.ensemble.features.intervals import GRID, read_at


class Readings(nn.Module):
    """Maps windows [B, C, L] with lengths [B] to their readings [B, C G] from the first to the last sample."""

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.n_features = n_channels * GRID
        self.register_buffer("places_G", torch.linspace(0.0, 1.0, GRID))

    places_G: Tensor  # noqa: N815 - a shape suffix

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the readings [B, C G]."""
        return read_at(x_BCL, lengths_B, self.places_G).flatten(1)
