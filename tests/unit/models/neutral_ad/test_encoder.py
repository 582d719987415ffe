from __future__ import annotations

import pytest
import torch

from benchmarks.models.reference import ReferenceEncoder
from streamad_models.neutral_ad.networks import Encoder, block_widths, depth_for_length, lengths_after


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


def _encoder(*, trains_in_bfloat16: bool) -> Encoder:
    generator = torch.Generator().manual_seed(3)
    return Encoder(
        3, 30, n_blocks=3, embedding_dim=7, base_width=8, generator=generator, trains_in_bfloat16=trains_in_bfloat16
    )


def test_bfloat16_is_for_the_training_alone() -> None:
    plain, half = _encoder(trains_in_bfloat16=False), _encoder(trains_in_bfloat16=True)
    x_LNC = torch.randn(30, 9, 3, generator=torch.Generator().manual_seed(4))
    assert torch.equal(half.eval()(x_LNC), plain.eval()(x_LNC))
    z_NZ = half.train()(x_LNC)
    assert z_NZ.dtype == torch.float32
    assert not torch.equal(z_NZ, plain(x_LNC))
    torch.testing.assert_close(z_NZ, plain(x_LNC), atol=0.01, rtol=0.05)
    z_NZ.square().sum().backward()
    plain.train()(x_LNC).square().sum().backward()
    for one, other in zip(half.parameters(), plain.parameters(), strict=True):
        assert one.dtype == one.grad.dtype == torch.float32  # type: ignore[union-attr]
        assert torch.nn.functional.cosine_similarity(one.grad.flatten(), other.grad.flatten(), dim=0) > 0.99  # type: ignore[union-attr]


def test_only_the_last_layer_has_a_bias() -> None:
    encoder = Encoder(3, 30, n_blocks=3, embedding_dim=7, base_width=8, generator=torch.Generator())
    assert [name for name, weight in encoder.named_parameters() if weight.ndim == 1] == ["bias"]
