"""The way back from an embedding to a window: NeuTraL AD's encoder mirrored.

Legend: B windows, C channels, L window length, Z embedding dimension, W width.
"""

from __future__ import annotations

__all__ = ["SequenceDecoder", "tanh_layers"]

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamad_models.neutral_ad.encoder import block_widths, lengths_after


class SequenceDecoder(nn.Module):
    """A linear layer to the encoder's last width and length; per block, twice the length and one k3 convolution."""

    def __init__(self, n_channels: int, length: int, *, n_blocks: int, embedding_dim: int, base_width: int) -> None:
        super().__init__()
        widths = block_widths(n_blocks, base_width)[::-1]
        self.lengths = [lengths_after(length, left) for left in range(n_blocks - 1, -1, -1)]
        self.n_inner = widths[0]
        self.inwards = nn.Linear(embedding_dim, widths[0] * lengths_after(length, n_blocks))
        self.blocks = nn.ModuleList(nn.Conv1d(n_in, n_out, 3, padding=1) for n_in, n_out in pairwise(widths))
        self.outwards = nn.Conv1d(widths[-1], n_channels, 3, padding=1)

    def forward(self, z_BZ: Tensor) -> Tensor:
        """Return windows [B, C, L] of embeddings [B, Z]."""
        h_BWL = torch.relu(self.inwards(z_BZ)).view(len(z_BZ), self.n_inner, -1)
        for index, block in enumerate(self.blocks):
            h_BWL = torch.relu(block(F.interpolate(h_BWL, size=self.lengths[index])))
        window_BCL: Tensor = self.outwards(h_BWL)
        return window_BCL


def tanh_layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return linear layers between ``sizes`` with tanh between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Tanh()] if layers else []
        layers.append(nn.Linear(n_in, n_out))
    return nn.Sequential(*layers)
