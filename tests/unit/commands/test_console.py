"""Options and output that commands share."""

from __future__ import annotations

import pytest

from streamad.commands.shared.console import parse_speed
from streamad.errors import UsageError


@pytest.mark.parametrize(
    ("text", "factor"), [("max", None), ("real", 1.0), ("1", 1.0), ("10", 10.0), ("0.5", 0.5), ("1e-9", 1e-9)]
)
def test_a_speed_is_a_factor_of_real_time(text: str, factor: float | None) -> None:
    assert parse_speed(text) == factor


@pytest.mark.parametrize("text", ["", "fast", "REAL", "0", "-1", "inf", "nan", "1001"])
def test_any_other_speed_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"must be max, real or a factor above 0, at most 1000$"):
        parse_speed(text, at_most=1000)
