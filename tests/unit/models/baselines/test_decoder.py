from __future__ import annotations

import pytest
import torch

from streamad_models.baselines.networks.dagmm import SequenceDecoder, tanh_layers


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
