"""What is wrong with a config beyond its own keys: said before anything starts, all at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import check_parts
from streamad.errors import ClockError, ConfigError
from streamad.plant import Plant
from streamad.runtime.wiring import check_clock, source_for
from streamad.settings.plant_yaml import Settings
from streamad.testing import ManualClock
from streamad.types import PartitionAssigned, RecordBatch


def test_a_clock_that_shows_a_time_that_has_passed_is_refused(tmp_path: Path) -> None:
    settings = Settings(channels=[{"name": "temp_c"}], source={"url": "rec"})  # type: ignore[list-item, arg-type]
    in_1970, in_2030 = ManualClock(0), ManualClock(1_900_000_000_000_000)
    with pytest.raises(ClockError, match=r"shows 1970-01-01 00:00 UTC, but this release of streamad is from 2026-"):
        check_clock(Plant(settings, tmp_path, in_1970))
    check_clock(Plant(settings, tmp_path, in_2030))
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "start.json").touch()
    os.utime(tmp_path / "checkpoint" / "start.json", (1_900_003_600, 1_900_003_600))
    check_clock(Plant(settings, tmp_path, in_2030))
    os.utime(tmp_path / "checkpoint" / "start.json", (1_900_003_601, 1_900_003_601))
    wrong = r"shows 2030-03-17 17:46 UTC, but the checkpoint is from 2030-03-17 18:46.*; if it is right now, touch "
    with pytest.raises(ClockError, match=wrong):
        check_clock(Plant(settings, tmp_path, in_2030))
    os.utime(tmp_path / "checkpoint" / "start.json")
    check_clock(Plant(settings, tmp_path, in_2030))


def problems(folder: Path, source: str, recordings: str | None = None, **sinks: str) -> dict[str, str]:
    settings = Settings(
        channels=[{"name": "temp_c"}],  # type: ignore[list-item]
        source={"url": source},  # type: ignore[arg-type]
        model={"recordings": recordings},  # type: ignore[arg-type]
        sinks=sinks,  # type: ignore[arg-type]
    )
    found = check_parts(Plant(settings, folder, ManualClock()))
    assert len({problem.path for problem in found}) == len(found)
    return {problem.path: problem.message for problem in found}


@pytest.mark.parametrize(
    ("source", "alerts", "is_read"),
    [
        ("rec/", "rec/zalerts.jsonl", True),
        ("rec", "file:rec/../rec/zalerts.jsonl", True),
        ("rec/day.jsonl", "rec/day.jsonl", True),
        ("rec/*.jsonl", "rec/alerts.jsonl", True),
        ("rec/day-?.jsonl", "rec/day-a.jsonl", True),
        ("rec/day-[ab].jsonl", "rec/day-b.jsonl", True),
        ("rec/**/*.jsonl", "rec/alerts.jsonl", True),
        ("rec/**/*.jsonl", "rec/deep/er/alerts.jsonl", True),
        ("**/alerts.jsonl", "alerts.jsonl", True),
        ("file:rec?stream=r1", "rec/alerts.jsonl", True),
        ("rec/", "rec/out/alerts.jsonl", False),  # of a folder, only the files directly in it are read
        ("rec/", "alerts.jsonl", False),
        ("rec/*.jsonl", "rec/alerts.log", False),
        ("rec/*.jsonl", "rec/deep/alerts.jsonl", False),
        ("rec/**/day.jsonl", "rec/deep/alerts.jsonl", False),
        ("rec/day-[ab].jsonl", "rec/day-c.jsonl", False),
        ("memory:alerts.jsonl", "alerts.jsonl", False),
        ("rec/", "stdout:", False),
    ],
)
def test_no_sink_may_write_where_the_source_reads(tmp_path: Path, source: str, alerts: str, is_read: bool) -> None:
    found = problems(tmp_path, source, alerts=alerts, events="out/events.jsonl")
    assert list(found) == ["sinks.alerts"] * is_read
    assert all(f"would be read as recordings (source.url: {source})" in message for message in found.values())


def test_a_link_to_the_source_is_where_the_source_reads(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "rec")
    assert list(problems(tmp_path, "rec", alerts="out/alerts.jsonl")) == ["sinks.alerts"]


def test_a_sink_that_is_a_folder_is_no_question_of_the_config(tmp_path: Path) -> None:
    assert list(problems(tmp_path, "rec", alerts="rec")) == ["sinks.alerts"]
    (tmp_path / "rec").mkdir()
    assert problems(tmp_path, "rec", alerts="rec") == {}


def test_a_home_folder_is_meant_where_the_source_means_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert list(problems(tmp_path, "~/rec", alerts="rec/alerts.jsonl")) == ["sinks.alerts"]


def test_no_sink_may_write_where_training_reads(tmp_path: Path) -> None:
    (message,) = problems(tmp_path, "live", "normal/*.jsonl", verdicts="normal/verdicts.jsonl").values()
    assert "(model.recordings: normal/*.jsonl)" in message


def test_no_two_roles_may_share_a_file(tmp_path: Path) -> None:
    found = problems(
        tmp_path, "rec", alerts="out/all.jsonl", events="file:out/x/../all.jsonl", verdicts="out/all.jsonl"
    )
    assert set(found) == {"sinks.events", "sinks.verdicts"}
    assert all("is also the file of sinks.alerts" in message for message in found.values())


def test_two_roles_may_share_standard_output(tmp_path: Path) -> None:
    assert problems(tmp_path, "rec", alerts="stdout:", events="stdout:") == {}


@pytest.mark.parametrize("command", ["run", "replay", "train", "score"])
def test_a_command_reports_every_problem_before_it_writes_anything(tmp_path: Path, command: str) -> None:
    config: dict[str, Any] = {
        "channels": [{"name": "temp_c"}],
        "source": {"url": "rec/"},
        "model": {"options": {"epoch": 3}},
        "sinks": {"alerts": "rec/zalerts.jsonl", "late": "out/all.jsonl", "events": "out/all.jsonl"},
    }
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec/day.jsonl").write_text(json.dumps({"stream": "r1", "time": 0, "values": {"temp_c": 1}}) + "\n")
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, [command, "-c", str(tmp_path / "plant.yaml")])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == 2
    named = {problem.path for problem in result.exception.problems}
    assert named == {"model.options.epoch", "sinks.alerts", "sinks.events"}
    assert sorted(tmp_path.rglob("*")) == before


async def test_recordings_of_the_sources_kind_are_read_with_its_options(tmp_path: Path) -> None:
    settings = Settings(
        channels=[{"name": "x"}],  # type: ignore[list-item]
        source={"url": "live.csv", "options": {"decimal": ","}},  # type: ignore[arg-type]
    )
    plant = Plant(settings, tmp_path, ManualClock())

    (tmp_path / "other.csv").write_text("time;x\n0;1,5\n", encoding="utf-8")
    (tmp_path / "other.jsonl").write_text('{"x": 1}\n', encoding="utf-8")

    async def first_value(url: str) -> bytes:
        source = source_for(plant, url)
        async for event in source.batches():
            if isinstance(event, PartitionAssigned):
                await source.seek(event.partition, None)
            elif isinstance(event, RecordBatch) and event.records:
                return event.records[0].value
        raise AssertionError("no record")

    read = [msgspec.msgpack.decode(await first_value(url))["x"] for url in ("other.csv", "other.csv?text=x")]
    assert read == [1.5, "1,5"]
    assert await first_value("other.jsonl") == b'{"x": 1}'  # which would refuse the option


def test_the_parts_of_a_plant_that_learns_make_no_store(tmp_path: Path) -> None:
    settings = Settings(
        channels=[{"name": "temp_c"}],  # type: ignore[list-item]
        source={"url": "rec"},  # type: ignore[arg-type]
        learning={},  # type: ignore[arg-type]
    )
    assert check_parts(Plant(settings, tmp_path, ManualClock())) == []
    assert list(tmp_path.iterdir()) == []
