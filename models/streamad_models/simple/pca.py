"""The kind ``pca``: what the leading principal components of the training windows do not explain.

Legend: B windows, n reference windows, C channels, L window length, G places, D = C G readings, M components.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from streamad_models.ensemble.features.intervals import read_at
from streamad_models.simple.fitting import cross_fitted
from streamad_models.simple.options import PCAOptions

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


def fit_residual(x_nCL: Tensor, lengths_n: Tensor, options: PCAOptions) -> tuple[Residual, Tensor]:
    """Return the residual of the leading components, and the terms [n, 1] of each window without itself."""
    readings_nCG = read_at(x_nCL, lengths_n, torch.linspace(0.0, 1.0, options.n_places))
    own_n1 = cross_fitted(readings_nCG, lambda rest: Residual(rest, options.explained).of)
    return Residual(readings_nCG, options.explained), own_n1
