"""The page of one sequence over a version's normal band: on its own clock, or with the phases aligned."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.commands.shared.plants import load_plant
from streamad.messages import ChannelSegment, Message, ModelRef, packed_values
from streamad.outputs.cases import Normals
from tests.support.learning.stored import CHANNELS, LEARNING, SHARES, add, plant_of, sequence, train
from tests.support.web.messages import T, messages_of
from tests.support.web.page import SAME, PageUnderTest

PLUGINS = Path(__file__).parents[2] / "support" / "plugins"
MODEL = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}
ID = f"{1:032x}"
CHOSEN = re.compile(r'<a href="/s/\w+\?clock=(\w+)" aria-current="true">')


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plant with a version trained on sequences of 3 to 8 samples."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(PLUGINS)
        path = written(folder)
        add(path, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
        assert train(path) == "0001"
    return folder


@pytest.fixture
def config(trained: Path, tmp_path: Path) -> Path:
    """The config of a copy of the plant."""
    shutil.copytree(trained, tmp_path / "plant")
    return tmp_path / "plant" / "plant.yaml"


def written(folder: Path, **sections: Any) -> Path:
    learning = {**LEARNING, "feedback": "file:feedback.jsonl"}
    return plant_of(folder, **{"learning": learning, "model": MODEL, **sections})


def messages(i: int = 1, length: int = 6, *segments: ChannelSegment, **of_window: Any) -> list[Message]:
    """Return the messages of an alert whose window has the plant's channels."""
    values = np.random.default_rng(i).normal(20, 3, (len(CHANNELS), length)).astype(np.float32)
    given: dict[str, Any] = {
        "channels": list(CHANNELS), "units": ["", ""], "length": length, "values": packed_values(values), **of_window
    }  # fmt: skip
    judged, alert, attribution, window, *_ = messages_of(i)
    attribution = msgspec.structs.replace(attribution, segments=list(segments))  # type: ignore[type-var]
    return [judged, alert, attribution, msgspec.structs.replace(window, **given)]  # type: ignore[type-var]


def page_of(config: Path, given: list[Message]) -> Any:
    return PageUnderTest(config.parent, given, plant=load_plant(config)).browser()


def test_the_clock_is_in_the_address_and_the_other_one_a_link(config: Path) -> None:
    client = page_of(config, messages())
    aligned = client.get(f"/s/{ID}?clock=aligned").text
    assert CHOSEN.findall(aligned) == ["aligned"]
    assert f'href="/s/{ID}?clock=own"' in aligned
    assert "100 %</text>" in aligned
    assert "% of the sequence" in aligned
    assert "Normal sequences are stretched in time" in aligned
    own = client.get(f"/s/{ID}?clock=own").text
    assert CHOSEN.findall(own) == ["own"]
    assert " %</text>" not in own
    assert "s since the start" in own
    assert "at the same time since their start" in own
    bands = [re.findall(r'<polygon class="band" points="([^"]*)"', text) for text in (own, aligned)]
    assert len(bands[0]) == len(bands[1]) == 2
    assert bands[0] != bands[1]


@pytest.mark.parametrize("query", ["", "?clock=", "?clock=x", "?clock=%3Cscript%3E"])
def test_without_a_clock_it_is_the_one_that_explains_the_sequence(config: Path, query: str) -> None:
    client = page_of(config, messages())
    text = client.get(f"/s/{ID}{query}").text
    (chosen,) = CHOSEN.findall(text)
    assert client.get(f"/s/{ID}?clock={chosen}").text.count("<polygon") == text.count("<polygon")
    assert 'action="/s/' + ID + '/mark"' in text


def test_a_mark_and_the_way_to_the_next_alert_keep_the_clock(config: Path) -> None:
    client = page_of(config, [*messages(1), *messages(2)])
    text = client.get(f"/s/{ID}?clock=aligned").text
    assert f'href="/s/{2:032x}?clock=aligned"' in text
    action = re.search(r'action="([^"]*/mark[^"]*)"', text)
    assert action is not None
    answer = client.post(action[1], data={"judgement": "confirmed"}, headers=SAME)
    assert answer.headers["location"].startswith(f"/s/{ID}?clock=aligned&said=sent")


