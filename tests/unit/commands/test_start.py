"""A command imports what it needs: no torch without a model, no scipy or river without a figure, no other command."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from streamad.cli import COMMANDS, app
from streamad.messages import Alert, ModelRef
from tests.support.runtime.cli import LIMIT_S, CliPlant

HEAVY = ("torch", "scipy", "river", "aiokafka", "matplotlib", "pyarrow", "pandas", "s3fs")

CHILD = """
import json, sys
from streamad.cli import main
place, *lines = json.load(sys.stdin)
found = []
for line in lines:
    before = set(sys.modules)
    sys.argv = ["streamad", *line]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    found.append([code, sorted(set(sys.modules) - before)])
open(place, "w").write(json.dumps(found))
"""

FAST = {
    "--version": 0,
    "--help": 0,
    "rnu": 2,
    **{f"{name} --help": 0 for name in COMMANDS},
    **{f"{name} --no-such-option": 2 for name in COMMANDS},
    "schema": 0,
    "init recordings/day.jsonl --out new.yaml": 0,
    "check --fast": 0,
    "check --config untrained.yaml": 0,
    "models list": 0,
    "models show": 0,
    "models status": 0,
    "models promote 0001": 0,
    "models rollback --to 0002": 0,
    "models decline 0001": 2,
    "models prune --keep 2": 0,
    "inliers list": 0,
    "inliers export --out new.npz": 2,
    "feedback --alert 5f0c2a --false-alarm": 0,
    "alerts tail --url alerts.jsonl --from-start --limit 1": 0,
    "explain 5f0c2a": 0,
    "explain 5f0c2b": 1,
    "explain 5f0c2a --plot why.png": 1,
    "report --out empty.html --since 2027-01-01 --pictures 0": 2,
    "report --out empty.html --pictures 0 --until 2026-01-02 --since 2026-01-01": 0,
    "record --out new": 0,
    "topics check": 2,
    **{f"{name} --config none.yaml": 2 for name in ("run", "train", "replay", "score", "check", "report")},
    **{f"{name} --config wrong.yaml": 2 for name in ("run", "train", "replay", "score", "record", "topics check")},
}
"""Command lines that need no model and no figure, each with its exit code."""

ALERT = Alert(
    alert_id="5f0c2a",
    stream="r1",
    sequence="B-1",
    reason="marker",
    start_time=datetime(2026, 3, 1, 6, tzinfo=UTC),
    end_time=datetime(2026, 3, 1, 7, tzinfo=UTC),
    n_samples=60,
    score=2.0,
    p_value=0.01,
    false_alarm_rate=0.1,
    tail="empirical",
    model=ModelRef("default", "0001"),
    created_at=datetime(2026, 3, 1, 7, tzinfo=UTC),
)


def imported(folder: Path, lines: list[str]) -> dict[str, tuple[int, list[str]]]:
    """Run ``lines`` one after the other in one process; return the exit code and the new modules of each."""
    place = folder / "imported.json"
    asked = json.dumps([str(place), *(shlex.split(line) for line in lines)])
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(
        command, input=asked, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return {line: (code, names) for line, (code, names) in zip(lines, json.loads(place.read_text()), strict=True)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plant with two versions of a model, the same without a version, and with an option that its kind has not."""
    plant = CliPlant(tmp_path, None, monkeypatch)  # type: ignore[arg-type]  # it only writes files here
    plant.write_recordings("normal", normal=24, odd=0, seed=5)
    plant.write_recordings("recordings", normal=12, odd=4)
    model = {"detector": "nearest", "options": {}, "references": []}
    plant.write_config(model={**model, "options": {"no_such": 1}}).rename(tmp_path / "wrong.yaml")
    plant.write_config(model={**model, "registry": "none"}).rename(tmp_path / "untrained.yaml")
    config = plant.write_config(model=model, learning={"store": "inliers"})
    for _ in range(2):
        outcome = CliRunner().invoke(app, ["train", "--config", str(config)])
        assert outcome.exit_code == 0, outcome.output
    (tmp_path / "out").mkdir()
    for name in ("alerts.jsonl", "out/alerts.jsonl"):
        (tmp_path / name).write_bytes(msgspec.json.encode(ALERT) + b"\n")
    return tmp_path


def test_a_command_without_a_model_imports_neither_torch_nor_scipy_nor_a_brokers_client(folder: Path) -> None:
    found = imported(folder, list(FAST))
    assert {line: code for line, (code, _) in found.items()} == FAST
    assert {line: heavy for line, (_, names) in found.items() if (heavy := sorted({*names} & {*HEAVY}))} == {}


def test_the_check_of_a_model_in_service_imports_torch_and_so_the_law_above_would_see_it(folder: Path) -> None:
    code, names = imported(folder, ["check"])["check"]
    assert code == 0
    assert "torch" in names


@pytest.mark.parametrize("line", ["--version", "rnu", "schema --help"])
def test_what_runs_no_command_imports_none_of_the_others(tmp_path: Path, line: str) -> None:
    _, names = imported(tmp_path, [line])[line]
    commands = [name for name in names if any(map(name.startswith, COMMANDS.values()))]
    assert commands == (["streamad.commands.schema"] if line == "schema --help" else [])


def test_a_simulation_needs_scipy_alone(tmp_path: Path) -> None:
    line = "simulate --out demo --train 1 --normal 1 --faulty 1"
    code, names = imported(tmp_path, [line])[line]
    assert code == 0
    assert {*names} & {*HEAVY} == {"scipy"}
    assert "scipy.stats" not in names
