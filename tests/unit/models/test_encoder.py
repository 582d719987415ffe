from __future__ import annotations

import pytest
import torch

from streamad_models.neutral_ad.encoder import Encoder, block_widths, depth_for_length, lengths_after
from streamad_models.neutral_ad.reference import ReferenceEncoder


@pytest.mark.parametrize(("length", "n_blocks"), [(50, 4), (51, 4), (182, 6), (206, 6), (30, 3)])
def test_depth_reproduces_the_published_settings(length: int, n_blocks: int) -> None:
    assert depth_for_length(length) == n_blocks


@pytest.mark.parametrize("length", [*range(1, 70), 1000, 100_000])
def test_depth_leaves_between_one_and_four_steps_and_not_more_blocks_than_needed(length: int) -> None:
    n_blocks = depth_for_length(length)
    assert 1 <= lengths_after(length, n_blocks) <= 4
    assert n_blocks == 0 or lengths_after(length, n_blocks - 1) > 4


def test_widths_double_and_stop_at_1024() -> None:
    assert block_widths(0) == [32]
    assert block_widths(6) == [32, 32, 64, 128, 256, 512, 1024]
    assert block_widths(9)[-3:] == [1024, 1024, 1024]


@pytest.mark.parametrize(("length", "n_blocks"), [(2, 0), (3, 2), (5, 1), (30, 3), (51, 4), (6, 5)])
def test_encoder_equals_standard_layers(length: int, n_blocks: int) -> None:
    generator = torch.Generator().manual_seed(length)
    encoder = Encoder(3, length, n_blocks=n_blocks, embedding_dim=7, base_width=8, generator=generator)
    x_NCL = torch.randn(9, 3, length, generator=generator)
    with torch.no_grad():
        expected = ReferenceEncoder(encoder)(x_NCL)
        assert expected.shape == (9, 7)
        torch.testing.assert_close(encoder(x_NCL.permute(2, 0, 1)), expected, atol=1e-5, rtol=1e-4)


def test_only_the_last_layer_has_a_bias() -> None:
    encoder = Encoder(3, 30, n_blocks=3, embedding_dim=7, base_width=8, generator=torch.Generator())
    assert [name for name, weight in encoder.named_parameters() if weight.ndim == 1] == ["bias"]
