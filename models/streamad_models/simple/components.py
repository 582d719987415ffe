"""The kinds ``pca`` and ``mpca``: principal components of the training windows.

``pca`` judges by what the leading ones do not explain, ``mpca`` by Hotelling's T2 of the leading ones and the error of
the rest: Nomikos and MacGregor (AIChE Journal 40, 1994) monitor batches by both charts. Their sum, each divided by its
level on normal windows, is the combined index of Yue and Qin (Industrial & Engineering Chemistry Research 40, 2001), of
roots. Legend: B windows, n reference windows, C channels, L window length, G places, D = C G readings, M components.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from streamad_models.ensemble.intervals import read_at
from streamad_models.simple.by_place import Unfolding
from streamad_models.simple.fitting import cross_fitted

Matrix = npt.NDArray[np.float64]


class Residual(nn.Module):
    """Maps scaled windows to the root mean square [B, 1] of their readings outside the leading components."""

    places_G: Tensor  # noqa: N815 - a shape suffix
    mean_D: Tensor  # noqa: N815
    basis_DM: Tensor  # noqa: N815

    def __init__(self, readings_nCG: Tensor, explained: float) -> None:
        super().__init__()
        rows = readings_nCG.flatten(1).numpy().astype(np.float64)
        mean = rows.mean(axis=0)
        self.register_buffer("places_G", torch.linspace(0.0, 1.0, readings_nCG.shape[2]))
        self.register_buffer("mean_D", torch.from_numpy(mean).float())
        self.register_buffer("basis_DM", torch.from_numpy(leading_components(rows - mean, explained)).float())

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms [B, 1]."""
        return self.of(read_at(x_BCL, lengths_B, self.places_G))

    def of(self, readings_BCG: Tensor) -> Tensor:
        """Return the terms [B, 1] of windows that are read already."""
        f_BD = readings_BCG.flatten(1) - self.mean_D
        rest_BD = f_BD - torch.matmul(torch.matmul(f_BD, self.basis_DM), self.basis_DM.transpose(0, 1))
        return torch.sqrt((rest_BD * rest_BD).mean(dim=1, keepdim=True))


def leading_components(rows: Matrix, explained: float) -> Matrix:
    """Return the fewest leading directions [D, M] of centred ``rows`` [n, D] that explain a share of their variance.

    At most n - 2, so that training windows keep a residual; none of equal windows.
    """
    n = len(rows)
    if n <= rows.shape[1]:
        eigenvalues, left = np.linalg.eigh(rows @ rows.T)
        vectors = rows.T @ left / np.sqrt(np.maximum(eigenvalues, np.finfo(np.float64).tiny))
    else:
        eigenvalues, vectors = np.linalg.eigh(rows.T @ rows)
    eigenvalues, vectors = np.maximum(eigenvalues[::-1], 0.0), vectors[:, ::-1]
    shares = np.cumsum(eigenvalues) / max(float(eigenvalues.sum()), np.finfo(np.float64).tiny)
    enough = int(np.searchsorted(shares, explained)) + 1
    n_real = int((eigenvalues > 1e-9 * max(float(eigenvalues[0]), 1e-12)).sum())
    leading: Matrix = vectors[:, : min(enough, n_real, n - 2)].copy()
    return leading


def fit_residual(x_nCL: Tensor, lengths_n: Tensor, *, n_places: int, explained: float) -> tuple[Residual, Tensor]:
    """Return the residual of the leading components, and the terms [n, 1] of each window without itself."""
    readings_nCG = read_at(x_nCL, lengths_n, torch.linspace(0.0, 1.0, n_places))
    own_n1 = cross_fitted(readings_nCG, lambda rest: Residual(rest, explained).of)
    return Residual(readings_nCG, explained), own_n1


_LEAST_LEVEL = 1e-3


class Charts(nn.Module):
    """Maps standardised readings [B, D] to the roots of T2 / M and of the squared prediction error / D [B, 2].

    Without components, as of equal windows, T2 is 0.
    """

    mean_D: Tensor  # noqa: N815 - a shape suffix
    basis_DM: Tensor  # noqa: N815
    spread_M: Tensor  # noqa: N815

    def __init__(self, z_nD: Tensor, explained: float) -> None:
        super().__init__()
        rows = z_nD.numpy().astype(np.float64)
        mean = rows.mean(axis=0)
        basis = leading_components(rows - mean, explained)
        self.register_buffer("mean_D", torch.from_numpy(mean).float())
        self.register_buffer("basis_DM", torch.from_numpy(basis).float())
        self.register_buffer("spread_M", torch.from_numpy(((rows - mean) @ basis).std(axis=0, ddof=1)).float())
        self.n_components = max(basis.shape[1], 1)

    def forward(self, z_BD: Tensor) -> Tensor:
        """Return both roots [B, 2]."""
        z_BD = z_BD - self.mean_D
        along_BM = torch.matmul(z_BD, self.basis_DM)
        rest_BD = z_BD - torch.matmul(along_BM, self.basis_DM.transpose(0, 1))
        along_BM = along_BM / self.spread_M
        t2_B = (along_BM * along_BM).sum(dim=1) / self.n_components
        return torch.sqrt(torch.stack([t2_B, (rest_BD * rest_BD).mean(dim=1)], dim=1))


class Multiway(nn.Module):
    """Maps scaled windows to the terms [B, 2]: both charts, each divided by its level."""

    level_K: Tensor  # noqa: N815 - a shape suffix

    def __init__(self, unfolding: Unfolding, charts: Charts, level_K: Tensor) -> None:
        super().__init__()
        self.unfolding = unfolding
        self.charts = charts
        self.register_buffer("level_K", level_K)

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms [B, 2]."""
        roots_BK: Tensor = self.charts(self.unfolding(x_BCL, lengths_B))
        return roots_BK / self.level_K


def fit_multiway(
    x_nCL: Tensor, lengths_n: Tensor, *, n_places: int, floor: float, explained: float
) -> tuple[Multiway, Tensor]:
    """Return both charts, and the terms [n, 2] of each window without itself.

    The level of a chart is its median over the training windows, each scored by a fit that did not see it.
    """
    readings_nCG = read_at(x_nCL, lengths_n, torch.linspace(0.0, 1.0, n_places))

    def parts(rest_nCG: Tensor) -> tuple[Unfolding, Charts]:
        unfolding = Unfolding(rest_nCG, floor)
        return unfolding, Charts(unfolding.of(rest_nCG), explained)

    def fit(rest_nCG: Tensor) -> Callable[[Tensor], Tensor]:
        unfolding, charts = parts(rest_nCG)
        return lambda held_out_BCG: charts(unfolding.of(held_out_BCG))

    own_nK = cross_fitted(readings_nCG, fit)
    level_K = torch.clamp(own_nK.median(dim=0)[0], min=_LEAST_LEVEL)
    return Multiway(*parts(readings_nCG), level_K), own_nK / level_K
