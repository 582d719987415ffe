"""streamad simulate: what it writes works at once, is reproducible, and is never overwritten by accident."""

import csv
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.errors import OutputError
from streamad.settings import load_settings
from streamad.simulation import CHANNELS
from streamad.wiring import sink_urls

SMALL = ("--train", "4", "--normal", "3", "--faulty", "2")


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def labels(folder: Path) -> list[dict[str, str]]:
    with (folder / "labels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def times(folder: Path) -> list[float]:
    lines = (folder / "recordings.jsonl").read_text().splitlines()
    return [time for line in lines for time in json.loads(line)["times"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "demo"
    result = simulate("--out", str(folder), *SMALL)
    assert result.exit_code == 0, result.output
    return folder


def test_the_config_fits_the_recordings(folder: Path) -> None:
    settings = load_settings(folder / "plant.yaml")
    assert [(channel.name, channel.unit) for channel in settings.channels] == list(CHANNELS)
    assert (folder / settings.source.url).is_file()
    assert (folder / str(settings.model.recordings)).is_file()
    assert settings.alerts.false_alarm_rate == 0.02
    roles = sink_urls(settings)
    assert len(roles) == 6
    assert roles == {role: f"out/{role}.jsonl" for role in roles}


def test_learning_batches_are_normal_and_older_than_all_others(folder: Path) -> None:
    assert [row["label"] for row in labels(folder / "train")] == ["0"] * 4
    assert sorted(row["label"] for row in labels(folder / "live")) == ["0", "0", "0", "1", "1"]
    assert max(times(folder / "train")) < min(times(folder / "live"))
    ids = [row["sequence"] for part in ("train", "live") for row in labels(folder / part)]
    assert len(set(ids)) == 9


@pytest.mark.parametrize("streams", [2, 5])
def test_batches_of_a_stream_never_overlap_when_the_counts_do_not_divide(tmp_path: Path, streams: int) -> None:
    arguments = ("--train", "1", "--normal", "2", "--faulty", "0", "--streams", str(streams))
    assert simulate("--out", str(tmp_path / "demo"), *arguments).exit_code == 0
    assert max(times(tmp_path / "demo/train")) < min(times(tmp_path / "demo/live"))


def test_the_same_seed_gives_the_same_files(folder: Path, tmp_path: Path) -> None:
    simulate("--out", str(tmp_path / "same"), *SMALL)
    simulate("--out", str(tmp_path / "other"), *SMALL, "--seed", "1")
    for name in ("train/recordings.jsonl", "live/recordings.jsonl", "live/labels.csv", "plant.yaml"):
        assert (tmp_path / "same" / name).read_bytes() == (folder / name).read_bytes()
    assert (tmp_path / "other/train/recordings.jsonl").read_bytes() != (folder / "train/recordings.jsonl").read_bytes()


@pytest.mark.parametrize("name", ["plant.yaml", "train/recordings.jsonl", "live/labels.csv"])
def test_nothing_is_overwritten_without_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    result = simulate("--out", str(tmp_path), *SMALL)
    assert isinstance(result.exception, OutputError)
    assert "--force" in str(result.exception)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert simulate("--out", str(tmp_path), *SMALL, "--force").exit_code == 0
    assert (tmp_path / name).read_text() != "mine"


def test_without_faulty_ones_and_without_training(tmp_path: Path) -> None:
    result = simulate("--out", str(tmp_path), "--train", "0", "--normal", "1", "--faulty", "0", "--json")
    written = json.loads(result.stdout)
    assert set(written) == {"config", "live"}
    assert (written["live"]["normal"], written["live"]["faulty"]) == (1, 0)
    settings = load_settings(tmp_path / "plant.yaml")
    assert settings.source.url == "live/recordings.jsonl"
    assert settings.model.recordings is None
    assert not (tmp_path / "train").exists()


def test_training_recordings_alone(tmp_path: Path) -> None:
    result = simulate("--out", str(tmp_path), "--train", "1", "--normal", "0", "--faulty", "0")
    assert result.exit_code == 0
    assert "streamad train" in result.stdout
    assert load_settings(tmp_path / "plant.yaml").source.url == "train/recordings.jsonl"
    assert not (tmp_path / "live").exists()


def test_nothing_at_all_is_a_wrong_usage(tmp_path: Path) -> None:
    result = simulate("--out", str(tmp_path), "--train", "0", "--normal", "0", "--faulty", "0")
    assert result.exit_code == 2


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = simulate("--out", str(tmp_path / "file"), *SMALL)
    assert isinstance(result.exception, OutputError)
    assert str(tmp_path / "file") in str(result.exception)


def test_what_was_written_and_the_next_commands_are_said(tmp_path: Path) -> None:
    result = simulate("--out", str(tmp_path / "my demo"), "--train", "1", "--normal", "1", "--faulty", "1")
    assert result.stdout.splitlines()[-4:] == [
        f"next: cd '{tmp_path}/my demo'",
        "      streamad train",
        "      streamad run",
        "or, to compare with the truth instead: streamad replay --labels live/labels.csv",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a place where no folder can be made")
def test_a_place_where_no_folder_can_be_made_is_told_as_such() -> None:
    result = simulate("--out", "/proc/plant", *SMALL)
    assert isinstance(result.exception, OutputError)
    text = str(result.exception)
    assert text.startswith("cannot write /proc/plant/train: ")
    assert text.endswith("cannot be made here: make it, or choose another folder")
