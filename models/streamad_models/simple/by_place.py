"""The kinds ``pointwise`` and ``unfolded``: each channel and place of the sequence is judged by its own spread.

``pointwise`` is the control chart of a whole window, a robust z. ``unfolded`` is the distance from the nearest training
window after batch-wise unfolding (Nomikos and MacGregor, AIChE Journal 40, 1994): a window is a row of channel x place.
Legend: B windows, n reference windows, C channels, L window length, G places, D = C G readings.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from streamad_models.ensemble.intervals import read_at
from streamad_models.simple.fitting import cross_fitted
from streamad_models.simple.nearest import NearestPoint

NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution / its median absolute deviation (Rousseeuw and Croux, JASA 1993)."""


class Deviation(nn.Module):
    """Maps scaled windows to one term for each channel: the root mean square over the places of the robust z.

    z = (reading - median) / (1.4826 x median absolute deviation + floor), both of the reference windows at this place.
    """

    places_G: Tensor  # noqa: N815 - a shape suffix
    median_CG: Tensor  # noqa: N815
    spread_CG: Tensor  # noqa: N815

    def __init__(self, readings_nCG: Tensor, floor: float) -> None:
        super().__init__()
        readings: npt.NDArray[np.float64] = readings_nCG.numpy().astype(np.float64)
        median = np.median(readings, axis=0)
        spread = NORMAL_MAD * np.median(np.abs(readings - median), axis=0) + floor
        self.register_buffer("places_G", torch.linspace(0.0, 1.0, readings.shape[2]))
        self.register_buffer("median_CG", torch.from_numpy(median).float())
        self.register_buffer("spread_CG", torch.from_numpy(spread).float())

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms [B, C]."""
        return self.of(read_at(x_BCL, lengths_B, self.places_G))

    def of(self, readings_BCG: Tensor) -> Tensor:
        """Return the terms [B, C] of windows that are read already."""
        z_BCG = (readings_BCG - self.median_CG) / self.spread_CG
        return torch.sqrt((z_BCG * z_BCG).mean(dim=2))


def fit_deviation(x_nCL: Tensor, lengths_n: Tensor, *, n_places: int, floor: float) -> tuple[Deviation, Tensor]:
    """Return the deviation from the median course, and the terms [n, C] of each window without itself."""
    readings_nCG = read_at(x_nCL, lengths_n, torch.linspace(0.0, 1.0, n_places))
    own_nC = cross_fitted(readings_nCG, lambda rest: Deviation(rest, floor).of)
    return Deviation(readings_nCG, floor), own_nC


_LEAST_SPREAD = 1e-3
"""Of a channel's deviations from its mean course, in its standard deviations: that of windows that are all equal."""
_LEAST_DISTANCE = 0.1
"""Added in quadrature, which keeps the order: below it, rounding would move a term by more than a probe allows."""


class Unfolding(nn.Module):
    """Maps scaled windows to their standardised readings [B, D]: (reading - mean) / (spread + floor).

    Mean and standard deviation are those of the reference windows at this channel and place. The floor is a share of
    the channel's root mean square deviation from its mean course, so a place where all windows agree is no needle.
    """

    places_G: Tensor  # noqa: N815 - a shape suffix
    mean_CG: Tensor  # noqa: N815
    spread_CG: Tensor  # noqa: N815

    def __init__(self, readings_nCG: Tensor, floor: float) -> None:
        super().__init__()
        readings = readings_nCG.numpy().astype(np.float64)
        spread = readings.std(axis=0, ddof=1)
        of_channel = np.sqrt((spread * spread).mean(axis=1, keepdims=True))
        spread = spread + floor * np.maximum(of_channel, _LEAST_SPREAD)
        self.register_buffer("places_G", torch.linspace(0.0, 1.0, readings.shape[2]))
        self.register_buffer("mean_CG", torch.from_numpy(readings.mean(axis=0)).float())
        self.register_buffer("spread_CG", torch.from_numpy(spread).float())

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the standardised readings [B, D]."""
        return self.of(read_at(x_BCL, lengths_B, self.places_G))

    def of(self, readings_BCG: Tensor) -> Tensor:
        """Return the standardised readings [B, D] of windows that are read already."""
        z_BCG = (readings_BCG - self.mean_CG) / self.spread_CG
        return z_BCG.flatten(1)


class NearestUnfolded(nn.Module):
    """Maps scaled windows to the root mean square difference [B, 1] from the nearest, standardised."""

    def __init__(self, unfolding: Unfolding, readings_nCG: Tensor) -> None:
        super().__init__()
        self.unfolding = unfolding
        self.point = NearestPoint(unfolding.of(readings_nCG))
        self.least_distance = _LEAST_DISTANCE

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms [B, 1]."""
        return self.term(self.point(self.unfolding(x_BCL, lengths_B)))

    def term(self, distance_B1: Tensor) -> Tensor:
        """Return the terms [B, 1] of distances."""
        return torch.sqrt(distance_B1 * distance_B1 + self.least_distance * self.least_distance)


def fit_unfolded(x_nCL: Tensor, lengths_n: Tensor, *, n_places: int, floor: float) -> tuple[NearestUnfolded, Tensor]:
    """Return the distance from the nearest window, and the terms [n, 1] of each without itself.

    Without itself means without its distance: its share of mean and spread stays, as in the other distances.
    """
    readings_nCG = read_at(x_nCL, lengths_n, torch.linspace(0.0, 1.0, n_places))
    distance = NearestUnfolded(Unfolding(readings_nCG, floor), readings_nCG)
    return distance, distance.term(distance.point.without_itself())
