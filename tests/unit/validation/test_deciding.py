"""A rate shows a limit by its interval, or by the share alone; how many sequences it takes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamad.validation.deciding import Rate, decide, fewest, needed


@pytest.mark.parametrize(
    ("k", "n", "limit", "at_most", "bound", "estimate"),
    [
        (0, 20, 0.01, True, "not_shown", "passed"),  # the interval reaches to 16.8 %
        (0, 367, 0.01, True, "not_shown", "passed"),
        (0, 368, 0.01, True, "passed", "passed"),
        (1, 20, 0.01, True, "failed", "failed"),
        (2, 100, 0.02, True, "not_shown", "passed"),
        (10, 10, 0.7, False, "not_shown", "passed"),  # the interval begins at 69.2 %
        (11, 11, 0.7, False, "passed", "passed"),
        (6, 10, 0.7, False, "failed", "failed"),
        (0, 0, 0.5, True, "not_shown", "not_shown"),
        (0, 0, 0.5, False, "not_shown", "not_shown"),
    ],
)
def test_bound_is_stricter_than_the_estimate(
    k: int, n: int, limit: float, *, at_most: bool, bound: str, estimate: str
) -> None:
    assert decide(Rate(k, n), limit, "bound", at_most=at_most) == bound
    assert decide(Rate(k, n), limit, "estimate", at_most=at_most) == estimate


@given(st.floats(0.001, 0.999), st.booleans())
@example(0.975, True)  # a quotient that rounding leaves above 1
@example(0.025, False)
def test_the_fewest_sequences_show_a_limit_and_one_less_does_not(limit: float, at_most: bool) -> None:
    n = fewest(limit, at_most=at_most)
    assert n is not None
    assert decide(Rate(0 if at_most else n, n), limit, "bound", at_most=at_most) == "passed"
    assert decide(Rate(0 if at_most else n - 1, n - 1), limit, "bound", at_most=at_most) != "passed"


@pytest.mark.parametrize(("limit", "at_most"), [(0.0, True), (1.0, False)])
def test_no_number_shows_a_limit_without_room(limit: float, *, at_most: bool) -> None:
    assert fewest(limit, at_most=at_most) is None
    assert needed(Rate(0 if at_most else 5, 5), limit, at_most=at_most) is None


def test_needed_is_at_the_share_found() -> None:
    n = needed(Rate(2, 100), 0.05, at_most=True)
    assert n is not None
    assert decide(Rate(round(0.02 * n + 0.5), n), 0.05, "bound", at_most=True) == "passed"
    assert n == 230
    assert needed(Rate(5, 100), 0.05, at_most=True) is None
    assert needed(Rate(6, 100), 0.05, at_most=True) is None
    assert needed(Rate(0, 20), 0.01, at_most=True) == 368
