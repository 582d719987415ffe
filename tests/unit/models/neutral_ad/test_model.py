from __future__ import annotations

from typing import Literal

import pytest
import torch

from benchmarks.models.reference import ReferenceModel
from streamad_models.neutral_ad import NeutralADOptions
from streamad_models.neutral_ad.model import NeutralADModel
from tests.unit.models.small import PARAMETRISATIONS, model, windows


def _scaled_pair(parametrisation: str, length: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    fast = model(4, length, transformation=parametrisation)
    fast.mean_C.copy_(torch.tensor([1.0, -2.0, 0.0, 5.0]))
    fast.scale_C.copy_(torch.tensor([0.5, 2.0, 1.0, 3.0]))
    return fast, ReferenceModel(fast)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
@pytest.mark.parametrize("length", [2, 3, 5, 21])
def test_the_model_is_the_reference(parametrisation: str, length: int) -> None:
    fast, plain = (part.double() for part in _scaled_pair(parametrisation, length))
    plain.mean_C1, plain.scale_C1 = plain.mean_C1.double(), plain.scale_C1.double()
    x_BCL, lengths_B = windows(6, 4, length)
    lengths_B[::2] = length - 1
    with torch.no_grad():
        expected = plain(x_BCL.double(), lengths_B)
        torch.testing.assert_close(fast(x_BCL.double(), lengths_B), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_the_model_is_the_reference_within_1e_5_in_float32(parametrisation: str) -> None:
    fast, plain = _scaled_pair(parametrisation, 51)
    x_BCL, lengths_B = windows(6, 4, 51)
    with torch.no_grad():
        torch.testing.assert_close(fast(x_BCL, lengths_B), plain(x_BCL, lengths_B), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("dataset", "n_channels", "length"), [("epilepsy", 3, 206), ("natops", 24, 51)])
def test_terms_and_gradients_are_the_reference_s_at_a_published_size(
    dataset: Literal["epilepsy", "natops"], n_channels: int, length: int
) -> None:
    fast = NeutralADModel(n_channels, length, NeutralADOptions.from_preset(dataset), 0).double().eval()
    plain = ReferenceModel(fast).double()
    x_BCL, lengths_B = windows(2, n_channels, length)
    x_BCL = x_BCL.double().requires_grad_()
    found, expected = fast(x_BCL, lengths_B), plain(x_BCL, lengths_B)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    by_input = torch.autograd.grad(found.sum(), x_BCL, retain_graph=True)[0]
    torch.testing.assert_close(by_input, torch.autograd.grad(expected.sum(), x_BCL)[0], atol=1e-10, rtol=1e-8)
    generator = torch.Generator().manual_seed(1)
    weights = dict(fast.named_parameters())
    gradients = dict(zip(weights, torch.autograd.grad(found.sum(), [*weights.values()]), strict=True))
    for name, weight in weights.items():
        direction = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        step = 1e-6 * weight.detach().norm() / direction.norm()
        with torch.no_grad():
            weight.add_(step * direction)
            above = fast(x_BCL, lengths_B)
            weight.sub_(2 * step * direction)
            below = fast(x_BCL, lengths_B)
            weight.add_(step * direction)
        difference = float((above.sum() - below.sum()) / (2 * step))
        assert difference == pytest.approx(float((gradients[name] * direction).sum()), rel=1e-3, abs=1e-6), name


def test_what_lies_beyond_the_length_counts_for_nothing_after_scaling() -> None:
    net = model(3, 16)
    net.mean_C.fill_(50.0)
    x_BCL, _ = windows(2)
    lengths_B = torch.tensor([10, 16])
    garbage = x_BCL.clone()
    garbage[0, :, 10:] = float("nan")
    with torch.no_grad():
        assert torch.equal(net(garbage, lengths_B), net(x_BCL, lengths_B))
        prepared = net.prepare(x_BCL, lengths_B)
    assert (prepared[10:, 0] == 0).all()
    torch.testing.assert_close(prepared[:10, 0], x_BCL[0, :, :10].t() - 50.0)


def test_scaling_is_mean_and_factor_per_channel() -> None:
    net = model(2, 4)
    net.mean_C.copy_(torch.tensor([10.0, -1.0]))
    net.scale_C.copy_(torch.tensor([2.0, 0.5]))
    x_BCL = torch.tensor([[[10.0, 11.0, 12.0, 13.0], [-1.0, 0.0, 1.0, 3.0]]])
    expected = torch.tensor([[0.0, 0.0], [2.0, 0.5], [4.0, 1.0], [6.0, 2.0]])
    assert torch.equal(net.prepare(x_BCL, torch.tensor([4]))[:, 0], expected)


@pytest.mark.parametrize("value", [0.0, 1e30, -3e38])
def test_terms_are_finite_for_any_finite_window(value: float) -> None:
    net = model(3, 16)
    x_BCL, lengths_B = windows(2)
    x_BCL[0, 1] = value
    x_BCL[1] = value
    with torch.no_grad():
        assert torch.isfinite(net(x_BCL, lengths_B)).all()
