"""What every test shares: the real recordings and the profiles of the property-based tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import data

# A slow machine is no wrong answer: no deadlines. CI draws the same examples every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """The function that finds a real recording by name, or skips the test."""
    return data.data_file
