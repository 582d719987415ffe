"""The K learnable transformations T_k of a window as one grouped computation (paper, section 3.1).

Legend: B windows, K transformations, C channels, L window length, T taps (3).
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from streamad.errors import DetectorError
from streamad_models.neutral_ad.kernels import convolve3, instance_norm_relu
from streamad_models.neutral_ad.options import Parametrisation

N_RESIDUAL_BLOCKS = 3


class Transformations(nn.Module):
    """T_1..T_K: feed-forward ``M_k(x)``, residual ``M_k(x) + x``, or multiplicative ``sigmoid(M_k(x)) * x``.

    Each mask network M_k (hidden width C, no bias): reflection-padded conv k3, instance norm, ReLU; three residual
    blocks (conv k3, norm, ReLU, conv k3, norm, plus the input, ReLU); reflection-padded conv k3. The networks share
    no weights. Raises DetectorError for fewer than two transformations or an unknown parametrisation.
    """

    def __init__(
        self, n_transformations: int, n_channels: int, parametrisation: Parametrisation, generator: torch.Generator
    ) -> None:
        super().__init__()
        check_transformations(n_transformations, parametrisation)
        self.residual = parametrisation == "residual"
        self.multiplicative = parametrisation == "multiplicative"
        self.n_transformations = n_transformations
        sizes = (n_transformations, n_channels, n_channels)
        self.inwards = conv3_weight(*sizes, generator)
        self.blocks = nn.ModuleList(MaskBlocks(*sizes, generator) for _ in range(N_RESIDUAL_BLOCKS))
        self.outwards = conv3_weight(*sizes, generator)

    def forward(self, x_LBC: Tensor) -> Tensor:
        """Return the views [K, L, B, C] of windows [L, B, C]."""
        x_1LBC = x_LBC.unsqueeze(0)
        m_KLBC = self._masks(x_1LBC)
        if self.multiplicative:
            return torch.sigmoid(m_KLBC) * x_1LBC
        if self.residual:
            return m_KLBC + x_1LBC
        return m_KLBC

    def _masks(self, x_1LBC: Tensor) -> Tensor:
        x_KLBC = x_1LBC.expand(self.n_transformations, -1, -1, -1)
        h_KLBC = instance_norm_relu(convolve3(x_KLBC, self.inwards, 1, True), None)
        for block in self.blocks:
            h_KLBC = block(h_KLBC)
        return convolve3(h_KLBC, self.outwards, 1, True)


class MaskBlocks(nn.Module):
    """One residual block of each of the K mask networks."""

    def __init__(self, n_transformations: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = conv3_weight(n_transformations, n_in, n_out, generator)
        self.second = conv3_weight(n_transformations, n_in, n_out, generator)

    def forward(self, h_KLBC: Tensor) -> Tensor:
        """Return [K, L, B, C] of inputs of that shape."""
        inner_KLBC = instance_norm_relu(convolve3(h_KLBC, self.first, 1, False), None)
        return instance_norm_relu(convolve3(inner_KLBC, self.second, 1, False), h_KLBC)


def check_transformations(n_transformations: int, parametrisation: Parametrisation) -> None:
    """Raise DetectorError for fewer than two transformations or an unknown parametrisation."""
    if n_transformations < 2:
        raise DetectorError(f"n_transformations is {n_transformations}: the contrastive loss needs at least 2")
    if parametrisation not in get_args(Parametrisation):
        known = ", ".join(get_args(Parametrisation))
        raise DetectorError(f"unknown transformation {parametrisation!r}: choose one of {known}")


def conv3_weight(groups: int, n_in: int, n_out: int, generator: torch.Generator) -> nn.Parameter:
    """Return [G, 3, I, O] weights, uniform within 1/sqrt(3 I), as torch.nn.Conv1d starts."""
    bound = (3 * n_in) ** -0.5
    return nn.Parameter(torch.empty(groups, 3, n_in, n_out).uniform_(-bound, bound, generator=generator))
