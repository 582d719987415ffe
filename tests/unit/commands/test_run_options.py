"""What ``streamad run`` is told on the command line wins over the config, wherever the config says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.commands.run.command import with_options
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock


def plant(url: str, **options: object) -> Plant:
    content = {"name": "p", "channels": [{"name": "a"}], "source": {"url": url, "options": options}}
    return Plant(Settings(**content), Path(), SystemClock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", {}),
        ("?instance=a", {}),
        ("?instance=a&start=latest", {"start": "latest"}),
        ("?start=latest&accept_gap=false&instance=a", {"start": "latest"}),
    ],
)
def test_options_win_over_those_in_the_url(query: str, left: dict[str, str]) -> None:
    changed = with_options(plant(f"kafka://b:9092/t{query}", instance="c"), {"instance": "w1", "accept_gap": True})
    assert split_url(changed.settings.source.url)[2] == left
    assert changed.settings.source.options == {"instance": "w1", "accept_gap": True}


def test_an_address_without_options_stays_as_it_is() -> None:
    assert with_options(plant("batch-?.csv"), {}).settings.source.url == "batch-?.csv"
