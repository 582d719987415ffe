"""One trained plant for all tests in a browser, and one browser for each file of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

if os.environ.get("CI") != "true":  # where it must be there
    pytest.importorskip("playwright", reason="needs playwright")

from playwright.sync_api import Browser

from tests.support.shared import made_once
from tests.support.web.browser import chromium_or_skip, new_browser
from tests.support.web.site import judged_plant


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plant with a model and outputs; tests that change it copy it."""
    chromium_or_skip()
    return made_once(tmp_path_factory, "judged", _judge)


def _judge(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        judged_plant(folder, monkeypatch)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; it ends with the file, since its event loop stands in the way of asynchronous tests."""
    with new_browser() as opened:
        yield opened
