from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from benchmarks.paper.baselines.networks.other_losses import (
    LearnableViewsOptions,
    SimClr,
    SimClrNetwork,
    SimClrOptions,
    TransformationPrediction,
    prediction_terms,
    simclr_reference_terms,
    simclr_terms,
)
from tests.support.detectors import SEQUENCES
from tests.unit.models.small import windows

VIEWS = LearnableViewsOptions(base_width=8, n_transformations=4, epochs=1)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_prediction_terms_are_the_surprise_at_each_view_s_own_number() -> None:
    logits_BKK = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]])
    expected = [[math.log(1 + math.exp(-2)), math.log(2)]]
    torch.testing.assert_close(prediction_terms(logits_BKK), torch.tensor(expected))


@pytest.mark.parametrize("margin", [0.0, 20.0, 60.0, -60.0])
def test_prediction_terms_separate_windows_of_which_the_classifier_is_sure(margin: float) -> None:
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


# --- transformation prediction ----------------------------------------------------------------------------------------


def test_terms_are_the_prediction_terms_of_the_classifier_s_logits() -> None:
    net = TransformationPrediction(VIEWS).build(3, 16, torch.Generator().manual_seed(0))
    x_BCL, lengths_B = windows(5)
    with torch.no_grad():
        views_KLBC = net.transformations(x_BCL.permute(2, 0, 1))
        logits_BKK = torch.stack([net.encoder(view_LBC) for view_LBC in views_KLBC], dim=1)
        torch.testing.assert_close(net(x_BCL, lengths_B), prediction_terms(logits_BKK))


def test_the_transformations_learn_with_the_classifier() -> None:
    detector = TransformationPrediction(VIEWS)
    fitted = detector.fit(SEQUENCES.normal, seed=0, device="cpu")
    untrained = detector.build(3, 24, torch.Generator().manual_seed(0))
    assert not torch.equal(fitted.model.transformations.outwards, untrained.transformations.outwards)


# --- SimCLR -----------------------------------------------------------------------------------------------------------


def simclr_options(**changes: Any) -> SimClrOptions:
    small = {"embedding_dim": 8, "base_width": 8, "n_transformations": 4, "reference_size": 16}
    return SimClrOptions.model_validate({**small, **changes})


def network(**changes: Any) -> SimClrNetwork:
    return SimClrNetwork(3, 16, simclr_options(**changes), torch.Generator().manual_seed(0))


def test_an_anomaly_far_from_all_training_windows_pays_less_for_its_negatives() -> None:
    """Two windows whose views agree as well: the one that is like the reference has the higher loss."""
    axes = torch.eye(4)
    reference_RKZ = axes[0].expand(8, 2, 4)
    like, unlike = (axes[i].expand(1, 2, 4) for i in (0, 1))
    like_score, unlike_score = (simclr_reference_terms(z, reference_RKZ, 0.1).sum() for z in (like, unlike))
    assert unlike_score < 0.01
    assert like_score > 2


def test_each_step_compares_two_transformations_drawn_for_it() -> None:
    net = network()
    x_BCL, lengths_B = windows(6)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        found = {round(net.loss(x_BCL, lengths_B, generator).item(), 4) for _ in range(60)}
        z_BKZ = net.embed(x_BCL, lengths_B)
    pairs = [(k, j) for k in range(4) for j in range(k)]
    losses = {round(simclr_terms(z_BKZ[:, k], z_BKZ[:, j], 0.1).mean().item(), 4) for k, j in pairs}
    assert found == losses


def test_the_reference_is_drawn_from_the_training_windows_by_the_seed() -> None:
    x_BCL, lengths_B = windows(40)
    net, same = network(), network()
    with torch.no_grad():
        for one in (net, same):
            one.after_training(x_BCL, lengths_B)
        z_NKZ = net.embed(x_BCL, lengths_B)
    assert net.reference_RKZ.shape == (16, 4, 8)
    assert torch.equal(net.reference_RKZ, same.reference_RKZ)
    distances_RN = (net.reference_RKZ[:, None] - z_NKZ).flatten(2).norm(dim=2)
    assert (distances_RN.min(dim=1).values < 1e-5).all()
    assert distances_RN.argmin(dim=1).unique().numel() == 16


def test_few_training_windows_are_all_in_the_reference() -> None:
    fitted = SimClr(simclr_options(reference_size=500, epochs=1)).fit(SEQUENCES.normal, seed=0, device="cpu")
    assert len(fitted.model.reference_RKZ) == len(SEQUENCES.normal)
