from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.paper.baselines.networks.drocc import DroccNetwork, DroccOptions, onto_shell
from tests.unit.models.small import windows


def options(**changes: Any) -> DroccOptions:
    small = {"embedding_dim": 8, "base_width": 8, "tabular_width": 16, "epochs": 8, "learning_rate": 1e-2}
    return DroccOptions.model_validate({**small, "ascent_steps": 3, **changes})


def network(n_channels: int = 3, length: int = 16, **changes: Any) -> DroccNetwork:
    return DroccNetwork(n_channels, length, options(**changes), torch.Generator().manual_seed(0))


def test_offsets_are_brought_onto_the_shell_and_left_there() -> None:
    offset_BCL = torch.tensor([0.1, 3.0, 50.0])[:, None, None].expand(3, 1, 4) / 2  # norms 0.1, 3 and 50
    norms = onto_shell(offset_BCL, torch.full((3,), 2.0), 2.0).flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.tensor([2.0, 3.0, 4.0]))


def test_adversarial_windows_lie_in_the_shell_of_their_window_and_keep_its_padding() -> None:
    net = network()
    x_BCL, _ = windows(8)
    lengths_B = torch.arange(9, 17)
    x_BCL = net.prepare(x_BCL, lengths_B)
    found = net.attack(x_BCL, lengths_B, torch.Generator().manual_seed(1))
    distance_B = (found - x_BCL).flatten(1).norm(dim=1)
    radius_B = (3 * lengths_B).sqrt() / 2  # half the root of the number of valid values, as published
    assert (distance_B >= 0.999 * radius_B).all()
    assert (distance_B <= 2.001 * radius_B).all()
    assert (found[torch.arange(16) >= lengths_B[:, None, None].expand(8, 3, 1)] == 0).all()


def test_the_longer_the_ascent_the_more_normal_its_windows_look() -> None:
    net = network()
    x_BCL, lengths_B = windows(32)
    means = []
    for steps in (1, 5, 20):
        net.options = options(ascent_steps=steps)
        found = net.attack(x_BCL, lengths_B, torch.Generator().manual_seed(1))
        with torch.no_grad():
            means.append(net.logits(found).mean().item())
    assert means == sorted(means)
    assert means[-1] > means[0]


def test_adversarial_windows_count_only_after_the_warm_up() -> None:
    net = network(warm_up_epochs=3)
    x_BCL, lengths_B = windows(8)
    losses = []
    for epoch in (3, 4):
        net.begin_epoch(epoch)
        losses.append(net.loss(x_BCL, lengths_B, torch.Generator().manual_seed(1)).item())
    with torch.no_grad():
        alone = torch.nn.functional.softplus(net(x_BCL, lengths_B)).mean().item()
    assert losses[0] == pytest.approx(alone, rel=1e-5)
    assert losses[1] > losses[0] + 0.3


def test_adversarial_rows_leave_the_statistics_of_a_batch_norm_alone() -> None:
    net = network(6, 1, tabular_norm=True, warm_up_epochs=0)
    x_BCL, lengths_B = windows(16, 6, 1)
    net.train()
    net.begin_epoch(1)
    net.loss(x_BCL, lengths_B, torch.Generator().manual_seed(1))
    counts = {int(value) for name, value in net.state_dict().items() if name.endswith("num_batches_tracked")}
    assert counts == {1}
    assert net.encoder.training
