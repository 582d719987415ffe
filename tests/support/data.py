"""Finds real recordings; a machine without them skips their tests, CI with the shared folder must not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def data_folder() -> Path:
    """Return the folder that STREAMAD_DATA names, else ``../shared/data`` beside the checkout; it may not exist."""
    named = os.environ.get("STREAMAD_DATA")
    return Path(named) if named else ROOT.parent / "shared" / "data"


def data_file(name: str) -> Path:
    """Return the recording ``name``; skips the test where it is absent, fails it in CI beside a shared folder."""
    path = data_folder() / name
    if path.is_file():
        return path
    if os.environ.get("CI") == "true" and (ROOT.parent / "shared").is_dir():
        pytest.fail(f"{path} is missing, and CI must not skip real recordings", pytrace=False)
    pytest.skip(f"no {path}: STREAMAD_DATA names the folder of recordings")
