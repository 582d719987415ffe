"""A plant whose recordings were judged, with all outputs on disk: made once, copied for each test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from streamad.cli import app
from tests.support.runtime.cli import CliPlant

ROLES = ("alerts", "attributions", "verdicts", "windows", "dead_letters", "late", "events")


def judged_plant(folder: Path) -> Path:
    """Train a small model in ``folder`` and judge twelve normal and four odd sequences; return the folder."""
    plant = CliPlant(folder, None, None)  # type: ignore[arg-type]  # it only writes files here
    plant.write_recordings("normal", normal=24, odd=0, seed=5)
    plant.write_recordings("recordings", normal=12, odd=4)
    config = plant.write_config(
        model={"detector": "nearest", "options": {}, "references": []},
        sinks={role: f"out/{role}.jsonl" for role in ROLES},
    )
    for command in (["train"], ["run", "--quiet"]):
        done = CliRunner().invoke(app, [*command, "--config", str(config)])
        assert done.exit_code == 0, done.output
    return folder


def copied(source: Path, target: Path) -> Path:
    """Copy a judged plant, so that a test may change it."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def rewrite(path: Path, **changes: Any) -> None:
    """Change fields in every message of a sink's file; a field that is None is removed."""
    lines = [json.loads(line) | changes for line in path.read_text().splitlines()]
    kept = [{key: value for key, value in line.items() if value is not None or key not in changes} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
