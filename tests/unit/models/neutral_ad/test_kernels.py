from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from streamad_models.neutral_ad.networks import convolve3, instance_norm_relu


def _double(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def _conv1d(x_GLNI: torch.Tensor, weight_GTIO: torch.Tensor, stride: int, reflect: bool) -> torch.Tensor:
    outs = []
    for x_LNI, weight_TIO in zip(x_GLNI, weight_GTIO, strict=True):
        x_NIL = functional.pad(x_LNI.permute(1, 2, 0), (1, 1), mode="reflect" if reflect else "constant")
        outs.append(functional.conv1d(x_NIL, weight_TIO.permute(2, 1, 0), stride=stride).permute(2, 0, 1))
    return torch.stack(outs)


MODES = [(1, False), (1, True), (2, False)]
SINGLE_STEPS = [(1, 1, False), (1, 2, False)]  # they see zeros around them


@pytest.mark.parametrize(
    ("length", "stride", "reflect"), [*SINGLE_STEPS, *((n, *mode) for n in (2, 3, 4, 5, 8) for mode in MODES)]
)
def test_convolve3_is_conv1d_of_each_group(length: int, stride: int, reflect: bool) -> None:
    x, weight = _double(3, length, 4, 2), _double(3, 3, 2, 5)
    torch.testing.assert_close(convolve3(x, weight, stride, reflect), _conv1d(x, weight, stride, reflect))


@pytest.mark.parametrize(("stride", "reflect"), MODES)
@pytest.mark.parametrize("length", [2, 3, 5, 6])
def test_convolve3_gradients(stride: int, reflect: bool, length: int) -> None:
    x = _double(2, length, 3, 2).requires_grad_()
    weight = _double(2, 3, 2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: convolve3(a, b, stride, reflect), (x, weight))


def test_convolve3_gradients_of_a_shared_input() -> None:
    x = _double(1, 5, 3, 2).requires_grad_()
    weight = _double(2, 3, 2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: convolve3(a.expand(2, -1, -1, -1), b, 1, True), (x, weight))


def test_instance_norm_relu_is_torchs_instance_norm() -> None:
    h, skip = _double(2, 7, 3, 4), _double(2, 7, 3, 4)
    normed = functional.instance_norm(h.permute(0, 2, 3, 1).reshape(6, 4, 7)).reshape(2, 3, 4, 7).permute(0, 3, 1, 2)
    torch.testing.assert_close(instance_norm_relu(h, None), functional.relu(normed))
    torch.testing.assert_close(instance_norm_relu(h, skip), functional.relu(normed + skip))


def test_instance_norm_relu_of_a_constant_is_the_skip() -> None:
    h, skip = torch.full((1, 6, 2, 3), 7.25), torch.full((1, 6, 2, 3), 0.5)
    torch.testing.assert_close(instance_norm_relu(h, skip), skip)


@pytest.mark.parametrize("with_skip", [False, True])
def test_instance_norm_relu_gradients(with_skip: bool) -> None:
    h = _double(2, 5, 2, 3).requires_grad_()
    skip = _double(2, 5, 2, 3).mul(2).requires_grad_() if with_skip else None
    assert torch.autograd.gradcheck(instance_norm_relu, (h, skip))
