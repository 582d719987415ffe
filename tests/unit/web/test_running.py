"""Running sequences on Now: which channels lie outside the band of the model in service, also without looks."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

from streamad.commands.shared.plants import load_plant
from streamad.messages import ModelRef
from streamad.types import from_us
from tests.support.learning.stored import LEARNING, SHARES, L, add, plant_of, registry_at, sequence, train
from tests.support.web.page import PageUnderTest
from tests.support.web.status import curve_of, opened, status_of

PLUGINS = Path(__file__).parents[2] / "support" / "plugins"
MODEL = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PageUnderTest:
    """A page whose plant has a model in service."""
    monkeypatch.syspath_prepend(PLUGINS)
    sections = {"learning": LEARNING, "model": MODEL, "display": {"open": True}, "sinks": {"status": "status"}}
    config = plant_of(tmp_path, window={"length": L, "longer": "truncate"}, **sections)
    add(config, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    assert train(config) == "0001"
    return PageUnderTest(tmp_path, plant=load_plant(config))


def test_without_looks_the_furthest_outside_the_band_comes_first(page: PageUnderTest) -> None:
    names = [each.name for each in page.plant.settings.channels]
    envelope = registry_at(page.plant.config).envelope("default", "0001")  # type: ignore[arg-type]
    middle = np.asarray(envelope.clock_band().middle, dtype=np.float64)[:, :6]
    shifted = {"inside": 0.0, "far": 90.0, "near": 30.0}
    ones = [opened(stream, f"B-{stream}", n_samples=6) for stream in shifted]
    now = from_us(page.plant.clock.now_us())
    page.workers.take(status_of(open_=ones, models=[ModelRef("default", "0001")], created_at=now))
    for one, shift in zip(ones, shifted.values(), strict=True):
        given = {"channels": names, "units": [""] * len(names)}
        page.workers.take(curve_of(one, (middle + shift).tolist(), **given))
    text = page.browser().get("/").text.partition("<h2>Running")[2]
    rows = re.findall(r'data-head="outside the band now">(.*?)</td>', text, re.DOTALL)
    shown = [" ".join(html.unescape(re.sub("<[^>]*>", " ", each)).split()) for each in rows]
    assert re.findall(r'href="/running\?name=(\w+)"', text) == ["far", "near", "inside"]
    assert re.fullmatch(r"(temp|pressure) ▲ 8\d above the band since 0.s ; ▲ (temp|pressure)", shown[0])
    assert re.match(r"(temp|pressure) ▲ 2\d above the band", shown[1])
    assert shown[2] == "none"
    assert 'class="odd"' not in text
    assert "3 open sequences" in text