@pytest.mark.parametrize(("clock", "last"), [("own", "s"), ("aligned", "100 %")])
def test_where_and_when_has_the_same_times_as_the_curves(config: Path, clock: str, last: str) -> None:
    text = page_of(config, messages()).get(f"/s/{ID}?clock={clock}").text
    heat, panel = (re.search(rf'<svg class="{css}".*?</div>', text, re.DOTALL) for css in ("heat", "panel"))
    assert heat is not None
    assert panel is not None
    tick = re.compile(r'<text class="tick(?: \w+)*" x="([\d.]+%)" y="\d+" text[^>]*>([\d.]+(?: [^<]+)?)</text>')
    ticks = [tick.findall(each[0]) for each in (heat, panel)]
    assert ticks[0][-1][1].endswith(last)
    assert ticks[0] == ticks[1]


def test_without_a_band_there_is_nothing_to_choose(config: Path) -> None:
    other = messages(1, 6, channels=["x", "y"])
    text = page_of(config, other).get(f"/s/{ID}?clock=aligned").text
    assert 'class="course"' in text
    assert "phases aligned" not in text
    assert "other channels than this window" in text


def test_without_the_version_there_is_nothing_to_choose(config: Path) -> None:
    (config.parent / "registry").rename(config.parent / "gone")
    text = page_of(config, messages()).get(f"/s/{ID}").text
    assert 'class="course"' in text
    assert "phases aligned" not in text


@pytest.mark.parametrize("clock", ["own", "aligned"])
def test_a_segment_lies_at_its_share_of_the_sequence_also_if_the_window_holds_less(config: Path, clock: str) -> None:
    """The verdict has 50 samples, of which the window holds 8: 8/50 of its time."""
    segment = ChannelSegment(
        channel="temp", unit="", start=0.07, end=0.14, start_time=T, end_time=T, direction="above", size=1.0, text="t"
    )
    written(config.parent, window={"length": 8, "longer": "truncate"})
    text = page_of(config, messages(1, 8, segment)).get(f"/s/{ID}?clock={clock}").text
    assert "the judged window holds the first 14\u00a0% of the sequence" in text
    (drawn,) = re.findall(r'<rect class="segment" x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"', text)
    left, width = (float(each) for each in drawn)
    assert left == pytest.approx(49, abs=0.2)
    assert width == pytest.approx(49, abs=0.2)
    (outlined,) = re.findall(r'<rect class="outline" x="([\d.]+)%"', text)
    assert float(outlined) == pytest.approx(49, abs=0.2)


# --- what is known of a version ---


def counting(plant: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Normals, list[str]]:
    """Return normals and the versions whose envelopes they have read."""
    normals, read = Normals(plant), []
    envelope = normals._registry.envelope  # noqa: SLF001 - nothing else says how often it is read

    def noted(name: str, version: str) -> Any:
        read.append(version)
        return envelope(name, version)

    monkeypatch.setattr(normals._registry, "envelope", noted)  # noqa: SLF001
    return normals, read


