from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from streamad_models.baselines.networks.dagmm import energy, fit_mixture, matched_gaussian

N, K, Z = 400, 3, 4


@pytest.fixture
def mixture() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights [K], means [K, Z] and covariances [K, Z, Z], none of them axis-aligned."""
    rng = np.random.default_rng(0)
    roots = rng.normal(0, 0.7, (K, Z, Z))
    return rng.dirichlet([2.0] * K), rng.normal(0, 2, (K, Z)), roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(Z)


def test_the_energy_is_minus_the_log_density(mixture: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    weights, means, covariances = mixture
    points = np.random.default_rng(1).normal(0, 3, (N, Z))
    found = energy(*map(torch.from_numpy, (points, weights, means, np.linalg.cholesky(covariances))))
    terms = [np.log(w) + multivariate_normal(m, c).logpdf(points) for w, m, c in zip(*mixture, strict=True)]
    np.testing.assert_allclose(found.numpy(), -logsumexp(terms, axis=0), rtol=1e-9)


def test_a_fit_has_the_weighted_moments_of_each_component() -> None:
    rng = np.random.default_rng(2)
    points, shares = rng.normal(1, 2, (N, Z)), rng.dirichlet([0.5] * K, N)
    weights, means, factors = (one.numpy() for one in fit_mixture(torch.from_numpy(points), torch.from_numpy(shares)))
    np.testing.assert_allclose(weights, shares.mean(0), rtol=1e-9)
    for k in range(K):
        np.testing.assert_allclose(means[k], np.average(points, axis=0, weights=shares[:, k]), rtol=1e-9)
        covariance = np.cov(points.T, aweights=shares[:, k], ddof=0)
        np.testing.assert_allclose(factors[k] @ factors[k].T, covariance, atol=1e-4)


def test_a_component_without_spread_keeps_a_finite_energy_and_nan_is_not_hidden() -> None:
    same = torch.ones(5, Z)
    assert torch.isfinite(energy(same, *fit_mixture(same, torch.ones(5, 1)))).all()
    broken = fit_mixture(same.index_fill(0, torch.tensor([0]), torch.nan), torch.ones(5, 1))
    assert broken[2].isnan().any()


def test_the_matched_gaussian_has_the_mixtures_mean_and_covariance(
    mixture: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    weights, means, covariances = mixture
    rng = np.random.default_rng(3)
    chosen = rng.choice(K, 200_000, p=weights)
    points = means[chosen] + np.einsum(
        "nij,nj->ni", np.linalg.cholesky(covariances)[chosen], rng.normal(0, 1, (200_000, Z))
    )
    one, mean, factor = matched_gaussian(*map(torch.from_numpy, (weights, means, np.linalg.cholesky(covariances))))
    assert one.tolist() == [1.0]
    np.testing.assert_allclose(mean[0], points.mean(0), atol=0.03)
    np.testing.assert_allclose((factor[0] @ factor[0].T).numpy(), np.cov(points.T), rtol=0.02, atol=0.1)
