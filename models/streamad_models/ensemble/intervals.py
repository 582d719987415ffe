"""A window's course at 64 places, its quantiles in dyadic intervals at several resolutions, and a few statistics.

Quantiles are those of the readings, of their changes and of their spectrum, after QUANT (Dempster, Schmidt and Webb,
DMKD 2024, arXiv:2308.00928). The statistics are what a control chart of batches shows. Legend: B windows, C channels,
L window length, G grid points, R spectrum, S intervals, P points of an interval, D features.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from streamad_models.ensemble.model import LARGEST_READING

GRID = 64
_DEPTH = 4  # 1, 2, 4 and 8 intervals
_QUANTILES = 8  # of the whole; an interval of a deeper level has the fewer


class Intervals(nn.Module):
    """Maps windows [B, C, L] with lengths [B] to features [B, D].

    A window is read at 64 places from its first to its last sample, so that windows of every length have features in
    the same places. The spectrum is the amplitude of the Fourier transform of these 64 readings.
    """

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.register_buffer("places_G", torch.linspace(0.0, 1.0, GRID))
        at = 2 * math.pi * np.outer(np.arange(GRID), np.arange(GRID // 2)) / GRID
        waves_GR = np.concatenate([np.cos(at), np.sin(at)], axis=1) / math.sqrt(GRID)
        self.register_buffer("waves_GR", torch.from_numpy(waves_GR.astype(np.float32)))
        levels, spectrum_levels = _levels(GRID), _levels(GRID // 2)
        self.levels, self.spectrum_levels = nn.ModuleList(levels), nn.ModuleList(spectrum_levels)
        self.n_features = n_channels * sum(each.n_features for each in (*levels, *levels, *spectrum_levels))

    places_G: Tensor  # noqa: N815 - a shape suffix
    waves_GR: Tensor  # noqa: N815

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D]."""
        readings_BCG = read_at(x_BCL, lengths_B, self.places_G)
        changes_BCG = readings_BCG[:, :, 1:] - readings_BCG[:, :, :-1]
        changes_BCG = torch.cat([changes_BCG, changes_BCG[:, :, -1:]], dim=2) * 4.0
        waves_BCR = torch.matmul(readings_BCG, self.waves_GR)
        half = self.waves_GR.shape[1] // 2
        spectrum_BCR = torch.sqrt(waves_BCR[:, :, :half] ** 2 + waves_BCR[:, :, half:] ** 2 + 1e-12)
        features: list[Tensor] = []
        for level in self.levels:
            features.append(level(readings_BCG))
        for level in self.levels:
            features.append(level(changes_BCG))
        for level in self.spectrum_levels:
            features.append(level(spectrum_BCR))
        return torch.cat(features, dim=1)


def read_at(x_BCL: Tensor, lengths_B: Tensor, places_G: Tensor) -> Tensor:
    """Return the windows, L at least 2, read linearly at G places [B, C, G]; 0 is the first sample, 1 the last."""
    at_BG = places_G.unsqueeze(0) * (lengths_B - 1).to(torch.float32).unsqueeze(1)
    low_BG = torch.clamp(at_BG.floor(), max=float(max(x_BCL.shape[2] - 2, 0)))
    share_B1G = (at_BG - low_BG).unsqueeze(1)
    index_BCG = low_BG.to(torch.int64).unsqueeze(1).expand(-1, x_BCL.shape[1], -1)
    low_BCG = torch.gather(x_BCL, 2, index_BCG)
    high_BCG = torch.gather(x_BCL, 2, index_BCG + 1)
    return low_BCG * (1.0 - share_B1G) + high_BCG * share_B1G


def _levels(n_points: int) -> list["Quantiles"]:
    return [Quantiles(n_points, 1 << level, max(_QUANTILES >> level, 1)) for level in range(_DEPTH)]


