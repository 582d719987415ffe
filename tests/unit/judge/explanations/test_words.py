"""A segment in words."""

import pytest

from streamad.judge.verdicts import figure, phrase


@pytest.mark.parametrize(
    ("unit", "size", "direction", "place", "said"),
    [
        ("K", 3.14, "above", (0.62, 0.8), "temp_c 3.1 K above the band from 62\u00a0% to 80\u00a0%"),
        ("", 0.0314, "below", (0.0, 1.0), "temp_c 0.031 below the band from 0\u00a0% to 100\u00a0%"),
        ("K", 134.0, "above", (0.5, 0.501), "temp_c 130 K above the band at 50\u00a0%"),
        ("K", None, "shape", (0.1, 0.2), "temp_c of unusual shape from 10\u00a0% to 20\u00a0%"),
    ],
)
def test_a_segment_is_said_in_one_phrase(unit, size, direction, place, said):
    assert phrase("temp_c", unit, size, direction, *place) == said


@pytest.mark.parametrize(
    ("value", "said"), [(12.4, "12"), (99.6, "100"), (0.00123, "0.0012"), (123456.0, "120000"), (3e-9, "3e-09")]
)
def test_a_figure_has_two_digits(value, said):
    assert figure(value) == said
