"""What counts as a channel that never changes."""

from __future__ import annotations

import numpy as np
import pytest

from streamad.types import WindowSet


def windows(first: float, last: float) -> WindowSet:
    values = np.full((2, 2, 4), first, np.float32)
    values[1, 1, 2] = last
    values[0, 0, 3] = 99.0  # padding
    return WindowSet(values, np.array([3, 3]), ("a", "b"))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0.0, 0.0, [0, 1]),
        (0.0, 1e-30, [0]),
        (-5.0, 5.0, [0]),
        (1.0, 1.0 + 2.0**-20, [0, 1]),  # 0.95e-6
        (1.0, 1.0 + 2.0**-19, [0]),  # 1.9e-6
        (-1e6, -1e6 + 0.5, [0, 1]),
        (-1e6, -1e6 + 2.0, [0]),
    ],
)
def test_variation_below_a_millionth_of_the_largest_value_is_none(
    first: float, last: float, expected: list[int]
) -> None:
    assert windows(first, last).constant_channels().tolist() == expected
