"""The registry in each of the places where versions lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.learning.places import Held, HeldInFolder, HeldInStore


@pytest.fixture
def stored(bucket: object, tmp_path: Path) -> HeldInStore:
    return HeldInStore(f"{bucket.url}/plant/models", tmp_path / "machines")  # type: ignore[attr-defined]


@pytest.fixture(params=["folder", "s3"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Held:
    """A registry without versions: its laws are the same wherever it lies."""
    return HeldInFolder(tmp_path / "registry") if request.param == "folder" else request.getfixturevalue("stored")
