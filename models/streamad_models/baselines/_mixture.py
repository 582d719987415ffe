"""A Gaussian mixture in the latent space of a network: its moments under soft assignment, and the energy of a point.

All of it in float64, whatever the network computes in. Legend: N points, K components, Z dimensions.
"""

from __future__ import annotations

__all__ = ["energy", "fit_mixture", "matched_gaussian"]

import math

import torch
from torch import Tensor

_RIDGE = 1e-6  # on the covariances' diagonals, besides this share of their mean


def fit_mixture(points_NZ: Tensor, shares_NK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights [K], means [K, Z] and Cholesky factors of the covariances [K, Z, Z] (Zong 2018, eq. 5), float64.

    ``shares_NK`` says how much of each point belongs to each component. A covariance beyond repair gives NaN.
    """
    points_NZ, shares_NK = points_NZ.double(), shares_NK.double()
    total_K = shares_NK.sum(0) + 1e-12
    means_KZ = shares_NK.t() @ points_NZ / total_K[:, None]
    centred_KNZ = points_NZ - means_KZ[:, None]
    weighted_KNZ = shares_NK.t()[:, :, None] * centred_KNZ
    covariance_KZZ = weighted_KNZ.transpose(1, 2) @ centred_KNZ / total_K[:, None, None]
    return total_K / total_K.sum(), means_KZ, _factors(covariance_KZZ)


def matched_gaussian(weights_K: Tensor, means_KZ: Tensor, factors_KZZ: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the one Gaussian with the mixture's mean and covariance, as a mixture of one component."""
    mean_Z = weights_K @ means_KZ
    apart_KZ = means_KZ - mean_Z
    within_KZZ = factors_KZZ @ factors_KZZ.transpose(1, 2)
    between_KZZ = apart_KZ[:, :, None] * apart_KZ[:, None, :]
    covariance_ZZ = (weights_K[:, None, None] * (within_KZZ + between_KZZ)).sum(0)
    return torch.ones_like(weights_K[:1]), mean_Z[None], _factors(covariance_ZZ[None])


def energy(points_NZ: Tensor, weights_K: Tensor, means_KZ: Tensor, factors_KZZ: Tensor) -> Tensor:
    """Return [N]: minus the log-likelihood of each point (Zong 2018, eq. 6), float64. Scriptable."""
    centred_KZN = (points_NZ.double() - means_KZ[:, None]).transpose(1, 2)
    whitened_KZN = torch.linalg.solve_triangular(factors_KZZ, centred_KZN, upper=False)
    log_volume_K = factors_KZZ.diagonal(dim1=1, dim2=2).log().sum(1)
    constant_K = torch.log(weights_K) - log_volume_K - 0.5 * math.log(2 * math.pi) * means_KZ.shape[1]
    return -torch.logsumexp(constant_K[:, None] - 0.5 * whitened_KZN.square().sum(1), dim=0)


def _factors(covariance_KZZ: Tensor) -> Tensor:
    size_K = covariance_KZZ.diagonal(dim1=1, dim2=2).mean(1)
    ridge_K11 = (_RIDGE * (1 + size_K.detach()))[:, None, None]
    identity_ZZ = torch.eye(covariance_KZZ.shape[1], dtype=covariance_KZZ.dtype, device=covariance_KZZ.device)
    factors_KZZ, failed_K = torch.linalg.cholesky_ex(covariance_KZZ + ridge_K11 * identity_ZZ)
    checked_KZZ: Tensor = factors_KZZ.masked_fill((failed_K > 0)[:, None, None], torch.nan)
    return checked_KZZ
