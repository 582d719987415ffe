"""streamad replay: what its options mean."""

from __future__ import annotations

import pytest

from streamad.commands.replay import _speed
from streamad.errors import UsageError


@pytest.mark.parametrize(
    ("text", "factor"), [("max", None), ("real", 1.0), ("1", 1.0), ("10", 10.0), ("0.5", 0.5), ("1e-9", 1e-9)]
)
def test_speed(text: str, factor: float | None) -> None:
    assert _speed(text) == factor


@pytest.mark.parametrize("text", ["", "fast", "REAL", "0", "-1", "inf", "nan"])
def test_a_speed_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="must be max, real or a factor above 0"):
        _speed(text)