def test_a_version_that_could_not_be_read_is_tried_again(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = load_plant(config)
    normals, _ = counting(plant, monkeypatch)
    (manifest,) = config.parent.rglob("0001/manifest.json")
    manifest.rename(config.parent / "away")
    assert "cannot be read any more" in (normals.of_model(ModelRef("default", "0001"), 0.02).missing or "")
    (config.parent / "away").rename(manifest)
    assert normals.of_model(ModelRef("default", "0001"), 0.02).envelope is not None


def test_a_version_is_read_once_whatever_rates_the_alerts_bear(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    normals, read = counting(load_plant(config), monkeypatch)
    model = ModelRef("default", "0001")
    tails = {normals.of_model(model, 10.0**-n).calibration.tail for n in range(30)}  # type: ignore[union-attr]
    assert tails == {"empirical", "extrapolated"}
    assert normals.of_model(model, 0.5).calibration is normals.of_model(model, 0.6).calibration
    assert read == ["0001"]


# --- the picture to take along ---


def test_the_picture_is_a_link_and_a_png_on_the_chosen_clock(config: Path) -> None:
    pytest.importorskip("matplotlib")
    client = page_of(config, messages())
    assert f'href="/s/{ID}.png?clock=own"' in client.get(f"/s/{ID}?clock=own").text
    found = {clock: client.get(f"/s/{ID}.png?clock={clock}") for clock in ("own", "aligned")}
    for answer in found.values():
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
        assert answer.content.startswith(b"\x89PNG")
        assert f'filename="{ID[:12]}.png"' in answer.headers["content-disposition"]
    assert found["own"].content != found["aligned"].content


def test_without_matplotlib_or_a_window_there_is_no_picture(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, alert, attribution, window = messages()
    client = page_of(config, [judged, alert, attribution])
    assert f"{ID}.png" not in client.get(f"/s/{ID}").text
    assert client.get(f"/s/{ID}.png").status_code == 404
    monkeypatch.setattr("streamad.pictures.drawing.find_spec", lambda name: None)
    client = page_of(config, [window])
    assert 'class="course"' in client.get(f"/s/{ID}").text
    assert f"{ID}.png" not in client.get(f"/s/{ID}").text
    assert client.get(f"/s/{ID}.png").status_code == 404


# --- a part of the sequence ---


def test_all_curves_and_the_map_show_the_part_that_the_address_names(config: Path) -> None:
    client = page_of(config, messages(1, 8))
    whole, part = (client.get(f"/s/{ID}?clock=aligned{query}").text for query in ("", "&from=20&to=80"))
    courses = [re.findall(r'<polyline class="course" points="([^"]*)"', text) for text in (whole, part)]
    assert [{len(each.split()) for each in found} for found in courses] == [{8}, {6}]
    axes = [
        re.findall(r'class="tick(?: \w+)*" x="[\d.]+%" y="\d+" text[^>]*>([\d.]+ %)<', text) for text in (whole, part)
    ]
    assert (set(axes[0]), set(axes[1])) == ({"100 %"}, {"80 %"})
    assert 'data-zoom="share" data-first="20" data-last="80"' in part
    assert f'href="/s/{ID}?clock=aligned">whole</a>' in part
    assert f'href="/s/{ID}?clock=own&amp;from=20&amp;to=80"' in part
    assert ">whole</a>" not in whole


@pytest.mark.parametrize(("seconds", "said"), [(9, "A to B"), (0, "A"), (None, None)])
def test_the_page_says_by_the_clock_when_the_first_departure_was(
    seconds: int | None, said: str | None, config: Path
) -> None:
    end = T + timedelta(seconds=seconds or 0)
    found = ChannelSegment(
        channel="temp", unit="", start=0.5, end=1.0, start_time=T, end_time=end, direction="above", size=1.0, text="t"
    )
    text = page_of(config, messages(1, 6, *[found][: None if said else 0])).get(f"/s/{ID}").text
    line = re.search(r"<p>Departure: (.*)</p>", text)
    names = {end.isoformat(): "B", T.isoformat(): "A"}
    times = re.compile(r'<time datetime="([^"]+)"[^>]*>[^<]*</time>')
    assert (line and times.sub(lambda time: names[time[1]], line[1])) == said


def test_a_departure_leads_to_its_time(config: Path) -> None:
    point = ChannelSegment(
        channel="temp", unit="", start=0.5, end=0.5, start_time=T, end_time=T, direction="above", size=1.0, text="t"
    )
    text = page_of(config, messages(1, 6, point)).get(f"/s/{ID}?clock=own").text
    assert f'<a href="/s/{ID}?clock=own&amp;from=48&amp;to=52" class="odd">1 above the band at 50\u00a0%</a>' in text
    assert "from 50" not in text
