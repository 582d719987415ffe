from __future__ import annotations

import numpy as np
import pytest
import torch
from aeon.transformations.collection.convolution_based import MiniRocket as Published

from streamad_models.ensemble.minirocket import fit_minirocket
from tests.support.minirocket import of_published


@pytest.mark.parametrize(("n_channels", "length"), [(2, 30), (6, 51), (24, 100)])
def test_features_are_the_published_ones(n_channels: int, length: int) -> None:
    rng = np.random.default_rng(0)
    windows = rng.normal(size=(12, n_channels, length)).cumsum(axis=2).astype(np.float32)
    published = Published(n_kernels=1_000, random_state=0)
    expected = published.fit(windows).transform(windows)
    module, order = of_published(published, n_channels, length)
    found = module(torch.from_numpy(windows), torch.full((12,), length)).numpy()
    steps = np.abs(found - np.asarray(expected)[:, order]) * length  # a comparison that differs moves a share by 1 / L
    assert found.shape == (12, 924)
    assert steps.sum() <= 1e-4 * found.size * length


@pytest.mark.parametrize("length", [2, 8, 9, 10, 30, 200])
def test_fitted_features_lie_within_0_and_1_at_every_length(length: int) -> None:
    windows = torch.randn(5, 3, length, generator=torch.Generator().manual_seed(0))
    module = fit_minirocket(windows, 500, np.random.default_rng(0))
    features = module(windows, torch.full((5,), length))
    assert features.shape == (5, module.n_features) == (5, 420)
    assert features.min() >= 0
    assert features.max() <= 1
    assert features.std(dim=0).mean() > 0.01


def test_a_value_counts_in_part_up_to_a_width_above_a_bias() -> None:
    windows = torch.randn(7, 2, 30, generator=torch.Generator().manual_seed(0))
    module = fit_minirocket(windows, 840, np.random.default_rng(0)).dilations[0]
    values = torch.nn.functional.conv1d(windows, module.weight_padded_FCT, dilation=module.dilation, padding=4)
    module.bias_padded_FQ.copy_(values[0, :, :1])  # ties
    above = (values.unsqueeze(2) - module.bias_padded_FQ.unsqueeze(2)).clamp(0, 1)
    expected = above.mean(dim=3).flatten(1)
    torch.testing.assert_close(module(windows)[:, : expected.shape[1]], expected)
    assert 0 < (above * (1 - above) > 0).float().mean() < 0.02  # a ramp is a hundredth of the values' spread


def test_a_constant_level_changes_only_what_sees_the_padding() -> None:
    windows = torch.randn(4, 2, 40, generator=torch.Generator().manual_seed(0))
    module = fit_minirocket(windows, 84, np.random.default_rng(0))
    lengths = torch.full((4,), 40)
    same = (module(windows, lengths) - module(windows + 100.0, lengths)).abs() < 0.03
    assert same.float().mean() > 0.4


def test_rounding_decides_no_comparison_of_a_constant_stretch() -> None:
    """Sums over a stretch are 0 up to rounding, and so are the quantiles that they give as biases: not above."""
    rng = np.random.default_rng(0)
    windows = rng.normal(size=(20, 6, 80)).cumsum(axis=2).astype(np.float32)
    windows[:, :, 30:] = rng.normal(size=(20, 6, 1))  # each channel is held for most of the window
    module = fit_minirocket(torch.from_numpy(windows), 2_000, np.random.default_rng(0))
    lengths = torch.full((20,), 80)
    rounded = (windows * (1 + 1e-7 * rng.standard_normal(windows.shape))).astype(np.float32)
    steps = (module(torch.from_numpy(rounded), lengths) - module(torch.from_numpy(windows), lengths)).abs() * 80
    assert steps.max() < 0.01  # of the 80 places a feature counts
