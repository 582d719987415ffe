"""A model trained on one state of the plant and used on another: what replay and run say, and that the advice works."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared import monitor
from streamad.commands.shared.console import VisibleConsole
from tests.support.runtime.cli import CliPlant, Outcome

N = 40
RATE = 0.1


def write_day(plant: CliPlant, path: str, seed: int, *, unit: float = 1.0, shift: float = 0.0, n: int = N) -> None:
    """Write ``n`` normal sequences whose pressure has another unit, and whose temp lies ``shift`` higher."""
    rng = random.Random(seed)
    file = plant.folder / path
    file.parent.mkdir(exist_ok=True)
    lines = []
    for i in range(n):
        message = json.loads(plant.message(f"r{1 + i % 2}", f"day{seed}-{i}", (seed * 1_000 + i) * 30.0, rng))
        message["values"] = [[temp + shift, pressure * unit] for temp, pressure in message["values"]]
        lines.append(json.dumps(message))
    file.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plant whose model is trained on ``both/day1.jsonl``, with three more days."""
    folder = tmp_path_factory.mktemp("shifted")
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant = CliPlant(folder, None, monkeypatch)  # type: ignore[arg-type]  # only writes files here
        plant.write_config(
            model={"recordings": None, "detector": "nearest", "options": {}, "references": []},
            alerts={"false_alarm_rate": RATE},
            sinks={"events": "out/events.jsonl"},
        )
        write_day(plant, "both/day1.jsonl", 1)
        write_day(plant, "recordings/day2.jsonl", 2)
        write_day(plant, "shifted/day3.jsonl", 3, unit=1_000.0)
        monkeypatch.chdir(folder)
        outcome = CliRunner().invoke(app, ["train", "both", "--config", str(plant.config)])
    assert outcome.exit_code == 0, outcome.output
    return folder


