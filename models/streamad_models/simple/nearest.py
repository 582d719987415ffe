"""The kinds ``nearest`` and ``minirocket``: the distance to the nearest training window, raw or by its features.

Legend: B windows, n reference windows, C channels, L window length, D readings or features, k candidates.
"""

import numpy as np
import torch
from torch import Tensor, nn

from streamad_models.ensemble.minirocket import MiniRocket, fit_minirocket
from streamad_models.ensemble.spaces import features_of

_CANDIDATES = 4
_ROWS = 64  # windows compared at once in training: bounds the memory
_LEAST_SPREAD = 1e-9  # of a feature that changes
_LEAST_SQUARE = 1e-6  # added to the mean square difference of features: that of a copy is rounding


class NearestPoint(nn.Module):
    """Maps points [B, D] to the root mean square difference [B, 1] from the nearest of ``points_nD``, n at least 2.

    |a|^2 + |b|^2 - 2ab from the centre finds four candidates; their exact differences decide, for small distances lose
    digits there.
    """

    centre_D: Tensor  # noqa: N815 - a shape suffix
    points_nD: Tensor  # noqa: N815
    squares_n: Tensor

    def __init__(self, points_nD: Tensor, least_square: float = 0.0) -> None:
        super().__init__()
        self.least_square = least_square
        self.n_candidates = min(_CANDIDATES, len(points_nD) - 1)
        self.register_buffer("centre_D", points_nD.mean(dim=0))
        self.register_buffer("points_nD", points_nD - self.centre_D)
        self.register_buffer("squares_n", (self.points_nD * self.points_nD).sum(dim=1))

    def forward(self, z_BD: Tensor) -> Tensor:
        """Return the terms [B, 1]."""
        z_BD = z_BD - self.centre_D
        return self.nearest(z_BD, self.closeness(z_BD))

    def closeness(self, z_BD: Tensor) -> Tensor:
        """Return the squared distances [B, n] of centred points, less these points' own squares."""
        return self.squares_n - 2.0 * torch.matmul(z_BD, self.points_nD.transpose(0, 1))

    def nearest(self, z_BD: Tensor, closeness_Bn: Tensor) -> Tensor:
        """Return the least exact difference [B, 1] of centred points from those of least ``closeness_Bn``."""
        index_Bk = torch.topk(closeness_Bn, self.n_candidates, dim=1, largest=False)[1]
        rest_BkD = z_BD.unsqueeze(1) - self.points_nD[index_Bk]
        return torch.sqrt((rest_BkD * rest_BkD).mean(dim=2).min(dim=1, keepdim=True)[0] + self.least_square)

    def without_itself(self) -> Tensor:
        """Return the terms [n, 1] of the points, each from the nearest of all others: exact leave-one-out."""
        parts = []
        for rows in torch.split(torch.arange(len(self.points_nD)), _ROWS):
            z_BD = self.points_nD[rows]
            closeness_Bn = self.closeness(z_BD)
            closeness_Bn[torch.arange(len(rows)), rows] = torch.inf
            parts.append(self.nearest(z_BD, closeness_Bn))
        return torch.cat(parts)


class NearestWindow(nn.Module):
    """The distance [B, 1] of scaled windows, zero from their ends on, from the nearest training window."""

    def __init__(self, x_nCL: Tensor) -> None:
        super().__init__()
        self.point = NearestPoint(x_nCL.flatten(1))

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms [B, 1]; the true lengths are not used."""
        terms_B1: Tensor = self.point(x_BCL.flatten(1))
        return terms_B1


class NearestFeatures(nn.Module):
    """The distance [B, 1] of scaled windows from the nearest training window, by MiniRocket's features.

    Features are standardised on the training windows; one that never changes there is only centred.
    """

    mean_D: Tensor  # noqa: N815 - a shape suffix
    spread_D: Tensor  # noqa: N815

    def __init__(self, rocket: MiniRocket, features_nD: Tensor) -> None:
        super().__init__()
        spread_D = features_nD.std(dim=0, correction=0)
        self.rocket = rocket
        self.register_buffer("mean_D", features_nD.mean(dim=0))
        self.register_buffer("spread_D", torch.where(spread_D < _LEAST_SPREAD, torch.ones_like(spread_D), spread_D))
        self.point = NearestPoint((features_nD - self.mean_D) / self.spread_D, _LEAST_SQUARE)

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms [B, 1]."""
        terms_B1: Tensor = self.point((self.rocket(x_BCL, lengths_B) - self.mean_D) / self.spread_D)
        return terms_B1


def fit_windows(x_nCL: Tensor) -> tuple[NearestWindow, Tensor]:
    """Return the distance to the nearest of the windows, and the terms [n, 1] of each without itself."""
    distance = NearestWindow(x_nCL)
    return distance, distance.point.without_itself()


def fit_features(x_nCL: Tensor, lengths_n: Tensor, n_features: int, seed: int) -> tuple[NearestFeatures, Tensor]:
    """Return the distance to the nearest window's features, and the terms [n, 1] of each without itself.

    ``seed`` draws channels and biases.
    """
    rocket = fit_minirocket(x_nCL, n_features, np.random.default_rng(seed))
    distance = NearestFeatures(rocket, torch.from_numpy(features_of(rocket, x_nCL, lengths_n)))
    return distance, distance.point.without_itself()
