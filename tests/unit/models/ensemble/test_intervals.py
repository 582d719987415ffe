from __future__ import annotations

import pytest
import torch

from streamad_models.ensemble.intervals import Intervals, Quantiles


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


@pytest.mark.parametrize(
    ("n_intervals", "n_quantiles", "places"), [(2, 4, [0, 10, 21, 31]), (4, 2, [0, 15]), (8, 1, [4])]
)
def test_the_features_of_a_level_are_quantiles_of_its_intervals(
    n_intervals: int, n_quantiles: int, places: list[int]
) -> None:
    courses = torch.randn(3, 2, 64, generator=torch.Generator().manual_seed(0))
    found = Quantiles(64, n_intervals, n_quantiles)(courses)
    expected = courses.reshape(3, 2, n_intervals, -1).sort(dim=3)[0][:, :, :, places]
    assert torch.equal(found, expected.reshape(3, -1))


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
