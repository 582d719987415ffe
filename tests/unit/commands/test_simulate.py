"""streamad simulate: what it writes works at once, is reproducible, and is never overwritten by accident."""

import csv
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.errors import OutputError, StreamadError, UsageError
from streamad.settings.outputs import EarlySettings
from streamad.settings.places import sink_urls
from streamad.settings.plant_yaml import load_settings
from streamad.simulation.faults import CHANNELS
from streamad_connectors import memory
from tests.support.waiting import LIMIT_S

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
    assert len(roles) == 9
    assert settings.alerts.early == EarlySettings()
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
    assert result.stdout.splitlines()[-1] == f"wrote {tmp_path}/plant.yaml", "it leads to no other command"
    assert load_settings(tmp_path / "plant.yaml").source.url == "train/recordings.jsonl"
    assert not (tmp_path / "live").exists()


def test_nothing_at_all_is_a_wrong_usage(tmp_path: Path) -> None:
    result = simulate("--out", str(tmp_path), "--train", "0", "--normal", "0", "--faulty", "0")
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "nothing to simulate: --train, --normal and --faulty are all 0"


@pytest.mark.parametrize("inside", [".", "sub", "sub/sub"])
def test_a_file_in_the_way_is_named_before_anything_is_simulated(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("kept")
    result = simulate("--out", str(tmp_path / "file" / inside), "--train", "10000000")  # which would take hours
    assert isinstance(result.exception, OutputError)
    assert f"{tmp_path / 'file'} is a file" in str(result.exception)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("taken", ["plant.yaml", "train/recordings.jsonl", "live/labels.csv"])
def test_a_folder_in_the_place_of_a_file_is_named_before_anything_is_simulated(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).mkdir(parents=True)
    result = simulate("--out", str(tmp_path), "--force", "--train", "10000000")
    assert isinstance(result.exception, OutputError)
    assert f"cannot write {tmp_path / taken}: Is a directory" in str(result.exception)


def test_the_written_files_and_the_next_commands_are_printed(tmp_path: Path) -> None:
    result = simulate("--out", str(tmp_path / "my demo"), "--train", "1", "--normal", "1", "--faulty", "1")
    assert result.stdout.splitlines()[-4:] == [
        f"next: cd '{tmp_path}/my demo'",
        "      streamad train",
        "      streamad run",
        "or, to compare with the truth instead: streamad replay --labels live/labels.csv",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a place where no folder can be made")
def test_a_path_where_no_folder_can_be_made_is_reported() -> None:
    result = simulate("--out", "/proc/plant", *SMALL)
    assert isinstance(result.exception, OutputError)
    text = str(result.exception)
    assert text.startswith("cannot write /proc/plant/train: ")
    assert text.endswith("cannot be made here: make it, or choose another folder")


# --- fed to a broker: --to ---


@pytest.fixture
def place() -> Iterator[str]:
    """A place in memory that can be fed."""
    memory.clear("simulated")
    yield "memory:simulated"
    memory.clear("simulated")


def test_at_full_speed_all_is_fed_and_lies_in_the_past(place: str, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    arguments = ("--speed", "max", "--batches", "8", "--fault-share", "0.5", "--chunk", "50", "--labels", str(labels))
    result = simulate("--to", place, *arguments, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["to"], told["batches"], told["faulty"], told["interrupted"]) == (place, 8, 4, False)
    assert datetime.fromisoformat(told["last_time"]) < datetime.now().astimezone()
    with labels.open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)].count("1") == 4
    messages = [json.loads(record.value) for record in memory.records("simulated")]
    assert told["messages"] == len(messages)
    assert told["samples"] == sum(len(message["times"]) for message in messages)


def test_what_is_fed_comes_after_what_was_trained_on(place: str) -> None:
    simulate("--to", place, "--speed", "max", "--batches", "2", "--train", "3", "--streams", "2")
    sequences = {json.loads(record.value)["sequence"][-6:] for record in memory.records("simulated")}
    assert sequences == {"B-0005", "B-0006"}  # batch 4 was left out: the live ones begin on the first fermenter


def test_fed_by_the_clock_the_plant_runs_faster_and_its_times_are_the_clocks(place: str) -> None:
    before = datetime.now().astimezone()
    result = simulate("--to", place, "--speed", "36000", "--batches", "1", "--streams", "1")
    assert result.exit_code == 0, result.output
    after = datetime.now().astimezone()
    seconds = [json.loads(record.value)["time"] for record in memory.records("simulated")]
    assert before.timestamp() - 0.001 <= seconds[0] <= seconds[-1] <= after.timestamp()
    assert seconds[1] - seconds[0] == pytest.approx(600 / 36000, abs=1e-5)
    assert "fed 1 whole batches" in result.stdout
    assert "-B-0201" in result.stderr


def test_with_a_start_the_plants_own_time_is_kept(place: str) -> None:
    simulate("--to", place, "--speed", "max", "--batches", "1", "--streams", "1", "--start", "2026-03-01T06:00:00Z")
    seconds = [json.loads(record.value)["time"] for record in memory.records("simulated")]
    assert seconds[0] == datetime.fromisoformat("2026-03-01T06:00:00Z").timestamp()
    assert {round(b - a) for a, b in itertools.pairwise(seconds)} == {600}


def test_a_start_may_be_so_long_ago(place: str) -> None:
    result = simulate("--to", place, "--speed", "max", "--batches", "1", "--start", "3d", "--json")
    first = datetime.fromisoformat(json.loads(result.stdout)["first_time"])
    assert abs(datetime.now().astimezone() - timedelta(days=3) - first) < timedelta(minutes=5)


def test_a_limited_time(place: str) -> None:
    result = simulate("--to", place, "--for", "500ms", "--speed", "36000", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert not told["interrupted"]
    assert told["messages"] >= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "either --out DIR"),
        (("--out", "x", "--to", "memory:simulated"), "either --out DIR"),
        (("--out", "x", "--speed", "10"), "--speed goes with --to"),
        (("--out", "x", "--for", "1s"), "--for goes with --to"),
        (("--to", "memory:simulated", "--normal", "10"), "--normal goes with --out"),
        (("--to", "memory:simulated", "--force"), "--force goes with --out"),
        (("--to", "memory:simulated", "--speed", "0"), "--speed 0: must be"),
        (("--to", "memory:simulated", "--speed", "1e7"), "at most 1000000"),
        (("--to", "memory:simulated", "--speed", "nan"), "--speed nan: must be"),
        (("--to", "memory:simulated", "--speed", "max"), "needs --batches or --start"),
        (("--to", "memory:simulated", "--for", "soon"), "--for 'soon' is not a duration"),
        (("--to", "memory:simulated", "--start", "soon"), "--start soon: is no time"),
        (("--to", "nowhere:simulated"), "no feed 'nowhere'"),
        (("--to", "memory:simulated?colour=red"), "unknown key 'colour'"),
    ],
)
def test_a_usage_error_is_reported_and_nothing_is_fed(place: str, arguments: tuple[str, ...], words: str) -> None:
    result = simulate(*arguments)
    assert isinstance(result.exception, StreamadError)
    assert result.exception.exit_code == 2
    assert words in str(result.exception)
    assert memory.records("simulated") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_endless_feed_with_a_summary(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "streamad", "simulate", "--to", "memory:simulated", "--speed", "360000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:  # the first batch is through: the feed runs
            if b"-B-0201" in line:
                break
        process.send_signal(number)
        told, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert b"interrupted after" in told
