"""The encoder f_phi that embeds the original window and all of its views.

Legend: L time, N views, I/O input/output width, Z embedding dimension, T taps (3).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from streamad_models.neutral_ad.kernels import convolve3
from streamad_models.neutral_ad.transformations import conv3_weight

BASE_WIDTH = 32
MAX_WIDTH = 1024  # the widest of the paper's five settings (6 blocks); keeps long windows trainable
REMAINING_LENGTH = 4


def depth_for_length(length: int) -> int:
    """Return the number of stride-2 blocks that leave at most 4 steps.

    Reproduces all five published settings: 50 and 51 give 4, 182 and 206 give 6, 30 gives 3.

    >>> [depth_for_length(length) for length in (30, 50, 51, 182, 206)]
    [3, 4, 4, 6, 6]
    """
    n_blocks = 0
    while length > REMAINING_LENGTH:
        length = (length + 1) // 2
        n_blocks += 1
    return n_blocks


def lengths_after(length: int, n_blocks: int) -> int:
    """Return the steps left of ``length`` after ``n_blocks`` blocks of stride 2 (k3, padded by 1)."""
    for _ in range(n_blocks):
        length = (length + 1) // 2
    return length


def block_widths(n_blocks: int, base: int = BASE_WIDTH) -> list[int]:
    """Return the output widths: the stride-1 block's, then h * 2^i for i = 0..n-1, none above 1024.

    >>> block_widths(4)
    [32, 32, 64, 128, 256]
    """
    return [base, *(min(base * 2**i, max(base, MAX_WIDTH)) for i in range(n_blocks))]


class EncoderBlock(nn.Module):
    """``relu(conv1(relu(conv3_s(relu(conv1(x))))) + conv3_s(x))``, no bias."""

    def __init__(self, n_in: int, n_out: int, stride: int, generator: torch.Generator) -> None:
        super().__init__()
        self.stride = stride
        self.n_in = n_in
        self.n_out = n_out
        self.inwards = _linear_weight(n_in, n_in, generator)
        self.middle = conv3_weight(1, n_in, n_in, generator)
        self.outwards = _linear_weight(n_in, n_out, generator)
        self.shortcut = conv3_weight(1, n_in, n_out, generator)

    def forward(self, x_1LNI: Tensor) -> Tensor:
        """Return [1, ceil(L / stride), N, O] of [1, L, N, I], computed in the type of ``x``."""
        kind = x_1LNI.dtype
        h = torch.relu_(torch.matmul(x_1LNI, self.inwards.to(kind)))
        h = torch.relu_(convolve3(h, self.middle.to(kind), self.stride, False))
        out = convolve3(x_1LNI, self.shortcut.to(kind), self.stride, False)
        out.view(-1, self.n_out).addmm_(h.view(-1, self.n_in), self.outwards.to(kind))
        return torch.relu_(out)


class Encoder(nn.Module):
    """One block of stride 1, ``n_blocks`` of stride 2, then one conv over the remaining steps, with bias.

    ``trains_in_bfloat16``: the blocks compute in bfloat16 while the model trains; weights are float32 always.
    """

    def __init__(
        self,
        n_channels: int,
        length: int,
        *,
        n_blocks: int,
        embedding_dim: int,
        base_width: int,
        generator: torch.Generator,
        trains_in_bfloat16: bool = False,
    ) -> None:
        super().__init__()
        self.trains_in_bfloat16 = trains_in_bfloat16
        widths = [n_channels, *block_widths(n_blocks, base_width)]
        self.blocks = nn.ModuleList(
            EncoderBlock(n_in, n_out, 1 if i == 0 else 2, generator) for i, (n_in, n_out) in enumerate(pairwise(widths))
        )
        self.n_blocks = n_blocks
        self.embedding_dim = embedding_dim
        self.base_width = base_width
        fan_in = lengths_after(length, n_blocks) * widths[-1]
        self.head = _linear_weight(fan_in, embedding_dim, generator)
        self.bias = nn.Parameter(_uniform((embedding_dim,), fan_in, generator))

    def forward(self, x_LNC: Tensor) -> Tensor:
        """Return the embeddings [N, Z] of [L, N, C]."""
        h_1LNC = x_LNC.unsqueeze(0)
        if self.training and self.trains_in_bfloat16:
            h_1LNC = h_1LNC.to(torch.bfloat16)
        for block in self.blocks:
            h_1LNC = block(h_1LNC)
        h_NF = h_1LNC.squeeze(0).transpose(0, 1).reshape(x_LNC.shape[1], -1).to(x_LNC.dtype)
        return torch.addmm(self.bias, h_NF, self.head)


def _linear_weight(n_in: int, n_out: int, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(_uniform((n_in, n_out), n_in, generator))


def _uniform(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Tensor:
    bound = fan_in**-0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
