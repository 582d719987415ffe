"""Tests of ``streamad audit``: what it says of a log on disk, and its exit code."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.audit.command import NotWholeError
from streamad.commands.shared.plants import load_plant
from streamad.decisions.chain import Decided
from streamad.decisions.recording import record
from streamad.errors import ConfigError, UsageError
from tests.support.learning.stored import plant_of

SINKS = {"alerts": "out/alerts.jsonl", "decisions": "out/decisions.jsonl"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A plant with three entries of two writers."""
    path = plant_of(tmp_path, name="reactor", sinks=SINKS)
    plant = load_plant(path)
    record(plant, "page", [Decided("promote", "reactor 0002", "kim", "authenticated", "=tried", {"before": "0001"})])
    record(plant, "learner", [Decided("relearn", "reactor", "streamad", "program")])
    record(plant, "page", [Decided("rollback", "reactor 0001", "lee", "authenticated")])
    return path


def log(config: Path) -> Path:
    return config.parent / "out/decisions-others.jsonl"


def run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments, "--config", str(config)])


def verified(config: Path, *arguments: str) -> dict[str, Any]:
    done = run(config, "verify", "--json", *arguments)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(done.exception, NotWholeError | None)
    assert found["whole"] == (done.exit_code == 0)
    return found


def test_a_whole_log_is_said_to_be_whole_and_its_heads_are_taken_again(config: Path) -> None:
    done = run(config, "verify")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert (lines[0], lines[2]) == ("reactor/page: 2 entries, whole", "reactor/learner: 1 entry, whole")
    heads = [line.removeprefix("  head ") for line in lines[1::2]]
    assert verified(config, *(word for head in heads for word in ("--expect", head)))["whole"]
    cut = log(config).read_bytes().split(b"\n")[:2]
    log(config).write_bytes(b"\n".join(cut) + b"\n")
    assert verified(config)["whole"]
    (lost,) = verified(config, "--expect", heads[0])["lost"]
    assert lost.endswith("the chain ends at entry 1: 1 are cut off")


@pytest.mark.parametrize("at", [0, 200, -1])
def test_a_changed_byte_is_found_with_its_place_also_the_last_one(at: int, config: Path) -> None:
    content = bytearray(log(config).read_bytes())
    content[at] ^= 1
    log(config).write_bytes(bytes(content))
    found = verified(config)
    assert not found["whole"]
    assert found["damaged"]["place"].startswith(str(log(config)))
    assert found["n_damaged"] == 1


def test_a_copy_is_verified_without_a_config(config: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    done = run(config, "export", "--to", str(copy))
    assert done.exit_code == 0, done.output
    assert copy.read_bytes() == log(config).read_bytes()
    assert CliRunner().invoke(app, ["audit", "verify", str(copy)]).exit_code == 0
    copy.write_bytes(copy.read_bytes()[1:])
    assert CliRunner().invoke(app, ["audit", "verify", str(copy)]).exit_code == 1


def test_an_export_that_fails_leaves_no_file_and_none_is_written_over(config: Path, tmp_path: Path) -> None:
    to = tmp_path / "export.csv"
    failed = run(tmp_path / "nix.yaml", "export", "--format", "csv", "--to", str(to))
    assert isinstance(failed.exception, ConfigError)
    assert list(tmp_path.glob("*export*")) == []
    assert run(config, "export", "--format", "csv", "--to", str(to)).exit_code == 0
    content = to.read_bytes()
    again = run(config, "export", "--to", str(to))
    assert isinstance(again.exception, UsageError)
    assert str(again.exception) == f"{to} is there already: name another file"
    assert to.read_bytes() == content


def test_a_table_has_each_entry_once_and_no_formula(config: Path) -> None:
    content = log(config).read_bytes()
    log(config).write_bytes(content + content.split(b"\n")[0] + b"\n")
    done = run(config, "export", "--format", "csv")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["kind"], row["who"], row["identity"], row["writer"]) for row in rows] == [
        ("promote", "kim", "authenticated", "reactor/page"),
        ("relearn", "streamad", "program", "reactor/learner"),
        ("rollback", "lee", "authenticated", "reactor/page"),
    ]
    assert (rows[0]["reason"], json.loads(rows[0]["details"])["before"]) == ("'=tried", "0001")


def test_a_plant_without_a_log_and_one_without_entries(tmp_path: Path) -> None:
    without = run(plant_of(tmp_path), "verify")
    assert isinstance(without.exception, UsageError)
    empty = run(plant_of(tmp_path, sinks=SINKS), "verify")
    assert (empty.exit_code, empty.stdout) == (0, "the log has no entries\n")
    head = f"reactor/page:1:{'0' * 64}"
    assert verified(plant_of(tmp_path, sinks=SINKS), "--expect", head)["lost"] == [
        f"{head}: the log has no entry of this writer"
    ]


def test_a_writer_with_line_ends_in_its_id_makes_no_lines_of_its_own(config: Path) -> None:
    plant = load_plant(config)
    record(plant, "x: 1 entry, whole\n  head reactor/page:2:00\nreactor/page", [Decided("mark", "s", "kim", "claimed")])
    lines = run(config, "verify").stdout.splitlines()
    assert len(lines) == 6
    assert lines[4].startswith("reactor/x: 1 entry, whole\\n  head ")
