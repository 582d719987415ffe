"""A recurrent density model of sequences: the paper's "RNN" (NeuTraL AD, arXiv:2103.16440, section 4.2, appendix B.2).

Legend: B windows, C channels, L window length, H hidden width.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.paper.baselines.networks.network import BaselineOptions, Network, NetworkDetector, mean_over_steps
from streamad_models.neutral_ad.data import MIN_LENGTH, check_length


class RnnOptions(BaselineOptions):
    """Settings of the recurrent density model; widths are ours, the paper states none."""

    hidden_dim: PositiveInt = Field(default=64, description="width of both GRU layers and of the layer above")
    largest_log_variance: PositiveFloat = Field(
        default=10.0,
        description="bound of a step's log variance, either way: a channel that never changes has no other",
    )


class RnnNetwork(Network):
    """p(x_1..x_T) = prod p(x_t | x_<t): two GRU layers, two linear layers with ReLU, a diagonal Gaussian per step."""

    def __init__(self, n_channels: int, length: int, options: RnnOptions) -> None:
        super().__init__(n_channels, length)
        self.largest_log_variance, hidden_dim = options.largest_log_variance, options.hidden_dim
        self.gru = nn.GRU(n_channels, hidden_dim, num_layers=2)
        self.head = nn.Sequential(nn.Linear(hidden_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 2 * n_channels))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, 1]: the negative log-likelihood, mean over valid steps, of windows [B, C, L]."""
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        before_LBC = torch.cat([torch.zeros_like(x_LBC[:1]), x_LBC[:-1]])
        hidden_LBH, _ = self.gru(before_LBC)
        mean_LBC, log_variance_LBC = self.head(hidden_LBH).chunk(2, dim=2)
        log_variance_LBC = log_variance_LBC.clamp(-self.largest_log_variance, self.largest_log_variance)
        squared_LBC = (x_LBC - mean_LBC).square() * torch.exp(-log_variance_LBC)
        nll_LB = 0.5 * (squared_LBC + log_variance_LBC + math.log(2 * math.pi)).sum(2)
        return mean_over_steps(nll_LB, lengths_B)[:, None]


class Rnn(NetworkDetector[RnnOptions]):
    """Scores a sequence by its negative log-likelihood per step; sequences only.

    The score is the mean over valid steps, not their sum: a density's logarithm has either sign, so that a sum would
    rank sequences by their length. With equal lengths the ranks are those of the sum.
    """

    options_model = RnnOptions

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> RnnNetwork:
        """Return the untrained network. Raises TrainingDataError for windows of one step."""
        check_length(length, MIN_LENGTH, "the recurrent density model")
        return RnnNetwork(n_channels, length, self.options)
