from __future__ import annotations

import pytest
import torch

from benchmarks.paper.baselines.networks.lstm_ed import (
    LstmEncoderDecoder,
    LstmEncoderDecoderOptions,
    LstmNetwork,
    whitening,
)
from tests.support.detectors import SEQUENCES
from tests.unit.models.small import windows

SMALL = LstmEncoderDecoderOptions(hidden_dim=8, epochs=6)


def network(n_channels: int = 3, length: int = 16) -> LstmNetwork:
    torch.manual_seed(0)
    return LstmNetwork(n_channels, length, 8).eval()


def test_the_decoder_is_to_write_the_valid_steps_from_the_last_to_the_first() -> None:
    net = network(1, 4)
    x_BCL = torch.tensor([[[1.0, 2.0, 3.0, 4.0]], [[5.0, 6.0, 9.0, 9.0]]])
    target_LB = net.target(x_BCL, torch.tensor([4, 2]))[:, :, 0]
    assert target_LB[:, 0].tolist() == [4.0, 3.0, 2.0, 1.0]
    assert target_LB[:2, 1].tolist() == [6.0, 5.0]


def test_the_decoder_starts_from_the_state_after_the_last_valid_step() -> None:
    net = network()
    x_BCL, _ = windows(2)
    with torch.no_grad():
        hidden_1BH, cell_1BH = net.state(x_BCL, torch.tensor([16, 5]))
        _, (expected_H, expected_cell_H) = net.encoder(x_BCL[1].t()[:5])
    torch.testing.assert_close(hidden_1BH[:, 1], expected_H)
    torch.testing.assert_close(cell_1BH[:, 1], expected_cell_H)


def test_the_decoder_reads_the_truth_in_training_and_itself_when_scoring() -> None:
    """Both write the same first step; from then on only a decoder that is right would read the same."""
    net = network()
    x_BCL, lengths_B = windows(4)
    with torch.no_grad():
        written_LBC, target_LBC = net.written(x_BCL, lengths_B), net.target(x_BCL, lengths_B)
        state = net.state(x_BCL, lengths_B)
        own_LBH, _ = net.decoder(written_LBC[:-1], state)
        true_LBH, _ = net.decoder(target_LBC[:-1], state)
        torch.testing.assert_close(written_LBC[1:], net.head(own_LBH))
        forced_LBC = torch.cat([written_LBC[:1], net.head(true_LBH)])
        expected = (target_LBC - forced_LBC).square().sum(dim=2).mean()
        torch.testing.assert_close(net.loss(x_BCL, lengths_B, torch.Generator()), expected)


def test_the_training_windows_errors_have_the_mean_distance_of_their_own_covariance() -> None:
    """The mean squared Mahalanobis distance of a sample from its own mean is the number of channels."""
    fitted = LstmEncoderDecoder(SMALL).fit(SEQUENCES.normal, seed=0, device="cpu")
    scores = fitted.score(SEQUENCES.normal.values, SEQUENCES.normal.lengths)[:, 0]
    lengths = SEQUENCES.normal.lengths
    assert (scores * lengths).sum() / lengths.sum() == pytest.approx(3.0, rel=1e-3)


def test_whitened_errors_are_uncorrelated_with_variance_one() -> None:
    generator = torch.Generator().manual_seed(0)
    error_NC = torch.randn(500, 3, generator=generator, dtype=torch.float64) @ torch.tensor(
        [[2.0, 1.0, 0.0], [0.0, 0.1, 0.3], [0.0, 0.0, 1.0]], dtype=torch.float64
    )
    covariance_CC = torch.cov((error_NC @ whitening(error_NC)).t(), correction=0)
    torch.testing.assert_close(covariance_CC, torch.eye(3, dtype=torch.float64), atol=1e-3, rtol=0)


def test_errors_that_never_change_can_be_whitened() -> None:
    assert torch.isfinite(whitening(torch.ones(10, 2, dtype=torch.float64))).all()
