"""Quantiles in dyadic intervals of a window, of its changes and of its spectrum: its course at several resolutions.

After QUANT (Dempster, Schmidt and Webb, DMKD 2024, arXiv:2308.00928). Legend: B windows, C channels, L window length,
G grid points, R spectrum, S intervals, P points of an interval, D features.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

GRID = 64
_DEPTH = 4  # 1, 2, 4 and 8 intervals
_QUANTILES = 8  # of the whole; an interval of a deeper level has the fewer


class Intervals(nn.Module):
    """Maps windows [B, C, L] with lengths [B] to features [B, D].

    A window is read at 64 places from its first to its last sample, so that windows of every length have features in
    the same places. The spectrum is the amplitude of the Fourier transform of these 64 readings.
    """

    def __init__(self, n_channels: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.register_buffer("places_G", torch.linspace(0.0, 1.0, GRID))
        at = 2 * math.pi * np.outer(np.arange(GRID), np.arange(GRID // 2)) / GRID
        waves_GR = np.concatenate([np.cos(at), np.sin(at)], axis=1) / math.sqrt(GRID)
        self.register_buffer("waves_GR", torch.from_numpy(waves_GR.astype(np.float32)))
        levels = [_indexes(GRID >> level, max(_QUANTILES >> level, 1)) for level in range(_DEPTH)]
        self.levels = [1 << level for level in range(_DEPTH)]
        for level, indexes in enumerate(levels):
            self.register_buffer(f"indexes_{level}", indexes)
        halves = [_indexes((GRID // 2) >> level, max(_QUANTILES >> level, 1)) for level in range(_DEPTH)]
        for level, indexes in enumerate(halves):
            self.register_buffer(f"half_indexes_{level}", indexes)
        per_channel = sum(len(indexes) << level for level, indexes in enumerate(levels)) * 2
        per_channel += sum(len(indexes) << level for level, indexes in enumerate(halves))
        self.n_features = n_channels * per_channel

    places_G: Tensor  # noqa: N815 - a shape suffix
    waves_GR: Tensor  # noqa: N815
    indexes_0: Tensor
    indexes_1: Tensor
    indexes_2: Tensor
    indexes_3: Tensor
    half_indexes_0: Tensor
    half_indexes_1: Tensor
    half_indexes_2: Tensor
    half_indexes_3: Tensor

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D]."""
        readings_BCG = self.read(x_BCL, lengths_B)
        changes_BCG = readings_BCG[:, :, 1:] - readings_BCG[:, :, :-1]
        changes_BCG = torch.cat([changes_BCG, changes_BCG[:, :, -1:]], dim=2) * 4.0
        waves_BCR = torch.matmul(readings_BCG, self.waves_GR)
        half = self.waves_GR.shape[1] // 2
        spectrum_BCR = torch.sqrt(waves_BCR[:, :, :half] ** 2 + waves_BCR[:, :, half:] ** 2 + 1e-12)
        features: list[Tensor] = []
        for part in (readings_BCG, changes_BCG):
            features.append(_quantiles(part, 1, self.indexes_0))
            features.append(_quantiles(part, 2, self.indexes_1))
            features.append(_quantiles(part, 4, self.indexes_2))
            features.append(_quantiles(part, 8, self.indexes_3))
        features.append(_quantiles(spectrum_BCR, 1, self.half_indexes_0))
        features.append(_quantiles(spectrum_BCR, 2, self.half_indexes_1))
        features.append(_quantiles(spectrum_BCR, 4, self.half_indexes_2))
        features.append(_quantiles(spectrum_BCR, 8, self.half_indexes_3))
        return torch.cat(features, dim=1)

    def read(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the windows read linearly at 64 places [B, C, G] from the first to the last sample."""
        at_BG = self.places_G.unsqueeze(0) * (lengths_B - 1).to(torch.float32).unsqueeze(1)
        low_BG = torch.clamp(at_BG.floor(), max=float(max(self.length - 2, 0)))
        share_B1G = (at_BG - low_BG).unsqueeze(1)
        index_BCG = low_BG.to(torch.int64).unsqueeze(1).expand(-1, x_BCL.shape[1], -1)
        low_BCG = torch.gather(x_BCL, 2, index_BCG)
        high_BCG = torch.gather(x_BCL, 2, index_BCG + 1)
        return low_BCG * (1.0 - share_B1G) + high_BCG * share_B1G


def _quantiles(part_BCG: Tensor, n_intervals: int, indexes: Tensor) -> Tensor:
    n, channels = part_BCG.shape[0], part_BCG.shape[1]
    parts_BCSP = part_BCG.reshape(n, channels, n_intervals, -1)
    return torch.sort(parts_BCSP, dim=3)[0][:, :, :, indexes].reshape(n, -1)


def _indexes(n_points: int, n_quantiles: int) -> Tensor:
    """Return the places of evenly spread quantiles among ``n_points`` sorted ones; of one: the median."""
    if n_quantiles == 1:
        return torch.tensor([n_points // 2])
    return torch.from_numpy(np.linspace(0, n_points - 1, n_quantiles).round().astype(np.int64))
