from __future__ import annotations

import pytest

from streamad_models.ensemble.fitting import learned_weight, weights_of


def test_a_course_that_repeats_gives_weight_to_levels_and_to_the_course_itself() -> None:
    free, led = weights_of(10, 0.0), weights_of(10, 1.0)
    assert free["minirocket"] == led["minirocket"] == (1.0, 1.0, 0.0)
    assert free["moments"] == pytest.approx((0.259, 0.259, 0.259))
    assert led["moments"] == pytest.approx((1.15, 1.15, 1.15))
    assert led["readings"] == pytest.approx((0.7, 0.45, 0.0))


def test_one_channel_alone_has_no_course_beside_others() -> None:
    assert weights_of(1, 1.0) == weights_of(1, 0.0)
    assert weights_of(1, 1.0)["readings"] == (0.25, 0.0, 0.0)


@pytest.mark.parametrize(("n_channels", "expected"), [(10, 0.25), (30, 0.625), (50, 1.0), (500, 1.0)])
def test_many_channels_give_weight_to_the_largest_deviation_of_one(n_channels: int, expected: float) -> None:
    assert weights_of(n_channels, 0.0)["moments"][2] == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("n_channels", [1, 2, 9, 60])
def test_the_number_of_channels_alone_decides_which_members_there_are(n_channels: int) -> None:
    there = [
        [weight > 0 for pair in weights_of(n_channels, aligned).values() for weight in pair]
        for aligned in (0.0, 0.3, 1.0)
    ]
    assert there[0] == there[1] == there[2]


@pytest.mark.parametrize(("n", "expected"), [(8, 0.75), (40, 0.75), (80, 0.5), (120, 0.25), (2000, 0.25)])
def test_networks_count_most_where_windows_are_few(n: int, expected: float) -> None:
    assert learned_weight(n) == pytest.approx(expected)