class Quantiles(nn.Module):
    """Evenly spread quantiles of each of S equal intervals; of one quantile: the median."""

    def __init__(self, n_points: int, n_intervals: int, n_quantiles: int) -> None:
        super().__init__()
        self.n_intervals = n_intervals
        self.n_quantiles = n_quantiles
        self.n_features = n_intervals * n_quantiles
        last = n_points // n_intervals - 1
        places = np.linspace(0, last, n_quantiles) if n_quantiles > 1 else np.array([(last + 1) // 2])
        self.register_buffer("places_Q", torch.from_numpy(places.round().astype(np.int64)))

    places_Q: Tensor  # noqa: N815 - a shape suffix

    def forward(self, part_BCG: Tensor) -> Tensor:
        """Return the quantiles [B, C S Q] of courses [B, C, G]."""
        n, channels = part_BCG.shape[0], part_BCG.shape[1]
        parts_BCSP = part_BCG.reshape(n, channels, self.n_intervals, -1)
        if self.n_quantiles == 2:  # the smallest and the largest
            return torch.stack([parts_BCSP.amin(dim=3), parts_BCSP.amax(dim=3)], dim=3).reshape(n, -1)
        return torch.sort(parts_BCSP, dim=3)[0][:, :, :, self.places_Q].reshape(n, -1)


class Readings(nn.Module):
    """Maps windows [B, C, L] with lengths [B] to their readings [B, C G] from the first to the last sample.

    The space of plants whose sequences are aligned in time.
    """

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.n_features = n_channels * GRID
        self.register_buffer("places_G", torch.linspace(0.0, 1.0, GRID))

    places_G: Tensor  # noqa: N815 - a shape suffix

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the readings [B, C G]."""
        return read_at(x_BCL, lengths_B, self.places_G).flatten(1)


_A_CHANNEL = 6
_TINY = 1e-6  # keeps a root's slope bounded where a channel stands still; torch's export to ONNX drops 1e-8


class Moments(nn.Module):
    """Maps windows [B, C, L] with lengths [B] to features [B, 6 C + 1].

    Of each channel mean, standard deviation, smallest and largest reading, last less first reading, and the standard
    deviation of the changes from sample to sample; of the window its length as a share of L.
    """

    steps_L: Tensor  # noqa: N815 - a shape suffix

    def __init__(self, n_channels: int, length: int) -> None:
        super().__init__()
        self.n_features = _A_CHANNEL * n_channels + 1
        self.length = length
        self.beyond, self.tiny = 2.0 * LARGEST_READING, _TINY
        self.register_buffer("steps_L", torch.arange(length), persistent=False)

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D]."""
        inside_B1L = (self.steps_L < lengths_B.unsqueeze(1)).to(torch.float32).unsqueeze(1)
        n_B11 = lengths_B.to(torch.float32)[:, None, None]
        mean_BC1 = (x_BCL * inside_B1L).sum(dim=2, keepdim=True) / n_B11
        apart_BCL = (x_BCL - mean_BC1) * inside_B1L
        spread_BC = torch.sqrt((apart_BCL * apart_BCL).sum(dim=2) / n_B11[:, :, 0] + self.tiny)
        beyond_B1L = (1.0 - inside_B1L) * self.beyond
        smallest_BC, largest_BC = (x_BCL + beyond_B1L).amin(dim=2), (x_BCL - beyond_B1L).amax(dim=2)
        last_B1L = (self.steps_L == lengths_B.unsqueeze(1) - 1).to(torch.float32).unsqueeze(1)
        way_BC = (x_BCL * last_B1L).sum(dim=2) - x_BCL[:, :, 0]
        change_BCl = (x_BCL[:, :, 1:] - x_BCL[:, :, :-1]) * inside_B1L[:, :, 1:]
        n_changes_B1 = torch.clamp(n_B11[:, :, 0] - 1.0, min=1.0)
        usual_BC1 = change_BCl.sum(dim=2, keepdim=True) / n_changes_B1.unsqueeze(2)
        uneven_BCl = (change_BCl - usual_BC1) * inside_B1L[:, :, 1:]
        changes_BC = torch.sqrt((uneven_BCl * uneven_BCl).sum(dim=2) / n_changes_B1 + self.tiny)
        duration_B1 = lengths_B.to(torch.float32).unsqueeze(1) / self.length
        parts = [mean_BC1[:, :, 0], spread_BC, smallest_BC, largest_BC, way_BC, changes_BC, duration_B1]
        return torch.cat(parts, dim=1)
