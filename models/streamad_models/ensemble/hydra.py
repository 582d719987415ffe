"""Hydra's features in torch: how often, and how strongly, each of competing random kernels matches best.

Dempster, Schmidt and Webb, "Hydra", DMKD 2023 (arXiv:2203.13652). Legend: B windows, C channels, L window length,
G groups, K kernels a group (8), T taps (9), D features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

N_TAPS = 9
N_PER_GROUP = 8
_MAX_CHANNELS = 8  # of one group
_WIDTH = 0.02  # of a competition's usual distance between largest and smallest value: who is so near shares the win
_LEAST_WIDTH = 1e-5  # where all values of a competition are 0 up to rounding
_LEAST_SHARE = 1e-3  # of a winner's value is added to the width
_LEAST_GAIN = 1e-4  # added to a gain: a root rises without bound at 0
_MOST_WINDOWS = 64  # that tell the usual distance


class Hydra(nn.Module):
    """Maps windows [B, C, L] with lengths [B] to features [B, D], D = 4 G K per dilation; none is negative.

    In each group the kernels compete at every place before a window's end: the one with the largest value gains that
    value, the one with the smallest value gains 1. Features are the square roots of the gains. Half of the groups see
    the window, half its first differences; a group sees the sum of a few channels.

    Winners share by nearness (the paper has one winner): over a stretch that channels are held all kernels give 0 up
    to rounding, and rounding must not choose among them. So a feature is a continuous function of the window.
    """

    def __init__(self, competitions: list["Competition"]) -> None:
        super().__init__()
        self.competitions = nn.ModuleList(competitions)
        self.n_features = sum(2 * each.weight_W1T.shape[0] for each in competitions)

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D]."""
        change_BCL = x_BCL[:, :, 1:] - x_BCL[:, :, :-1]
        features: list[Tensor] = []
        for competition in self.competitions:
            features.append(competition(change_BCL if competition.sees_change else x_BCL, lengths_B))
        return torch.cat(features, dim=1)


class Competition(nn.Module):
    """The groups of one dilation on the window or on its first differences (then the last sample has none).

    A kernel's share of a win falls linearly from the winner's value to none at the width from it.
    """

    def __init__(self, dilation: int, weight_W1T: Tensor, channels_GC: Tensor, length: int, sees_change: bool) -> None:
        super().__init__()
        self.dilation = dilation
        self.n_groups = channels_GC.shape[0]
        self.length = length - int(sees_change)
        self.sees_change = sees_change
        self.width, self.least_share, self.least_gain = _LEAST_WIDTH, _LEAST_SHARE, _LEAST_GAIN
        self.register_buffer("weight_W1T", weight_W1T)
        self.register_buffer("channels_GC", channels_GC)
        self.register_buffer("steps_L", torch.arange(self.length), persistent=False)

    weight_W1T: Tensor  # noqa: N815 - a shape suffix
    channels_GC: Tensor  # noqa: N815
    steps_L: Tensor  # noqa: N815

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, 2 G K]."""
        values_BGKL = self.values(x_BCL)
        largest_BG1L = values_BGKL.amax(dim=2, keepdim=True)
        smallest_BG1L = values_BGKL.amin(dim=2, keepdim=True)
        end_B1 = (lengths_B - int(self.sees_change)).unsqueeze(1)
        counts_B11L = (self.steps_L.unsqueeze(0) < end_B1).to(torch.float32)[:, None, None]
        wins_BGKL = torch.relu_(values_BGKL - (largest_BG1L - self._width_at(largest_BG1L)))
        gained_BGK = wins_BGKL.mul_(largest_BG1L * counts_B11L / wins_BGKL.sum(dim=2, keepdim=True)).sum(dim=3)
        losses_BGKL = torch.relu_((smallest_BG1L + self._width_at(smallest_BG1L)) - values_BGKL)
        lost_BGK = losses_BGKL.mul_(counts_B11L / losses_BGKL.sum(dim=2, keepdim=True)).sum(dim=3)
        gains_BD = torch.cat([gained_BGK.flatten(1), lost_BGK.flatten(1)], dim=1)
        return torch.sqrt(torch.clamp(gains_BD, min=0.0) + self.least_gain)

    def values(self, x_BCL: Tensor) -> Tensor:
        """Return the kernels' values [B, G, K, L] of what the groups see of the window or its changes."""
        sums_BGL = torch.matmul(self.channels_GC, x_BCL)
        values_BWL = F.conv1d(
            sums_BGL, self.weight_W1T, dilation=self.dilation, padding=4 * self.dilation, groups=self.n_groups
        )
        return values_BWL.view(x_BCL.shape[0], self.n_groups, -1, self.length)

    def _width_at(self, winner_BG1L: Tensor) -> Tensor:
        """Return the width at these winners' values: never so small that it is lost in their rounding."""
        return winner_BG1L.abs() * self.least_share + self.width

    @torch.inference_mode()
    def set_width(self, x_NCL: Tensor) -> None:
        """Take the width from the root mean square of largest less smallest value in windows [N, C, L]."""
        values_NGKL = self.values(x_NCL)
        usual = (values_NGKL.amax(dim=2) - values_NGKL.amin(dim=2)).square().mean().sqrt()
        self.width = max(_WIDTH * float(usual), _LEAST_WIDTH)


def fit_hydra(x_NCL: Tensor, n_groups: int, generator: torch.Generator) -> Hydra:
    """Return the features for windows like ``x_NCL``, ``n_groups`` groups a dilation: 1, 2, 4, ... up to L / 8."""
    n_channels, length = x_NCL.shape[1], x_NCL.shape[2]
    few_NCL = x_NCL[:: len(x_NCL) // _MOST_WINDOWS + 1]
    n_dilations = int(math.log2(max(length - 1, N_TAPS - 1) / (N_TAPS - 1))) + 1
    n_used = min(max(n_channels // 2, 1), _MAX_CHANNELS)
    made = []
    for dilation in (2**exponent for exponent in range(n_dilations)):
        for sees_change in (False, True):
            weight_W1T = torch.randn(n_groups // 2 * N_PER_GROUP, 1, N_TAPS, generator=generator)
            weight_W1T -= weight_W1T.mean(dim=2, keepdim=True)
            weight_W1T /= weight_W1T.abs().sum(dim=2, keepdim=True)
            drawn = torch.randint(n_channels, (n_groups // 2, n_used), generator=generator)
            channels_GC = torch.zeros(n_groups // 2, n_channels).scatter_add_(1, drawn, torch.ones(drawn.shape))
            competition = Competition(dilation, weight_W1T, channels_GC, length, sees_change)
            competition.set_width(few_NCL.diff(dim=2) if sees_change else few_NCL)
            made.append(competition)
    return Hydra(made)
