"""``streamad replay --plot``: a picture of each alert, with a name that is safe, and no more than said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streamad.commands import replay
from streamad.commands.replay import file_name
from tests.support.pictures import facts_of
from tests.support.runtime.cli import CliPlant
from tests.support.runtime.judged_plant import copied, judged_plant


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_plant(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def plant(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    return CliPlant(copied(judged, tmp_path / "plant"), capsys, monkeypatch)


def test_every_alert_has_a_picture_with_its_id(plant: CliPlant) -> None:
    done = plant("replay", "--quiet", "--plot", "pictures")
    assert done.code == 0, done.err
    alerts = plant.lines("alerts")
    names = sorted(path.name for path in (plant.folder / "pictures").iterdir())
    expected = sorted(f"{each['stream']}-{each['sequence']}-{each['alert_id'][:8]}.png" for each in alerts)
    assert names == expected
    assert f"{len(alerts)} pictures of {len(alerts)} alerts in pictures" in done.out


def test_the_number_of_pictures_is_bounded_and_said(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_PICTURES", 2)
    done = plant("replay", "--quiet", "--plot", "pictures")
    n = len(plant.lines("alerts"))
    assert len(list((plant.folder / "pictures").iterdir())) == 2
    assert f"note: the {n - 2} alerts after the first 2 are not drawn" in done.err


def test_json_has_the_number_of_pictures(plant: CliPlant) -> None:
    done = plant("replay", "--json", "--plot", "pictures")
    assert done.last_json["pictures"] == len(plant.lines("alerts"))


def test_names_cannot_lead_elsewhere(plant: CliPlant) -> None:
    path = plant.folder / "recordings" / "day.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["stream"], line["sequence"] = "../../<script>", f"/etc/{line['sequence']}"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = plant("replay", "--quiet", "--plot", "pictures")
    assert done.code == 0, done.err
    names = [path.name for path in (plant.folder / "pictures").iterdir()]
    assert names
    assert all(re.fullmatch(r"script-etc_recordings-\d+-[0-9a-f]{8}\.png", name) for name in names), names


@pytest.mark.parametrize("name", ["", "...", "/", "ä", "-", "x" * 300, "CON", "a b\nc"])
def test_any_name_gives_a_plain_file_name(name: str) -> None:
    found = file_name(facts_of(stream=name, sequence=name))
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*-5f5f5f5f\.png", found)
    assert len(found) < 110


@pytest.mark.parametrize(
    ("place", "words"), [("labels.csv", "is a file"), ("registry/pictures", "--plot"), ("recordings", "--plot")]
)
def test_a_file_or_a_place_of_the_plant_is_refused(plant: CliPlant, place: str, words: str) -> None:
    before = plant.files()
    plant("replay", "--quiet", "--plot", place).assert_one_line_error(words, code=2)
    assert plant.files() == before
