"""The kind ``pointwise``: a robust z at each channel and place of the sequence, the control chart of a whole window.

Legend: B windows, n reference windows, C channels, L window length, G places.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from streamad_models.ensemble.features.intervals import read_at
from streamad_models.simple.fitting import cross_fitted
from streamad_models.simple.options import PointwiseOptions

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


def fit_deviation(x_nCL: Tensor, lengths_n: Tensor, options: PointwiseOptions) -> tuple[Deviation, Tensor]:
    """Return the deviation from the median course, and the terms [n, C] of each window without itself."""
    readings_nCG = read_at(x_nCL, lengths_n, torch.linspace(0.0, 1.0, options.n_places))
    own_nC = cross_fitted(readings_nCG, lambda rest: Deviation(rest, options.floor).of)
    return Deviation(readings_nCG, options.floor), own_nC
