from __future__ import annotations

import math

import pytest
import torch

from streamad_models.neutral_ad.model import contrastive_terms


def _written_out(z_VZ: torch.Tensor, temperature: float) -> torch.Tensor:
    """Equations 2 and 3 as printed, in float64, one window; times 1 / (K log K)."""
    z = z_VZ.double()
    k = len(z) - 1

    def h(i: int, j: int) -> torch.Tensor:
        return torch.exp(torch.dot(z[i], z[j]) / (z[i].norm() * z[j].norm()) / temperature)

    rivals = [sum((h(i, j) for j in range(1, k + 1) if j != i), torch.zeros(())) for i in range(1, k + 1)]
    terms = [-torch.log(h(i, 0) / (h(i, 0) + rivals[i - 1])) for i in range(1, k + 1)]
    return torch.stack(terms) / (k * math.log(k))


@pytest.mark.parametrize("k", [2, 3, 11])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_terms_are_the_equations_of_the_paper(k: int, temperature: float) -> None:
    z_BVZ = torch.randn(4, k + 1, 6, generator=torch.Generator().manual_seed(k))
    expected = torch.stack([_written_out(z_VZ, temperature) for z_VZ in z_BVZ])
    torch.testing.assert_close(contrastive_terms(z_BVZ, temperature).double(), expected, atol=1e-5, rtol=1e-4)


def test_views_like_the_original_and_unlike_each_other_score_lower_than_the_reverse() -> None:
    axes = torch.eye(4)
    apart = torch.stack([axes.sum(0), *(axes.sum(0) + 3 * axes)])[None]
    alike = torch.stack([axes[0], *(axes[1] + 0.1 * axes)])[None]
    assert contrastive_terms(apart, 0.1).sum() < 1 < contrastive_terms(alike, 0.1).sum()


def test_a_temperature_of_a_thousandth_does_not_overflow() -> None:
    z_BVZ = torch.randn(5, 12, 16, generator=torch.Generator().manual_seed(1)).requires_grad_()
    terms_BK = contrastive_terms(z_BVZ, 1e-3)
    terms_BK.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(terms_BK).all()
    assert terms_BK.max() > 5  # a cosine gap of order 1 divided by 0.001 and K log K
    assert z_BVZ.grad is not None
    assert torch.isfinite(z_BVZ.grad).all()


def test_embeddings_of_zero_length_give_finite_terms() -> None:
    assert torch.isfinite(contrastive_terms(torch.zeros(2, 4, 5), 0.1)).all()
