from __future__ import annotations

from itertools import product

import pytest
import torch

from streamad_models.ensemble.intervals import Intervals, Quantiles, sorted_runs


def test_a_window_has_the_features_of_the_same_course_at_another_length() -> None:
    module = Intervals(1)
    windows = torch.zeros(2, 1, 100)
    for row, length in enumerate((100, 60)):
        windows[row, 0, :length] = torch.sin(torch.linspace(0, 3, length))
    features = module(windows, torch.tensor([100, 60]))
    assert features.shape == (2, module.n_features)
    torch.testing.assert_close(features[0], features[1], atol=5e-3, rtol=0)


def test_the_first_features_are_the_quantiles_of_the_course() -> None:
    module = Intervals(1)
    course = torch.randperm(64, generator=torch.Generator().manual_seed(0)).float()
    features = module(course[None, None], torch.tensor([64]))
    torch.testing.assert_close(features[0, :8], torch.tensor([0.0, 9, 18, 27, 36, 45, 54, 63]), atol=1e-3, rtol=0)


PLACES = {
    64: ([0, 9, 18, 27, 36, 45, 54, 63], [0, 10, 21, 31], [0, 15], [4]),
    32: ([0, 4, 9, 13, 18, 22, 27, 31], [0, 5, 10, 15], [0, 7], [2]),
}


@pytest.mark.parametrize("n_points", PLACES)
@pytest.mark.parametrize("ties", [False, True])
def test_the_features_are_quantiles_of_the_intervals_of_each_level(n_points: int, *, ties: bool) -> None:
    """Of all courses of the first kind level by level, then of the second: the very numbers that a sort gives."""
    courses = torch.randn(3, 2, 5, n_points, generator=torch.Generator().manual_seed(0))
    courses = courses.round() if ties else courses
    expected = [
        courses[:, kind].reshape(3, 5, 1 << level, -1).sort(dim=3)[0][:, :, :, places].reshape(3, -1)
        for kind in range(2)
        for level, places in enumerate(PLACES[n_points])
    ]
    assert torch.equal(Quantiles(n_points)(courses), torch.cat(expected, dim=1))


def test_every_order_is_sorted() -> None:
    """A network of exchanges sorts all orders if it sorts all zeros and ones (Knuth, volume 3, 5.3.4)."""
    zeros_and_ones = torch.tensor(list(product([0.0, 1.0], repeat=16))).T
    assert torch.equal(sorted_runs(zeros_and_ones, 1, 16), zeros_and_ones.sort(dim=0)[0])


def test_a_level_moves_only_the_course_and_the_constant_part_of_the_spectrum() -> None:
    module = Intervals(1)
    windows = torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(0))
    moved = module(windows + 5.0, torch.tensor([64])) - module(windows, torch.tensor([64]))
    n_course = 8 + 2 * 4 + 4 * 2 + 8 * 1
    torch.testing.assert_close(moved[0, :n_course], torch.full((n_course,), 5.0), atol=1e-4, rtol=0)
    assert moved[0, n_course : 2 * n_course].abs().max() < 1e-3


def test_a_window_of_one_sample_is_a_constant_course() -> None:
    module = Intervals(2)
    features = module(torch.tensor([[[3.0] + [0.0] * 7, [1.0] + [0.0] * 7]]), torch.tensor([1]))
    assert features[0, :8].tolist() == [3.0] * 8
    assert torch.isfinite(features).all()
