"""Labels of axes: the unit of time that fits, and numbers that tell neighbours apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.pictures.ticks import labels_of, round_ticks, unit_for


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
