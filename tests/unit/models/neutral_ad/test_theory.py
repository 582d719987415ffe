"""The paper's propositions 1 to 3 and the appendix's worked numbers, computed.

An "adequate" encoder is one that can put every view of a finite set of windows anywhere: so embeddings are free here.
Legend: B windows, K transformations, V = K + 1 views (the original first), Z embedding dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from benchmarks.paper.baselines.networks.other_losses import prediction_terms, simclr_terms
from streamad_models.neutral_ad.model import contrastive_terms
from tests.unit.models.small import PARAMETRISATIONS, model, windows


def contrastive_loss(z_VZ: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """The DCL of one window as printed: the product's terms come divided by K log K."""
    k = len(z_VZ) - 1
    return contrastive_terms(z_VZ[None], temperature).sum() * (k * math.log(k))


def constant_edge_case(k: int, c: float) -> torch.Tensor:
    """f(T_k(x)) = C c_k with c_k one-hot, for any window: [K, K]."""
    return c * torch.eye(k, dtype=torch.float64)


def descend(loss: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, *, steps: int = 200) -> torch.Tensor:
    """Return where Adam gets from ``start``: unit vectors of lower loss."""
    z = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(z).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return normalize(z.detach(), dim=-1)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- proposition 1: the constant edge case tends to the minimum of L_P ----------------------------------------------


@pytest.mark.parametrize("k", [2, 4, 12])
@pytest.mark.parametrize("c", [0.5, 5.0, 20.0])
def test_l_p_of_the_constant_edge_case_is_the_closed_form_of_the_proof(k: int, c: float) -> None:
    loss = prediction_terms(constant_edge_case(k, c)[None]).sum()
    assert loss.item() == pytest.approx(-k * c + k * math.log(math.exp(c) + k - 1), abs=1e-9)


def test_l_p_of_the_constant_edge_case_vanishes_as_c_grows() -> None:
    losses = [prediction_terms(constant_edge_case(4, c)[None]).sum().item() for c in (0.0, 1.0, 5.0, 10.0, 30.0)]
    assert losses[0] == pytest.approx(4 * math.log(4))
    assert losses == sorted(losses, reverse=True)
    assert 0 < losses[-1] < 1e-11


# --- proposition 2: the identity, with an adequate encoder, minimises L_C -------------------------------------------


def simclr_loss(first_NZ: torch.Tensor, second_NZ: torch.Tensor, temperature: float = 0.5) -> float:
    return simclr_terms(first_NZ, second_NZ, temperature).sum().item()


def simplex(n: int) -> torch.Tensor:
    """N unit vectors [N, N], each pair at cosine -1 / (N - 1): as far apart as N vectors can be."""
    return normalize(torch.eye(n, dtype=torch.float64) - 1 / n, dim=1)


def least_simclr_loss(n: int, temperature: float = 0.5) -> float:
    """L_C of N windows whose two views agree and which lie as far apart as they can."""
    alike, apart = 1 / temperature, -1 / (n - 1) / temperature
    return 2 * n * (math.log(math.exp(alike) + 2 * (n - 1) * math.exp(apart)) - alike)


def test_l_c_is_equation_6_written_out() -> None:
    first, second = normalize(normal(4, 3), dim=1), normalize(normal(4, 3, seed=1), dim=1)

    def one_way(a: torch.Tensor, b: torch.Tensor, i: int) -> float:
        def h(x: torch.Tensor, y: torch.Tensor) -> float:
            return math.exp(torch.dot(x, y).item() / 0.5)

        within = sum(h(a[i], a[j]) for j in range(4) if j != i)
        return -math.log(h(a[i], b[i])) + math.log(sum(h(a[i], b[j]) for j in range(4)) + within)

    expected = [one_way(first, second, i) + one_way(second, first, i) for i in range(4)]
    np.testing.assert_allclose(simclr_terms(3 * first, second, 0.5).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [3, 5])
def test_no_transformations_get_below_what_the_identity_reaches(n: int) -> None:
    identity = simclr_loss(simplex(n), simplex(n))
    assert identity == pytest.approx(least_simclr_loss(n))
    for seed in range(3):
        found = descend(lambda z: simclr_terms(z[0], z[1], 0.5).sum(), normal(2, n, n, seed=seed))
        reached = simclr_loss(found[0], found[1])
        assert reached == pytest.approx(identity, abs=1e-4)
        assert reached >= identity - 1e-9


