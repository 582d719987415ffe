from __future__ import annotations

import math

import pytest
import torch

from streamad_models.baselines.networks.other_losses import (
    prediction_terms,
    simclr_reference_terms,
    simclr_terms,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_prediction_terms_are_the_surprise_at_each_view_s_own_number() -> None:
    logits_BKK = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]])
    expected = [[math.log(1 + math.exp(-2)), math.log(2)]]
    torch.testing.assert_close(prediction_terms(logits_BKK), torch.tensor(expected))


@pytest.mark.parametrize("margin", [0.0, 20.0, 60.0, -60.0])
def test_prediction_terms_tell_windows_apart_of_which_the_classifier_is_sure(margin: float) -> None:
    logits_BKK = normal(200, 5, 5) + margin * torch.eye(5, dtype=torch.float64)
    others_BK = logits_BKK.exp().masked_fill(torch.eye(5, dtype=torch.bool), 0.0).sum(2)
    exact_BK = (others_BK / logits_BKK.diagonal(dim1=1, dim2=2).exp()).log1p()
    terms_BK = prediction_terms(logits_BKK.float())
    torch.testing.assert_close(terms_BK.double(), exact_BK, rtol=2e-5, atol=0.0)
    assert terms_BK.sum(1).unique().numel() == 200


def test_prediction_terms_and_their_gradients_are_finite_far_beyond_what_a_float_can_raise_e_to() -> None:
    logits_BKK = (1e4 * normal(4, 3, 3)).float().requires_grad_()
    terms_BK = prediction_terms(logits_BKK)
    (gradient,) = torch.autograd.grad(terms_BK.sum(), logits_BKK)
    assert torch.isfinite(terms_BK).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_reference_score_is_the_window_s_loss_in_a_minibatch_with_the_reference(temperature: float) -> None:
    z_BKZ, reference_RKZ = normal(3, 4, 6), normal(5, 4, 6, seed=1)
    pairs = [(k, j) for k in range(4) for j in range(4) if k != j]
    for z_KZ, terms_K in zip(z_BKZ, simclr_reference_terms(z_BKZ, reference_RKZ, temperature), strict=True):
        batch = torch.cat([z_KZ[None], reference_RKZ])
        losses = [simclr_terms(batch[:, k], batch[:, j], temperature)[0] for k, j in pairs]
        torch.testing.assert_close(terms_K.sum(), torch.stack(losses).mean())


def test_a_window_s_reference_score_is_that_of_its_own_row() -> None:
    z_BKZ, reference_RKZ = normal(6, 3, 4), normal(5, 3, 4, seed=1)
    together = simclr_reference_terms(z_BKZ, reference_RKZ, 0.1)
    torch.testing.assert_close(together[2:3], simclr_reference_terms(z_BKZ[2:3], reference_RKZ, 0.1))


def test_small_temperatures_overflow_nowhere() -> None:
    z_BKZ = normal(4, 3, 5).float().requires_grad_()
    terms = simclr_reference_terms(z_BKZ, normal(8, 3, 5, seed=1).float(), 1e-3)
    losses = simclr_terms(z_BKZ[:, 0], z_BKZ[:, 1], 1e-3)
    (terms.sum() + losses.sum()).backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(terms).all()
    assert torch.isfinite(losses).all()
    assert z_BKZ.grad is not None
    assert torch.isfinite(z_BKZ.grad).all()
