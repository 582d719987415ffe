from __future__ import annotations

import torch

from benchmarks.paper.baselines.networks.network import mean_over_steps, valid_steps


def test_a_step_at_the_length_is_no_longer_valid() -> None:
    assert valid_steps(3, torch.tensor([1, 3])).tolist() == [[True, True], [False, True], [False, True]]


def test_the_mean_is_over_valid_steps_whatever_lies_beyond() -> None:
    values_LB = torch.tensor([[1.0, 1.0], [torch.inf, 2.0], [torch.nan, 6.0]])
    assert mean_over_steps(values_LB, torch.tensor([1, 3])).tolist() == [1.0, 3.0]
