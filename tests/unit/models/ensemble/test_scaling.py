from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.ensemble.scaling import fit_channel_scaling

SMALL = EnsembleOptions(n_minirocket=840, n_groups=4, time_limit_s=1e-6)


def plant(spreads: tuple[float, ...], units: tuple[str, ...] = (), n: int = 12, length: int = 30) -> WindowSet:
    """Return windows whose channels are noise of these spreads."""
    values = np.random.default_rng(0).normal(size=(n, len(spreads), length)) * np.array(spreads)[:, None]
    ids = tuple(map(str, range(n)))
    return WindowSet(values.astype(np.float32), np.full(n, length, np.int64), ids, units)


def test_channels_of_one_unit_share_a_scale_and_others_have_their_own() -> None:
    alone = fit_channel_scaling(plant((1.0, 3.0, 5.0), n=200))
    np.testing.assert_allclose(alone.factor * [1.0, 3.0, 5.0], alone.factor[0], rtol=0.25)
    together = fit_channel_scaling(plant((1.0, 3.0, 5.0), ("N", "N", ""), n=200))
    assert together.factor[0] == pytest.approx(together.factor[1], rel=0.1)  # but for what repeats of each
    assert 1 / together.factor[0] == pytest.approx(np.sqrt(5.0) / alone.factor[0], rel=0.1)
    assert together.factor[2] == pytest.approx(alone.factor[2])


@pytest.mark.parametrize("units", [("a", "b", "c"), ("", "", ""), ()])
def test_units_that_are_all_different_or_not_there_share_nothing(units: tuple[str, ...]) -> None:
    expected = fit_channel_scaling(plant((1.0, 3.0, 5.0)))
    found = fit_channel_scaling(plant((1.0, 3.0, 5.0), units))
    np.testing.assert_array_equal(found.factor, expected.factor)
    assert found.divided == ()


@pytest.mark.parametrize(
    ("spreads", "groups", "named"),
    [
        ((1.0, 1.0, 1.0, 8.0), (), ""),
        ((1.0, 1.0, 1.0, 12.0), (((0, 1, 2), (3,)),), "c0, c1, c2 | c3;"),
        ((90.0, 1.0), (((1,), (0,)),), "c1 | c0;"),
        ((1.0, 1.0, 80.0, 90.0, 100.0), (((0, 1), (2, 3, 4)),), "c0, c1 | c2, c3, c4;"),
    ],
)
def test_channels_of_one_unit_share_a_scale_only_within_ten_times(
    spreads: tuple[float, ...], groups: tuple[tuple[tuple[int, ...], ...], ...], named: str
) -> None:
    data = plant(spreads, ("L/h",) * len(spreads))
    assert fit_channel_scaling(data).divided == groups
    data = replace(data, channels=tuple(f"c{place}" for place in range(len(spreads))))
    remarks = Ensemble(SMALL).fit(data, seed=0, device="cpu").summary.remarks
    found = [each for each in remarks if each.startswith("channels of the unit L/h do not share one scale")]
    assert [f"apart: {named}" in each for each in found] == [True] * len(groups)


def test_a_channel_that_repeats_from_run_to_run_counts_more_than_noise() -> None:
    data = plant((1.0, 1.0))
    values = data.values.copy()
    values[:, 0] = 3 * np.sin(np.arange(30) / 4) + 0.1 * values[:, 0]
    found = fit_channel_scaling(replace(data, values=values))
    spread = values.std(axis=(0, 2))
    weight = found.factor * spread
    assert weight[0] == pytest.approx(1.1, abs=0.1)
    assert weight[1] < 0.4
    assert 0.4 < found.aligned < 0.6


@pytest.mark.parametrize(
    ("spreads", "units"),
    [((1.0,) * 4, ("K",) * 4), ((1e-6, 1.0, 1e6), ("K",) * 3), ((1.0, 2.0), ("bar", "Bar"))],
    ids=["one unit for everything", "hugely different size", "misspelt"],
)
def test_whatever_the_units_say_eight_noisy_runs_of_very_different_length_give_finite_scores(
    spreads: tuple[float, ...], units: tuple[str, ...]
) -> None:
    data = plant(spreads, units, n=8)
    lengths = np.array([2, 30, 5, 12, 30, 29, 3, 17])
    values = np.where(np.arange(30) < lengths[:, None, None], data.values, 0.0).astype(np.float32)
    fitted = Ensemble(SMALL).fit(WindowSet(values, lengths, data.ids, units), seed=0, device="cpu")
    new = np.concatenate([values, 100 * values, np.zeros_like(values[:1])])
    assert np.isfinite(fitted.score(new, np.r_[lengths, lengths, 30])).all()
    assert np.isfinite(fitted.training_scores()).all()
