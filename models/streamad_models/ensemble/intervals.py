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
        self.quantiles, self.spectrum_quantiles = Quantiles(GRID), Quantiles(GRID // 2)
        self.n_features = n_channels * (2 * self.quantiles.n_features + self.spectrum_quantiles.n_features)

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
        quantiles_BF = self.quantiles(torch.stack([readings_BCG, changes_BCG], dim=1))
        return torch.cat([quantiles_BF, self.spectrum_quantiles(spectrum_BCR.unsqueeze(1))], dim=1)


def read_at(x_BCL: Tensor, lengths_B: Tensor, places_G: Tensor) -> Tensor:
    """Return the windows, L at least 2, read linearly at G places [B, C, G]; 0 is the first sample, 1 the last."""
    at_BG = places_G.unsqueeze(0) * (lengths_B - 1).to(torch.float32).unsqueeze(1)
    low_BG = torch.clamp(at_BG.floor(), max=float(max(x_BCL.shape[2] - 2, 0)))
    share_B1G = (at_BG - low_BG).unsqueeze(1)
    index_BCG = low_BG.to(torch.int64).unsqueeze(1).expand(-1, x_BCL.shape[1], -1)
    low_BCG = torch.gather(x_BCL, 2, index_BCG)
    high_BCG = torch.gather(x_BCL, 2, index_BCG + 1)
    return low_BCG * (1.0 - share_B1G) + high_BCG * share_B1G


class Quantiles(nn.Module):
    """Maps courses [B, E, C, P] of E kinds to evenly spread quantiles of equal intervals [B, E 4 C 8].

    Of each kind first 8 quantiles of the whole, then 4 of each half, 2 of each quarter (the smallest and the largest),
    1 of each eighth (the median). One sort gives all: runs are merged until they are as long as the whole.
    """

    def __init__(self, n_points: int) -> None:
        super().__init__()
        self.n_points = n_points
        self.n_features = _DEPTH * _QUANTILES
        levels = reversed(range(_DEPTH))
        self.levels = nn.ModuleList(
            _Level(n_points >> level, _QUANTILES >> level, level == _DEPTH - 1) for level in levels
        )

    def forward(self, courses_BECP: Tensor) -> Tensor:
        """Return the quantiles."""
        n, kinds, channels = courses_BECP.shape[0], courses_BECP.shape[1], courses_BECP.shape[2]
        x_PN = courses_BECP.reshape(-1, self.n_points).transpose(0, 1)
        taken: list[Tensor] = []
        for level in self.levels:
            x_PN, quantiles_QN = level(x_PN)
            taken.append(quantiles_QN)
        taken.reverse()
        levels_VQBEC = torch.stack(taken).view(len(taken), -1, n, kinds, channels)
        return levels_VQBEC.permute(2, 3, 0, 4, 1).flatten(1)


class _Level(nn.Module):
    """Merges sorted runs up to ``length`` and takes ``n_quantiles`` of each; of one quantile: the median."""

    def __init__(self, length: int, n_quantiles: int, is_first: bool) -> None:
        super().__init__()
        self.before, self.length = 1 if is_first else length // 2, length
        places = np.linspace(0, length - 1, n_quantiles) if n_quantiles > 1 else np.array([length // 2])
        self.register_buffer("places_Q", torch.from_numpy(places.round().astype(np.int64)))

    places_Q: Tensor  # noqa: N815 - a shape suffix

    def forward(self, x_PN: Tensor) -> tuple[Tensor, Tensor]:
        """Return the R sorted runs [P, N] and their quantiles [R Q, N]."""
        x_PN = sorted_runs(x_PN, self.before, self.length)
        return x_PN, x_PN.view(-1, self.length, x_PN.shape[1]).index_select(1, self.places_Q).flatten(0, 1)


def sorted_runs(x_PN: Tensor, length: int, wanted: int) -> Tensor:
    """Return the columns, of sorted runs of ``length`` rows, as sorted runs of ``wanted`` rows (both powers of two).

    By minima and maxima of whole halves (bitonic merges: Batcher, AFIPS 1968): all columns at once, in an order that no
    value decides. In batches of 16 the sort of each backend takes 8 to 12 times as long: it sorts column by column.
    """
    n = x_PN.shape[1]
    while length < wanted:
        low, high = x_PN.view(-1, 2, length, n).unbind(1)
        x_PN = _exchanged(low, high.flip(1))
        half = length // 2
        while half >= 1:
            low, high = x_PN.view(-1, 2, half, n).unbind(1)
            x_PN = _exchanged(low, high)
            half = half // 2
        length = 2 * length
    return x_PN


def _exchanged(one: Tensor, other: Tensor) -> Tensor:
    """Return as rows [P, N] the smaller of each two values in the place of ``one``, the larger in the other's."""
    return torch.stack([torch.minimum(one, other), torch.maximum(one, other)], dim=1).view(-1, one.shape[2])


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
