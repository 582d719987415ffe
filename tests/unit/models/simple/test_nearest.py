from __future__ import annotations

import numpy as np
import pytest
import torch
from aeon.transformations.collection.convolution_based import MiniRocket as Published

from benchmarks.paper.baselines.estimators.minirocket import MiniRocketNearest as Peer
from benchmarks.paper.baselines.estimators.minirocket import MiniRocketOptions as PeerOptions
from streamad.types import WindowSet
from streamad_models.simple import Nearest
from streamad_models.simple.nearest import NearestFeatures, NearestPoint
from tests.support.minirocket import of_published


def test_the_nearest_point_counts_with_its_root_mean_square_difference() -> None:
    module = NearestPoint(torch.tensor([[0.0, 0.0], [3.0, 4.0], [10.0, 0.0]]))
    found = module(torch.tensor([[0.0, 0.0], [3.0, 5.0], [20.0, 0.0]]))[:, 0]
    np.testing.assert_allclose(found, np.array([0.0, 1.0, 10.0]) / np.sqrt(2), atol=1e-6)
    own = module.without_itself()[:, 0]
    np.testing.assert_allclose(own, np.array([5.0, 5.0, np.sqrt(65)]) / np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize("n", [8, 200])
def test_distances_are_exact_also_far_from_zero(n: int) -> None:
    points = np.random.default_rng(0).normal(1000, 1, (n, 30)).astype(np.float32)
    new = points[:5] + np.float32(0.01)
    apart = points[:, None].astype(np.float64) - points[None]
    expected = np.sqrt((apart**2).mean(axis=2) + np.diag(np.full(n, np.inf))).min(axis=1)
    module = NearestPoint(torch.from_numpy(points))
    np.testing.assert_allclose(module(torch.from_numpy(new))[:, 0], 0.01, rtol=0.05)
    np.testing.assert_allclose(module.without_itself()[:, 0], expected, rtol=1e-3)


def test_a_twin_in_training_is_at_distance_zero_and_padding_is_zero() -> None:
    rng = np.random.default_rng(0)
    values, lengths = rng.normal(size=(12, 2, 10)).astype(np.float32), np.tile([10, 6], 6).astype(np.int64)
    values[5], lengths[5] = values[2], lengths[2]
    fitted = Nearest().fit(WindowSet(values, lengths, tuple(map(str, range(12)))), seed=0, device="cpu")
    own = fitted.training_scores()[:, 0]
    assert (own[[2, 5]] == 0).all()
    assert (np.delete(own, [2, 5]) > 0.5).all()
    spoilt = values.copy()
    spoilt[1, :, 6:] = 99.0  # beyond its end
    np.testing.assert_array_equal(fitted.score(spoilt[1:2], lengths[1:2]), fitted.score(values[1:2], lengths[1:2]))


def test_with_the_published_features_the_distance_is_the_peer_s() -> None:
    rng = np.random.default_rng(0)
    known, new = (rng.normal(size=(n, 3, 30)).cumsum(axis=2).astype(np.float32) for n in (20, 15))
    lengths = np.full(20, 30, np.int64)
    peer = Peer(PeerOptions(n_features=1_000)).fit(
        WindowSet(known, lengths, tuple(map(str, range(20)))), seed=0, device="cpu"
    )
    published = Published(n_kernels=1_000, random_state=0)
    published.fit(known)
    rocket, _ = of_published(published, 3, 30)
    every = torch.full((20,), 30)
    module = NearestFeatures(rocket, rocket(torch.from_numpy(known), every))
    found = module(torch.from_numpy(new), every[:15])[:, 0].numpy() * np.sqrt(rocket.n_features)
    np.testing.assert_allclose(found, peer.score(new, lengths[:15])[:, 0], rtol=0.02)
