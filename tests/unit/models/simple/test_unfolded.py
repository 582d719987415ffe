"""Batch-wise unfolding: each channel and place by its own spread, and the two charts of multiway PCA."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from streamad.learn.registry.arrays import PROBE_TOLERANCE, probe_deviation
from streamad.plugins import make_detector
from streamad.types import FloatArray
from streamad_models.simple import MPCA, MPCAOptions, Unfolded, UnfoldedOptions
from streamad_models.simple.by_place import Unfolding
from streamad_models.simple.components import Charts
from tests.support.detectors import windows

BOTH = pytest.mark.parametrize("kind", ["unfolded", "mpca"])


def aligned(n: int, seed: int = 0) -> FloatArray:
    """Cycles of two channels, in which the first half repeats to 1 % and the second varies widely."""
    rng, course = np.random.default_rng(seed), np.sin(np.linspace(0, 6, 40))
    spread = np.where(np.arange(40) < 20, 0.01, 1.0)
    return np.asarray(course + spread * rng.normal(size=(n, 2, 40)), np.float32)


def test_readings_are_standardised_by_channel_and_place_with_a_floor_of_the_channels_own_spread() -> None:
    rng = np.random.default_rng(0)
    readings = torch.from_numpy(rng.normal(size=(4000, 2, 3)).astype(np.float32))
    readings *= torch.tensor([[1.0, 2.0, 0.0], [10.0, 0.0, 20.0]])  # a place of each channel never changes
    z = Unfolding(readings, floor=0.1).of(readings)
    of_channel = np.sqrt([(1 + 4) / 3, (100 + 400) / 3])
    expected = [1 / (1 + 0.1 * of_channel[0]), 2 / (2 + 0.1 * of_channel[0]), 0.0]
    expected += [10 / (10 + 0.1 * of_channel[1]), 0.0, 20 / (20 + 0.1 * of_channel[1])]
    np.testing.assert_allclose(z.mean(dim=0), np.zeros(6), atol=1e-6)
    np.testing.assert_allclose(z.std(dim=0), expected, rtol=0.05)


@BOTH
def test_what_is_odd_only_where_all_cycles_agree_is_found(kind: str) -> None:
    data, new = windows(aligned(60)), aligned(40, seed=1)
    odd = new.copy()
    odd[:, 0, 5:12] += 0.15  # a seventh of the spread elsewhere, fifteen times that of these places
    shares = {}
    for name in (kind, "nearest", "pca"):
        fitted = make_detector(name, {}).fit(data, seed=0, device="cpu")
        normal, faulty = (fitted.score(part.values, part.lengths).sum(axis=1) for part in (windows(new), windows(odd)))
        shares[name] = (faulty > np.sort(normal)[-2]).mean()
    assert shares[kind] > 0.9
    assert max(shares["nearest"], shares["pca"]) < 0.2


def test_the_distance_is_that_of_the_nearest_window_less_than_all_in_quadrature() -> None:
    readings = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 2, 5)).astype(np.float32))
    distance, own = Unfolded(UnfoldedOptions(n_places=5)).fit_distance(readings, torch.full((9,), 5), seed=0)
    z = Unfolding(readings, floor=0.1).of(readings)
    between = ((z[:, None] - z) ** 2).mean(dim=2).fill_diagonal_(torch.inf)
    torch.testing.assert_close(own[:, 0], (between.min(dim=1)[0] + 0.01).sqrt())
    again = distance(readings, torch.full((9,), 5))
    torch.testing.assert_close(again, torch.full((9, 1), 0.1))  # itself is the nearest


def test_the_charts_are_t2_of_the_leading_components_and_the_error_of_the_rest() -> None:
    rows = np.random.default_rng(0).normal(size=(2000, 3)) * np.array([4.0, 2.0, 0.1]) + 7.0
    charts = Charts(torch.from_numpy(rows.astype(np.float32)), explained=0.95)
    assert charts.basis_DM.shape == (3, 2)
    offsets = torch.tensor([[8.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 2.0, 3.0]])
    found = charts(charts.mean_D + offsets)
    expected = [[2 / np.sqrt(2), 0], [1 / np.sqrt(2), 0], [0, np.sqrt(3)], [1, np.sqrt(3)]]
    np.testing.assert_allclose(found, expected, atol=0.1)


def test_both_charts_have_the_same_level_on_normal_windows() -> None:
    data, new = windows(aligned(60)), windows(aligned(200, seed=1))
    fitted = make_detector("mpca", {}).fit(data, seed=0, device="cpu")
    np.testing.assert_allclose(np.median(fitted.training_scores(), axis=0), [1.0, 1.0], rtol=0.05)
    np.testing.assert_allclose(np.median(fitted.score(new.values, new.lengths), axis=0), [1.0, 1.0], rtol=0.15)


def test_up_to_ten_training_windows_score_exactly_without_themselves() -> None:
    readings = torch.from_numpy(np.random.default_rng(0).normal(size=(10, 2, 5)).astype(np.float32))
    options = MPCAOptions(n_places=5, explained=0.7)
    multiway, own = MPCA(options).fit_distance(readings, torch.full((10,), 5), seed=0)
    for i in range(10):
        rest = readings[torch.arange(10) != i]
        unfolding = Unfolding(rest, options.floor)
        roots = Charts(unfolding.of(rest), options.explained)(unfolding.of(readings[i : i + 1]))
        torch.testing.assert_close(own[i], (roots / multiway.level_K)[0])


@BOTH
@pytest.mark.parametrize("make", ["plain", "copies", "near copies", "steps"])
def test_terms_do_not_hang_on_company_or_threads(kind: str, make: str) -> None:
    rng, base = np.random.default_rng(0), np.cumsum(np.random.default_rng(1).normal(size=(40, 3, 60)), axis=2)
    values = {
        "plain": base,
        "copies": np.repeat(base[:10], 6, axis=0),
        "near copies": np.repeat(base[:10], 6, axis=0) * (1 + 3e-4 * rng.normal(size=(60, 3, 60))),
        "steps": np.round(base),
    }[make]
    fitted = make_detector(kind, {}).fit(windows(values), seed=0, device="cpu")
    asked = windows(np.concatenate([values, values * 1.0001, values + 1e-3, values[:, :, ::-1]]))
    terms = fitted.score(asked.values, asked.lengths)
    alone = [fitted.score(asked.values[i : i + 1], asked.lengths[i : i + 1]) for i in range(len(asked))]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        shared = fitted.score(asked.values, asked.lengths)
    finally:
        torch.set_num_threads(before)
    for others in (np.concatenate(alone), shared):
        assert probe_deviation(others, terms) < PROBE_TOLERANCE / 2
