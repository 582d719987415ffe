"""A table of batches through the commands: train, score, replay, run and check cut by it, day by day as all at once."""

from __future__ import annotations

import json
import math
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.errors import StreamadError

ZERO = datetime(2026, 3, 1, tzinfo=UTC)
N_TRAINED, N_SAMPLES, STEP_S = 24, 12, 10
TAKEN_S = 15 * STEP_S


class Batch(NamedTuple):
    """A batch of 12 samples and a pause of 3."""

    number: int
    is_odd: bool = False

    @property
    def begin(self) -> datetime:
        return ZERO + timedelta(seconds=self.number * TAKEN_S)

    def row(self, *, runs: bool = False) -> str:
        end = "" if runs else f"{self.begin + timedelta(seconds=N_SAMPLES * STEP_S):%Y-%m-%dT%H:%M:%SZ}"
        return f"r1,B-{self.number},{self.begin:%Y-%m-%dT%H:%M:%SZ},{end},PX"

    def samples(self) -> list[str]:
        lines = []
        for place in range(15):
            time = self.begin + timedelta(seconds=place * STEP_S)
            value = math.sin(place / 4) + (5 if self.is_odd and place > 5 else 0) + (self.number * place) % 7 / 50
            lines.append(f"r1,{time:%Y-%m-%dT%H:%M:%SZ},{value:.3f},{place / 10 + self.number % 5 / 50:.3f}")
        return lines


JUDGED = [Batch(number, is_odd=number == 27) for number in range(N_TRAINED, 32)]


def write_table(folder: Path, batches: list[Batch], *, runs: bool = False) -> None:
    rows = [batch.row() for batch in batches]
    if runs:
        rows[-1] = batches[-1].row(runs=True)
    (folder / "batches.csv").write_text("\n".join(["unit,id,begin,end,recipe", *rows]) + "\n")


def write_csv(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["unit,ts,temp,pressure", *lines]) + "\n")


def write_plant(folder: Path, **sections: Any) -> Path:
    config = {
        "channels": [{"name": "temp"}, {"name": "pressure"}],
        "source": {"url": "rec/*.csv", "options": {"files": "joined"}},
        "decode": {"fields": {"stream": "unit", "sequence": None, "time": "ts", "values": None}},
        "sequences": {"end": ["table"], "table": {"file": "batches.csv", "stream": "unit"}},
        "window": {"length": 16},
        "model": {"recordings": "train/*.csv", "detector": "nearest", "references": []},
        "sinks": {"alerts": "out/alerts.jsonl", "verdicts": "out/verdicts.jsonl"},
    }
    path = folder / "plant.yaml"
    path.write_text(yaml.safe_dump({**config, **sections}))
    return path


def streamad(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*arguments])
    assert done.exit_code == code, done.output
    return done


