"""The status line of a worker."""

from __future__ import annotations

import os
import platform
from typing import Any

import pytest

from streamad.runtime.status import worker_name
from streamad.settings.plant_yaml import Settings


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"url": "kafka://b:1/t", "options": {"instance": "plant-host-2"}}, "plant-host-2"),
        ({"url": "kafka://b:1/t?instance=of-url", "options": {"instance": "x"}}, "of-url"),
        ({"url": "kafka://b:1/t"}, f"{platform.node()}-{os.getpid()}"),
    ],
    ids=["option", "url", "none"],
)
def test_a_status_names_its_worker(source: dict[str, Any], name: str) -> None:
    settings = Settings.model_validate({"channels": [{"name": "a"}], "source": source})
    assert worker_name(settings) == name
