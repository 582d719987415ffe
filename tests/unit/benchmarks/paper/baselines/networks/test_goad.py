from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.paper.baselines.networks.goad import (
    Goad,
    GoadNetwork,
    GoadOptions,
    triplet_centre_loss,
)
from benchmarks.paper.baselines.presets import GOAD_SEQUENCES, GOAD_TABLES
from streamad.types import WindowSet
from tests.support.detectors import ROWS, SEQUENCES
from tests.unit.models.small import windows


def network(n_channels: int = 3, length: int = 16, **changes: Any) -> GoadNetwork:
    options = GoadOptions.model_validate({"reduced_dim": 8, **changes})
    generator = torch.Generator().manual_seed(0)
    return GoadNetwork(n_channels, length, n_maps=5, options=options, generator=generator).eval()


def test_a_map_takes_the_flattened_window_to_r_values() -> None:
    net = network()
    x_BCL, lengths_B = windows(2)
    x_D, maps_DR = x_BCL[1].flatten(), net.maps_DMR[:, 3]
    with torch.no_grad():
        expected_Z = net.features(x_D @ maps_DR)
        torch.testing.assert_close(net.embed(x_BCL, lengths_B)[1, 3], expected_Z)


def test_the_maps_are_standard_normal_and_never_trained() -> None:
    net = network()
    assert abs(float(net.maps_DMR.mean())) < 0.1
    assert float(net.maps_DMR.std()) == pytest.approx(1.0, abs=0.1)
    assert {name for name, _ in net.named_parameters()} == {"features.0.weight", "head.weight", "head.bias"}


def test_a_term_is_minus_the_log_of_the_softmax_of_negative_squared_distances() -> None:
    net = network()
    x_BCL, lengths_B = windows(2)
    net.centres_MZ.normal_(generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        features_BMZ = net.embed(x_BCL, lengths_B)
        distance_BMM = torch.cdist(features_BMZ, net.centres_MZ.expand(2, -1, -1)).square()
        expected = torch.stack([-torch.log_softmax(-distance_BMM[:, m], dim=1)[:, m] for m in range(5)], dim=1)
        torch.testing.assert_close(net(x_BCL, lengths_B), expected, rtol=1e-4, atol=1e-3)


def test_the_triplet_loss_of_features_far_apart_and_at_their_centres_is_zero_and_of_equal_ones_the_margin() -> None:
    apart_BMZ = 10 * torch.eye(4).expand(3, 4, 4)
    assert triplet_centre_loss(apart_BMZ, 1.0) == 0.0
    assert triplet_centre_loss(torch.ones(3, 4, 2), 1.5) == pytest.approx(1.5, abs=1e-6)


def test_the_triplet_loss_requires_the_margin_from_the_nearest_other_centre() -> None:
    """Centres at 0, 1 and 3 on a line: own distance 0; nearest others at 1, 1 and 4."""
    features_BMZ = torch.tensor([0.0, 1.0, 3.0]).view(1, 3, 1).expand(2, 3, 1)
    assert triplet_centre_loss(features_BMZ, 2.0) == pytest.approx((1.0 + 1.0 + 0.0) / 3)


def test_the_centres_are_the_mean_features_of_the_training_windows() -> None:
    fitted = Goad(GoadOptions(epochs=2, reduced_dim=4)).fit(SEQUENCES.normal, seed=0, device="cpu")
    values, lengths = torch.from_numpy(SEQUENCES.normal.values), torch.from_numpy(SEQUENCES.normal.lengths)
    with torch.no_grad():
        torch.testing.assert_close(fitted.model.centres_MZ, fitted.model.embed(values, lengths).mean(dim=0))


def test_features_are_those_after_the_activation_so_that_rows_of_mean_zero_have_centres_that_differ() -> None:
    """Of a linear network all centres would coincide, and every score be M log M."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(40, 6, 1)).astype(np.float32)
    rows = WindowSet(np.concatenate([half, -half]), np.ones(80, np.int64), tuple(str(i) for i in range(80)))
    fitted = Goad(GoadOptions(epochs=1, n_maps=16)).fit(rows, seed=0, device="cpu")
    model, lengths = fitted.model, rows.lengths[:8]
    with torch.no_grad():
        there, back = (model.embed(torch.from_numpy(x[:8]), torch.from_numpy(lengths)) for x in (half, -half))
    torch.testing.assert_close(torch.minimum(there, back), -0.2 * torch.maximum(there, back), rtol=1e-4, atol=1e-5)
    assert torch.pdist(model.centres_MZ).min() > 0.1
    far = rows.values[:8] * 10
    assert (fitted.score(far, lengths).sum(axis=1) > 5 * fitted.score(rows.values[:8], lengths).sum(axis=1)).all()


def test_a_sequence_has_twelve_maps_and_a_row_256() -> None:
    for case, n_maps in ((SEQUENCES, 12), (ROWS, 256)):
        fitted = Goad(GoadOptions(epochs=1, reduced_dim=4)).fit(case.normal, seed=0, device="cpu")
        assert fitted.model.n_terms == n_maps


def test_the_dimension_with_most_maps_recognised_is_the_best() -> None:
    net, detector = network(), Goad()
    x_BCL, lengths_B = windows(40)
    with torch.no_grad():
        chance = detector.judge(net, x_BCL, lengths_B)
        net.centres_MZ.copy_(net.embed(x_BCL[:1], lengths_B[:1])[0])
        assert detector.judge(net, x_BCL[:1], lengths_B[:1]) == 1.0
    assert chance == pytest.approx(0.2)  # all centres alike: the first one wins


@pytest.mark.parametrize("settings", [*GOAD_TABLES.values(), GOAD_SEQUENCES])
def test_the_published_settings_are_options(settings: Mapping[str, Any]) -> None:
    options = GoadOptions.model_validate(settings)
    assert (options.margin, options.triplet_weight, options.learning_rate) == (1.0, 0.1, 1e-3)
