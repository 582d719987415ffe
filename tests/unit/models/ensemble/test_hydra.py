from __future__ import annotations

import numpy as np
import pytest
import torch
from aeon.transformations.collection.convolution_based import HydraTransformer

from streamad_models.ensemble.hydra import Competition, Hydra, fit_hydra


@pytest.mark.parametrize(("n_channels", "length"), [(6, 30), (24, 100)])
def test_features_are_the_published_ones(n_channels: int, length: int) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    windows = np.random.default_rng(0).normal(size=(10, n_channels, length)).cumsum(axis=2).astype(np.float32)
    published = HydraTransformer(n_groups=16, random_state=0).fit(windows)
    expected = np.asarray(published.transform(windows))
    torch.set_rng_state(state)
    torch.set_num_threads(threads)
    inner, competitions = published._hydra, []  # noqa: SLF001 - the published draws are kept nowhere else
    for index, dilation in enumerate(inner.dilations.tolist()):
        for sees_change in (False, True):
            drawn = inner.idx[index][int(sees_change)]
            channels = torch.zeros(8, n_channels).scatter_add_(1, drawn, torch.ones(drawn.shape))
            weight = inner.W[index, int(sees_change)]
            competitions.append(Competition(dilation, weight, channels, length, sees_change))
            competitions[-1].least_share, competitions[-1].width = 0.0, 4e-6  # the paper has one winner
    found = Hydra(competitions)(torch.from_numpy(windows), torch.full((10,), length)).numpy()
    differs = np.abs(found - np.sqrt(np.maximum(expected, 0) + 1e-4)) > 1e-3
    assert found.shape == expected.shape
    assert differs.mean() <= 1e-4


def test_what_lies_beyond_a_window_s_end_does_not_compete() -> None:
    whole = torch.randn(3, 2, 40, generator=torch.Generator().manual_seed(1))
    module = fit_hydra(whole, 8, torch.Generator().manual_seed(0))
    whole[:, :, 25:] = 0.0
    features = module(whole, torch.full((3,), 25)).reshape(3, -1)
    lost = (features.square() - 1e-4).reshape(3, len(module.competitions), 2, 4, 8)[:, :, 1].sum(dim=3)
    ends = torch.tensor([25 - int(each.sees_change) for each in module.competitions])
    torch.testing.assert_close(lost, ends[None, :, None].expand_as(lost).float())


@pytest.mark.parametrize("length", [2, 8, 9, 200])
def test_features_are_finite_at_every_length(length: int) -> None:
    windows = torch.randn(2, 3, length, generator=torch.Generator().manual_seed(1))
    module = fit_hydra(windows, 4, torch.Generator().manual_seed(0))
    features = module(windows, torch.tensor([length, 1]))
    assert features.shape == (2, module.n_features)
    assert torch.isfinite(features).all()


def test_over_a_held_stretch_all_kernels_share_and_rounding_chooses_none() -> None:
    held = torch.full((1, 2, 60), 7.3)
    held[:, :, :10] = torch.randn(1, 2, 10, generator=torch.Generator().manual_seed(1))
    module = fit_hydra(held, 8, torch.Generator().manual_seed(0))
    length = torch.tensor([60])
    rounded = held * (1 + 2e-7 * torch.randn(held.shape, generator=torch.Generator().manual_seed(2)))
    torch.testing.assert_close(module(rounded, length), module(held, length), atol=1e-3, rtol=1e-3)
    lost = module(held, length).square().reshape(len(module.competitions), 2, 4, 8)[:, 1]
    assert (lost.amin(dim=2) > 1.0).all()  # of 50 held places each of eight kernels has about six
