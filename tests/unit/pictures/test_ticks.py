"""Labels of axes: the unit of time that fits, and numbers that tell neighbours apart."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.pictures.ticks import labels_of, log_ticks, round_ticks, time_ticks, unit_for


@pytest.mark.parametrize(
    ("span_s", "name"),
    [
        (0.0, "microseconds"),
        (3e-6, "microseconds"),
        (0.5, "milliseconds"),
        (1.99, "milliseconds"),
        (2.0, "seconds"),
        (119.0, "seconds"),
        (120.0, "minutes"),
        (7199.0, "minutes"),
        (7200.0, "hours"),
        (172_799.0, "hours"),
        (172_800.0, "days"),
    ],
)
def test_the_unit_is_the_largest_of_which_there_are_two(span_s: float, name: str) -> None:
    assert unit_for(span_s).name == name


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.0, 17.9, ["0.0", "2.5", "5.0", "7.5", "10.0", "12.5", "15.0", "17.5"]),
        (36.7, 37.3, ["36.8", "37.0", "37.2"]),
        (-1.0, 1.0, ["-1.0", "-0.5", "0.0", "0.5", "1.0"]),
        (1e9, 1e9 + 2e5, ["1e+09", "1.00005e+09", "1.0001e+09", "1.00015e+09", "1.0002e+09"]),
        (0.0, 2e-7, ["0", "5e-08", "1e-07", "1.5e-07", "2e-07"]),
        (5.0, 5.0, ["5"]),
    ],
)
def test_labels_are_round_and_have_the_digits_they_need(low: float, high: float, labels: list[str]) -> None:
    assert labels_of(round_ticks(low, high, 8 if high == 17.9 else 4)) == labels


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), st.integers(2, 10))
def test_ticks_lie_within_are_not_too_many_and_have_different_labels(low: float, span: float, most: int) -> None:
    ticks = round_ticks(low, low + span, most)
    labels = labels_of(ticks)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    assert len({*labels}) == len(labels)
    assert [float(label) for label in labels] == pytest.approx(ticks, rel=1e-3, abs=span / most / 10)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.9, 110, [1, 2, 5, 10, 20, 50, 100]),
        (0.9, 1100, [1, 10, 100, 1000]),
        (0.9, 1e14, [1, 100, 1e4, 1e6, 1e8, 1e10, 1e12, 1e14]),
        (2.1, 4.8, [3, 4]),
        (20, 20.4, [20, 20.1, 20.2, 20.3, 20.4]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_powers_of_ten_and_steps_between_if_these_are_few(
    low: float, high: float, ticks: list[float]
) -> None:
    assert log_ticks(math.log10(low), math.log10(high), 8) == pytest.approx(ticks)


@given(st.floats(-310, 300), st.floats(1e-3, 620), st.integers(5, 12))
def test_ticks_of_a_logarithmic_axis_are_few_and_can_be_drawn(low: float, span: float, most: int) -> None:
    ticks = log_ticks(low, low + span, most)
    assert len(ticks) <= most
    assert all(0 < tick < math.inf for tick in ticks)


@pytest.mark.parametrize("span_s", [3, 50, 4_000, 90_000, 3_000_000, 90_000_000])
def test_times_of_an_axis_are_full_ones_and_evenly_apart(span_s: int) -> None:
    first = 1_767_225_601_000_000
    found = time_ticks(first, first + span_s * 1_000_000, 6)
    assert 1 <= len(found) <= 7
    steps = {after - before for before, after in pairwise(found)}
    assert len(steps) <= 1
    assert all(at % step == 0 for at in found for step in steps)
    assert first <= found[0] <= found[-1] <= first + span_s * 1_000_000
