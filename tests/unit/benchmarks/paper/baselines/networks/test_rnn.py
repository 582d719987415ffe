from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from benchmarks.paper.baselines.networks.rnn import Rnn, RnnNetwork, RnnOptions
from tests.support.detectors import SEQUENCES
from tests.unit.models.small import windows

SMALL = RnnOptions(hidden_dim=8, epochs=6)


def network(n_channels: int = 3, length: int = 16, options: RnnOptions = SMALL) -> RnnNetwork:
    torch.manual_seed(0)
    return RnnNetwork(n_channels, length, options).eval()


def test_the_score_is_the_negative_log_likelihood_per_valid_step() -> None:
    net = network()
    x_BCL, _ = windows(2)
    lengths_B = torch.tensor([16, 5])
    with torch.no_grad():
        hidden_LBH, _ = net.gru(torch.cat([torch.zeros(1, 2, 3), x_BCL.permute(2, 0, 1)[:-1]]))
        mean_LBC, log_variance_LBC = net.head(hidden_LBH).split(3, dim=2)
        density = Normal(mean_LBC, torch.exp(0.5 * log_variance_LBC)).log_prob(x_BCL.permute(2, 0, 1)).sum(dim=2)
        expected = [-density[:16, 0].mean(), -density[:5, 1].mean()]
        torch.testing.assert_close(net(x_BCL, lengths_B)[:, 0], torch.stack(expected))


def test_a_step_is_predicted_from_those_before_it_alone() -> None:
    """What the later steps add to the likelihood changes with them, what the earlier ones add does not."""
    net = network()
    x_BCL, lengths_B = windows(1)
    other_BCL = x_BCL.clone()
    other_BCL[:, :, 10:] += 1.0
    with torch.no_grad():
        assert torch.equal(net(x_BCL, torch.tensor([10])), net(other_BCL, torch.tensor([10])))
        assert not torch.equal(net(x_BCL, lengths_B), net(other_BCL, lengths_B))


def test_no_step_is_more_likely_than_the_bound_of_the_variance_allows() -> None:
    net = network(options=RnnOptions(hidden_dim=8, largest_log_variance=2.0))
    with torch.no_grad():
        last = net.head[-1]
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0] * 3 + [-50.0] * 3))
    constant_BCL = torch.ones(1, 3, 16)
    least = 3 * 0.5 * (np.log(2 * np.pi) - 2.0)
    assert net(constant_BCL, torch.tensor([16])).item() == pytest.approx(least)
    assert net(constant_BCL + 3.0, torch.tensor([16])).item() == pytest.approx(least + 3 * 0.5 * 9 * np.exp(2.0))


def test_training_finds_how_far_the_values_spread() -> None:
    """White noise of deviation s has the entropy log s + 1.419 per value, which no model can go below."""
    values = np.random.default_rng(0).normal(0, 0.5, (200, 1, 12)).astype(np.float32)
    data = SEQUENCES.normal.take([0] * 200)
    noise = type(data)(values, np.full(200, 12), data.ids)
    fitted = Rnn(RnnOptions(hidden_dim=4, epochs=40, learning_rate=0.02)).fit(noise, seed=0, device="cpu")
    assert fitted.summary.best_loss == pytest.approx(np.log(0.5) + 1.419, abs=0.05)