def refused(*arguments: str, code: int) -> str:
    """Return what the command says in refusing."""
    error = CliRunner().invoke(app, [*arguments]).exception
    assert isinstance(error, StreamadError)
    assert error.exit_code == code
    return str(error)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plant with a model of the first 24 batches."""
    folder = tmp_path_factory.mktemp("table")
    trained = [Batch(number) for number in range(N_TRAINED)]
    write_csv(folder / "train" / "normal.csv", [line for batch in trained for line in batch.samples()])
    write_csv(folder / "rec" / "day-1.csv", [line for batch in JUDGED for line in batch.samples()])
    write_table(folder, [*trained, *JUDGED])
    done = streamad("train", "-c", str(write_plant(folder)))
    assert "trained on 24 sequences" in done.output
    assert f"in no sequence: {24 * 3} samples" in done.output
    return folder


@pytest.fixture
def plant(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, nothing of which was judged."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def verdicts(folder: Path) -> list[tuple[str, str, str, int]]:
    lines = [json.loads(line) for line in (folder / "out" / "verdicts.jsonl").read_text().splitlines()]
    return [(one["sequence"], one["decision"], one["reason"], one["n_samples"]) for one in lines]


def expected(batches: list[Batch]) -> list[tuple[str, str, str, int]]:
    return [(f"B-{one.number}", "anomalous" if one.is_odd else "normal", "table", N_SAMPLES) for one in batches]


def test_check_run_replay_and_score_cut_by_the_table(plant: Path) -> None:
    config = str(plant / "plant.yaml")
    found = {each["check"]: each for each in json.loads(streamad("check", "--json", "-c", config).output)["checks"]}
    assert found["sequences.table"]["outcome"] == "ok"
    assert found["sequences.table"]["message"] == (
        "32 rows of 1 stream, 8 lie within the samples' times; 24 of 120 samples are in none"
    )
    assert found["sequences"]["message"] == "8 sequences ended: 8 by table"
    streamad("run", "--quiet", "-c", config)
    assert verdicts(plant) == expected(JUDGED)
    replayed = json.loads(streamad("replay", "--json", "-c", config, "--out", str(plant / "again")).output)
    assert replayed["counters"]["outside"] == 24
    judged = [json.loads(line) for line in (plant / "again" / "verdicts.jsonl").read_text().splitlines()]
    of_run = [json.loads(line) for line in (plant / "out" / "verdicts.jsonl").read_text().splitlines()]
    assert [one | {"created_at": ""} for one in judged] == [one | {"created_at": ""} for one in of_run]
    lines = streamad("score", "--json", "-c", config).output.splitlines()
    scored = [json.loads(line) for line in lines if line.startswith("{")]
    assert [one["sequence"] for one in scored] == [f"B-{one.number}" for one in JUDGED]


@pytest.mark.parametrize("files", ["joined", "separate"])
def test_day_by_day_with_a_growing_table_equals_all_at_once(plant: Path, files: str) -> None:
    config = str(write_plant(plant, source={"url": "rec/*.csv", "options": {"files": files}}))
    trained = [Batch(number) for number in range(N_TRAINED)]
    lines = [line for batch in JUDGED for line in batch.samples()]
    # The day ends amid B-26, which is no row yet, then amid B-29, which runs still.
    for stop, known, runs in ((35, JUDGED[:2], False), (80, JUDGED[:6], True), (120, JUDGED, False)):
        write_csv(plant / "rec" / "day-1.csv", lines[:stop])
        write_table(plant, [*trained, *known], runs=runs)
        streamad("run", "--quiet", "-c", config)
        streamad("run", "--quiet", "-c", config)  # nothing is new
    assert verdicts(plant) == expected(JUDGED)


def test_a_batch_that_runs_still_is_held_and_said_so(plant: Path) -> None:
    config = str(plant / "plant.yaml")
    write_table(plant, [Batch(number) for number in range(N_TRAINED)] + JUDGED, runs=True)
    for command in (["run"], ["replay"], ["score", "-q"]):
        assert "1 sequence held: the next run may bring the rest" in streamad(*command, "-c", config).output
    assert verdicts(plant) == expected(JUDGED[:-1])
    write_table(plant, [Batch(number) for number in range(N_TRAINED)] + JUDGED)
    streamad("run", "--quiet", "-c", config)
    assert verdicts(plant) == expected(JUDGED)


def test_a_table_that_changes_ends_the_run_with_one_line(plant: Path) -> None:
    config = str(plant / "plant.yaml")
    streamad("run", "--quiet", "-c", config)
    table = plant / "batches.csv"
    written = table.read_text()
    table.write_text(written.replace("B-25", "B-XX"))
    said = refused("run", "-c", config, code=1)
    assert "batches.csv: the first 32 rows of r1, in the order of time, changed" in said
    assert len(said.splitlines()) == 1
    table.write_text(written)
    streamad("run", "--quiet", "-c", config)
    assert verdicts(plant) == expected(JUDGED)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"url": "kafka://localhost:1/samples"}, "kafka is live: judge a range of it (streamad replay --since 7d)"),
        ({"url": "rec/day-1.csv", "options": {"follow": True}}, "leave follow out"),
        ({"url": "rec/day-1.csv?follow=true"}, "leave follow out"),
    ],
)
def test_a_live_source_is_refused(plant: Path, source: dict[str, Any], words: str) -> None:
    config = str(write_plant(plant, source=source))
    said = refused("run", "-c", config, code=2)
    assert "sequences.table (line" in said
    assert words in said
    checks = json.loads(streamad("check", "--fast", "--json", "-c", config, code=1).output)["checks"]
    assert any(each["check"] == "sequences.table" and words in each["message"] for each in checks)


def test_a_bad_table_is_refused_by_every_command(plant: Path) -> None:
    config = str(plant / "plant.yaml")
    write_table(plant, [JUDGED[1], JUDGED[1]])
    for command in ("run", "replay", "train", "score"):
        said = refused(command, "-c", config, code=2)
        assert "sequences.table (line" in said
        assert "batches.csv: line 3: B-25 of r1 stands in line 2, too" in said
    checks = json.loads(streamad("check", "--fast", "--json", "-c", config, code=1).output)["checks"]
    assert [each["message"] for each in checks if each["check"] == "sequences.table"] == [
        "batches.csv: line 3: B-25 of r1 stands in line 2, too"
    ]


def of_table(config: str, code: int = 0) -> list[tuple[str, str]]:
    """Return outcome and message of what ``check`` says of the table."""
    checks = json.loads(streamad("check", "--fast", "--json", "-c", config, code=code).output)["checks"]
    return [(each["outcome"], each["message"]) for each in checks if each["check"] == "sequences.table"]


def test_check_names_rows_without_samples_and_streams_of_other_names(plant: Path) -> None:
    config = str(plant / "plant.yaml")
    lines = [line for batch in JUDGED if batch.number != 26 for line in batch.samples()]
    write_csv(plant / "rec" / "day-1.csv", lines)
    ((outcome, message),) = of_table(config)
    assert outcome == "warning"
    assert "1 row has no samples, such as B-26 of r1 (line 28)" in message
    table = plant / "batches.csv"
    table.write_text(table.read_text().replace("r1,", "R1,"))
    said = "32 rows of 1 stream, none of {} samples lies in one: the rows are of R1, the samples of r1"
    assert of_table(config, code=1) == [
        ("failed", said.format(105)),
        ("failed", f"model.recordings: {said.format(360)}"),
    ]
    assert "no sample lies in a sequence: streamad check says why" in streamad("replay", "-c", config).output


def test_the_table_must_lie_apart_from_recordings_and_outputs(plant: Path) -> None:
    config = str(write_plant(plant, source={"url": "*.csv"}))
    assert "batches.csv would be read as recordings (source.url: *.csv)" in refused("run", "-c", config, code=2)
    config = str(write_plant(plant, sinks={"alerts": "batches.csv"}))
    assert "sequences.table: batches.csv" in refused("run", "-c", config, code=2)
