"""DROCC: a classifier of normal windows against adversarial ones from a shell around them.

Legend: B windows, C channels, L window length, Z embedding dimension.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.paper.baselines.networks.network import (
    Network,
    NetworkDetector,
    NetworkOptions,
    embed_shape,
    make_encoder,
)

_SMALLEST_NORM = 1e-12


class DroccOptions(NetworkOptions):
    """The shell, the ascent on it and its weight; rate, decay and batch are NeuTraL AD's for sequences.

    The radius "auto" is half the root of the number of a window's valid values, as published for standardised values,
    hence the scaling. Published are 50 steps of 0.1: 10 of 0.5 reach as far in a fifth of the time. The weight 1 is
    the published one except for time series (0.5, at a learning rate of 1e-5). For tables the published ascents hardly
    move (0.001), after 50 epochs without adversarial rows: ``warm_up_epochs``.
    """

    scaling: Literal["standard", "none"] = Field(default="standard", description="per channel, on training windows")
    epochs: PositiveInt = Field(default=100, description="warm_up_epochs among them")
    warm_up_epochs: int = Field(default=0, ge=0, description="epochs on normal windows alone")
    radius: Literal["auto"] | PositiveFloat = Field(default="auto", description="r, the shell's inner radius")
    gamma: float = Field(default=2.0, ge=1, description="outer radius over inner radius")
    ascent_steps: PositiveInt = 10
    ascent_step: PositiveFloat = Field(default=0.5, description="how far an adversarial window moves per step")
    adversarial_weight: PositiveFloat = Field(default=1.0, description="of the adversarial windows' loss")


class DroccNetwork(Network):
    """The encoder and one linear layer: term [B, 1] is the negative logit of "normal"."""

    def __init__(self, n_channels: int, length: int, options: DroccOptions, generator: torch.Generator) -> None:
        super().__init__(n_channels, length)
        self.options = options
        self.encoder = make_encoder(options, n_channels, length, generator)
        bound = options.embedding_dim**-0.5
        self.head_Z1 = nn.Parameter(torch.empty(options.embedding_dim, 1).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.zeros(1))
        self.adversarial = False

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return each window's negative logit [B, 1]."""
        return -self.logits(self.prepare(windows_BCL, lengths_B))

    def logits(self, x_BCL: Tensor) -> Tensor:
        """Return the logits [B, 1] of scaled windows: the higher, the more normal."""
        z_BZ = self.encoder(embed_shape(x_BCL))
        return torch.addmm(self.bias, z_BZ, self.head_Z1)

    def begin_epoch(self, epoch: int) -> None:
        """Add adversarial windows after ``warm_up_epochs``."""
        self.adversarial = epoch > self.options.warm_up_epochs

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the cross entropy of the normal windows, plus the weighted one of adversarial windows."""
        x_BCL = self.prepare(windows_BCL, lengths_B)
        normal = F.softplus(-self.logits(x_BCL)).mean()
        if not self.adversarial:
            return normal
        # Adversarial windows must not reach a batch norm's statistics.
        was_training = self.encoder.training
        self.encoder.eval()
        adversarial = F.softplus(self.logits(self.attack(x_BCL, lengths_B, generator))).mean()
        self.encoder.train(was_training)
        return normal + self.options.adversarial_weight * adversarial

    def attack(self, x_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return, for each scaled window, the one in its shell that looks most normal (algorithm 1 of the source).

        Starts from standard normal noise; each step follows the normalised gradient and is projected onto the shell.
        Padding stays zero.
        """
        valid_B1L = (torch.arange(x_BCL.shape[2], device=x_BCL.device) < lengths_B[:, None])[:, None]
        radius_B = self.radius(lengths_B)
        offset = torch.randn(x_BCL.shape, generator=generator).to(x_BCL.device) * valid_B1L
        for _ in range(self.options.ascent_steps):
            candidate = (x_BCL + offset).requires_grad_()
            (gradient,) = torch.autograd.grad(self.logits(candidate).sum(), candidate)
            offset = offset + self.options.ascent_step * _direction(gradient * valid_B1L)
            offset = onto_shell(offset, radius_B, self.options.gamma)
        return x_BCL + offset

    def radius(self, lengths_B: Tensor) -> Tensor:
        """Return each window's inner radius r, float [B]."""
        if self.options.radius == "auto":
            return (self.n_channels * lengths_B).sqrt() / 2
        return torch.full(lengths_B.shape, self.options.radius, device=lengths_B.device)


class Drocc(NetworkDetector[DroccOptions]):
    """DROCC (Goyal et al., Deep Robust One-Class Classification, ICML 2020) on NeuTraL AD's encoder.

    The published program keeps the epoch of the best test score, this one the last. Higher is more anomalous.
    """

    options_model = DroccOptions
    network = DroccNetwork


def onto_shell(offset_BCL: Tensor, radius_B: Tensor, gamma: float) -> Tensor:
    """Return the offsets, each with its norm brought within ``radius`` and ``gamma * radius``."""
    norm_B = _norm(offset_BCL)
    wanted_B = torch.minimum(torch.maximum(norm_B, radius_B), gamma * radius_B)
    return offset_BCL * (wanted_B / norm_B)[:, None, None]


def _direction(x_BCL: Tensor) -> Tensor:
    return x_BCL / _norm(x_BCL)[:, None, None]


def _norm(x_BCL: Tensor) -> Tensor:
    norm_B: Tensor = x_BCL.flatten(1).norm(dim=1)
    return norm_B.clamp_min(_SMALLEST_NORM)
