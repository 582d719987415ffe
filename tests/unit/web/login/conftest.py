"""A clock that tests move."""

from __future__ import annotations

import pytest

from tests.support.web.logins import Seconds


@pytest.fixture
def clock() -> Seconds:
    """A clock that stands still until a test moves it."""
    return Seconds()
