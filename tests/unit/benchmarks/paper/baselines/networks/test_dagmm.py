from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from torch import nn
from torch.nn import functional

from benchmarks.paper.baselines.networks.dagmm import (
    Dagmm,
    DagmmOptions,
    SequenceDecoder,
    energy,
    fit_mixture,
    matched_gaussian,
    tanh_layers,
)
from benchmarks.paper.baselines.networks.network import embed_shape
from streamad_models.neutral_ad.networks import Encoder
from tests.support.detectors import ROWS

N, K, Z = 400, 3, 4
Mixture: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


def test_a_table_takes_the_published_encoder_and_sequences_do_not() -> None:
    detector = Dagmm(DagmmOptions(table=True, table_widths=(10,), n_components=2))
    of_rows, of_sequences = (detector.build(*shape, torch.Generator()).encoder for shape in ((6, 1), (3, 24)))
    widths = [layer.out_features for layer in of_rows if isinstance(layer, nn.Linear)]  # type: ignore[operator, union-attr]
    assert widths == [10, detector.options.latent_dim]
    assert isinstance(of_sequences, Encoder)


def test_the_number_of_components_is_chosen_and_reported() -> None:
    options = DagmmOptions(epochs=5, batch_size=16)
    chosen = Dagmm(options).fit(ROWS.normal, seed=0, device="cpu").summary.settings["n_components"]
    assert chosen in (4, 8, 12)


def test_padding_has_no_part_in_the_error_of_reconstruction() -> None:
    network = Dagmm(DagmmOptions(n_components=4, scaling="none")).build(3, 24, torch.Generator().manual_seed(0))
    windows_BCL, lengths_B = torch.randn(5, 3, 24), torch.tensor([24, 20, 12, 5, 1])
    windows_BCL = windows_BCL.masked_fill(torch.arange(24) >= lengths_B[:, None, None], 0.0)
    error_B, points_BZ = network.compress(windows_BCL, lengths_B)
    back_BCL = network.decoder(network.encoder(embed_shape(windows_BCL)))
    inside_BCL = (torch.arange(24) < lengths_B[:, None, None]).expand_as(windows_BCL)
    for i in range(5):
        x, back = windows_BCL[i][inside_BCL[i]], back_BCL[i][inside_BCL[i]]
        torch.testing.assert_close(error_B[i], (x - back).square().sum())
        torch.testing.assert_close(points_BZ[i, -2], (x - back).norm() / x.norm())
        torch.testing.assert_close(points_BZ[i, -1], functional.cosine_similarity(x, back, dim=0))


# --- the decoder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 4, 7, 24, 50, 51, 206])
@pytest.mark.parametrize("n_blocks", [1, 3, 6])
def test_it_gives_windows_of_the_length_that_the_encoder_took(length: int, n_blocks: int) -> None:
    decoder = SequenceDecoder(3, length, n_blocks=n_blocks, embedding_dim=5, base_width=4)
    windows_BCL = decoder(torch.randn(2, 5))
    assert windows_BCL.shape == (2, 3, length)
    windows_BCL.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in decoder.parameters())


def test_tanh_stands_between_linear_layers_only() -> None:
    layers = tanh_layers([6, 12, 4, 2])
    assert [type(layer).__name__ for layer in layers] == ["Linear", "Tanh", "Linear", "Tanh", "Linear"]
    assert layers(torch.randn(3, 6)).shape == (3, 2)


# --- the mixture ------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixture() -> Mixture:
    """Weights [K], means [K, Z] and covariances [K, Z, Z], none of them axis-aligned."""
    rng = np.random.default_rng(0)
    roots = rng.normal(0, 0.7, (K, Z, Z))
    return rng.dirichlet([2.0] * K), rng.normal(0, 2, (K, Z)), roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(Z)


def test_the_energy_is_minus_the_log_density(mixture: Mixture) -> None:
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


def test_the_matched_gaussian_has_the_mixtures_mean_and_covariance(mixture: Mixture) -> None:
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