@pytest.fixture
def trained(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    """The plant, a copy for each test."""
    shutil.copytree(folder, tmp_path / "plant")
    return CliPlant(tmp_path / "plant", capsys, monkeypatch)


def notes(outcome: Outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    text = outcome.out.replace("\n", " ")
    return [" ".join(part.split()) for part in text.split("note: ")[1:]]


def events(plant: CliPlant) -> list[str]:
    return [event["kind"] for event in plant.lines("events")]


def test_replay_names_the_channel_and_its_unit_and_a_day_like_training_is_quiet(trained: CliPlant) -> None:
    assert not [line for line in notes(trained("replay --quiet")) if "far too many" in line]
    fact, channel, remedy = [line for line in notes(trained("replay shifted --quiet")) if "extrapolated" not in line]
    assert fact.startswith(f"{N} of the latest {N} judged sequences alert, since 20")
    assert f"the configured rate is {RATE:g}" in fact
    assert channel.startswith("pressure: level 3190 bar, in training 3.1")
    assert channel.endswith("(another unit or scaling? it fits 1000 times)")
    assert "check units and scaling" in remedy
    assert "streamad train 'FOLDER/*'" in remedy


def test_training_on_both_as_advised_makes_the_shifted_day_normal(trained: CliPlant) -> None:
    write_day(trained, "shifted/day3.jsonl", 3, shift=30.0)
    write_day(trained, "later/day4.jsonl", 4, shift=30.0)
    before = notes(trained("replay later --quiet"))
    assert any(line.startswith("temp: level ") for line in before)
    command = next(line for line in before if "streamad train" in line).partition("recordings: streamad ")[2]
    command = command.partition(";")[0].replace("FOLDER", "both")
    (trained.folder / "shifted/day3.jsonl").rename(trained.folder / "both/day3.jsonl")
    assert trained(" ".join(shlex.split(command))).code == 0
    assert not [line for line in notes(trained("replay later --quiet")) if "far too many" in line]


def test_json_has_the_figures(trained: CliPlant) -> None:
    found = trained("replay shifted --json").last_json["many_alerts"]["default"]
    assert (found["n_alerts"], found["n_judged"], found["is_over"]) == (N, N, False)
    (channel,) = found["channels"]
    assert (channel["channel"], channel["hint"], channel["unit"]) == ("pressure", "1000 times", "bar")
    assert trained("replay --json").last_json["many_alerts"] == {}


def test_replay_gives_the_event_as_run_does(trained: CliPlant) -> None:
    said = []
    for folder in ("first", "second"):
        assert trained(f"replay shifted --quiet --out {folder}").code == 0
        (line,) = (trained.folder / folder / "events.jsonl").read_text().splitlines()
        event = json.loads(line)
        said.append((event["kind"], event["message"], event["figures"]))
    assert said[0] == said[1]
    assert said[0][0] == "many_alerts"


def test_a_quiet_replay_prints_no_event_and_says_many_alerts_with_its_figures(trained: CliPlant) -> None:
    done = trained("replay shifted --quiet")
    assert done.err == ""
    assert "note: " in done.out
    assert "alert" in done.out[done.out.index("note: ") :]


@pytest.mark.parametrize("how", ["", "--json"])
def test_replay_prints_an_event_as_a_line_of_text(trained: CliPlant, how: str) -> None:
    said = trained(f"replay shifted {how}").err.splitlines()
    (line,) = [line for line in said if "many_alerts" in line]
    assert line.startswith("EVENT many_alerts: ")
    assert not [line for line in said if line.startswith("{")]


def test_at_a_terminal_a_quiet_run_prints_an_event_as_any_other_does_and_else_it_is_in_its_log(
    trained: CliPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.write_config(source={"url": "shifted"}, model={"recordings": None, "detector": "nearest", "options": {}})
    (line,) = [line for line in trained("run --quiet").err.splitlines() if "many_alerts" in line]
    assert (json.loads(line)["event"], json.loads(line)["level"]) == ("many_alerts", "warning")
    shutil.rmtree(trained.folder / "checkpoint")
    terminal = VisibleConsole(stderr=True, force_terminal=True, no_color=True, width=400, soft_wrap=True)
    monkeypatch.setattr(monitor, "err", terminal)
    (line,) = [line for line in trained("run --quiet").err.splitlines() if "many_alerts" in line]
    assert "EVENT many_alerts: " in line


def test_run_says_it_as_an_event_once_and_in_its_summary_and_a_second_run_too(trained: CliPlant) -> None:
    trained.write_config(
        source={"url": "shifted"},
        model={"recordings": None, "detector": "nearest", "options": {}},
        alerts={"false_alarm_rate": RATE},
        sinks={"events": "out/events.jsonl"},
    )
    first = notes(trained("run --quiet"))
    assert any("far too many" in line for line in first)
    assert events(trained) == ["many_alerts"]
    (event,) = trained.lines("events")
    assert "pressure: level" in event["message"]
    assert event["model"] == {"name": "default", "version": "0001"}
    assert event["figures"]["configured_rate"] == RATE
    write_day(trained, "shifted/day5.jsonl", 5, unit=1_000.0)
    assert any("far too many" in line for line in notes(trained("run --quiet")))
    assert events(trained) == ["many_alerts"] * 2
    verdicts = [verdict["sequence"] for verdict in trained.lines("verdicts")]
    assert len(verdicts) == len(set(verdicts)) == 2 * N


def test_with_labels_faults_alone_say_nothing(trained: CliPlant) -> None:
    labels = "".join(f"day3-{i},1\n" for i in range(N))
    (trained.folder / "labels.csv").write_text(f"sequence,label\n{labels}")
    replayed = trained("replay shifted --quiet --labels labels.csv")
    assert not [line for line in notes(replayed) if "far too many" in line]
    (trained.folder / "labels.csv").write_text(f"sequence,label\n{labels.replace(',1', ',0')}")
    lines = notes(trained("replay shifted --quiet --labels labels.csv"))
    assert any("sequences labelled normal alert" in line for line in lines)
    assert any("or the labels are wrong" in line for line in lines)


@pytest.mark.parametrize("n", [1, 9])
def test_few_sequences_say_nothing(trained: CliPlant, n: int) -> None:
    write_day(trained, "shifted/day3.jsonl", 3, unit=1_000.0, n=n)
    assert not [line for line in notes(trained("replay shifted --quiet")) if "far too many" in line]