# --- proposition 3, part 1: the constant edge case does not minimise the DCL ----------------------------------------


def gradient_on_sphere(z_VZ: torch.Tensor) -> float:
    """The norm of the DCL's gradient with respect to the directions of all embeddings."""
    unit_VZ = normalize(z_VZ, dim=1).requires_grad_()
    (gradient,) = torch.autograd.grad(contrastive_loss(unit_VZ), unit_VZ)
    return gradient.norm().item()


@pytest.mark.parametrize("k", [2, 3, 5, 6, 7, 12])  # the proof's condition would hold at K = 5.83: 6 comes closest
@pytest.mark.parametrize("spare", [0, 2])
def test_the_dcl_s_gradient_is_not_zero_at_the_constant_edge_case(k: int, spare: int) -> None:
    constant_KZ = torch.nn.functional.pad(constant_edge_case(k, 7.0), (0, spare))
    symmetric = torch.nn.functional.pad(torch.ones(1, k, dtype=torch.float64), (0, spare))
    for original in (symmetric, -symmetric, *(normal(1, k + spare, seed=seed) for seed in range(20))):
        assert gradient_on_sphere(torch.cat([original, constant_KZ])) > 0.03


@pytest.mark.parametrize("c", [1.0, 1e3, 1e6])
def test_the_dcl_does_not_tend_to_its_minimum_as_c_grows(c: float) -> None:
    symmetric = torch.ones(1, 5, dtype=torch.float64)
    losses = [contrastive_loss(torch.cat([symmetric, constant_edge_case(5, size)])).item() for size in (1.0, c)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-12)


@pytest.mark.parametrize("k", [3, 12])
def test_from_the_constant_edge_case_the_dcl_falls_further(k: int) -> None:
    start = torch.cat([torch.ones(1, k, dtype=torch.float64), constant_edge_case(k, 1.0)])
    assert contrastive_loss(descend(contrastive_loss, start)) < contrastive_loss(start) - 0.1


# --- proposition 3, part 2: the identity edge case does not minimise the DCL ----------------------------------------


@pytest.mark.parametrize("k", [2, 4, 11])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_dcl_of_the_identity_is_k_log_k(k: int, temperature: float) -> None:
    same = normal(1, 8).expand(k + 1, -1)
    assert contrastive_loss(same, temperature).item() == pytest.approx(k * math.log(k))


@pytest.mark.parametrize("transformation", PARAMETRISATIONS)
def test_the_product_s_score_of_the_identity_is_one(transformation: str) -> None:
    """Masks of zero make the residual form the identity; the others then give one view for all k, halved or zero."""
    untrained = model(transformation=transformation)
    with torch.no_grad():
        untrained.transformations.outwards.zero_()
        scores = untrained(*windows(5)).sum(dim=1)
    if transformation == "residual":
        torch.testing.assert_close(scores, torch.ones(5), atol=1e-5, rtol=0)
    else:
        assert (scores >= 1 - 1e-5).all()


def test_the_worked_numbers_of_the_appendix() -> None:
    """K = 2, tau = 1: 1.386 at the identity; 0.627 where z_1 and z_2 are opposite, and orthogonal to z."""
    original, one = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    identity = contrastive_loss(torch.stack([original, original, original]))
    counterexample = contrastive_loss(torch.stack([original, one, -one]))
    assert identity.item() == pytest.approx(-2 * math.log(0.5), abs=1e-6)
    assert round(identity.item(), 3) == 1.386
    assert counterexample.item() == pytest.approx(-2 * math.log(1 / (1 + math.exp(-1))), abs=1e-6)
    assert round(counterexample.item(), 3) == 0.627


@pytest.mark.parametrize("k", [2, 4, 11])
def test_with_free_embeddings_the_dcl_falls_below_the_identity(k: int) -> None:
    nearly_identity = 1 + 1e-3 * normal(k + 1, k + 1)
    reached = contrastive_loss(descend(contrastive_loss, nearly_identity))
    assert reached.item() < 0.9 * k * math.log(k)
