"""A page in a process of its own over a trained plant's outputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from tests.support.runtime.cli import CliPlant, ended_in_time, started
from tests.support.waiting import LIMIT_S
from tests.support.web.run import LEARNING, ROLES, SINKS

HOSTILE = '<img src=x onerror="alert(1)">\u202e"\'<script>alert(2)</script>'
SHOWN = '<img src=x onerror="alert(1)">\\u202e"\'<script>alert(2)</script>'


def judged_plant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> CliPlant:
    """Return a plant with a model and the outputs of its recordings; the first odd sequence has a hostile name."""
    plant = CliPlant(folder, None, monkeypatch)  # type: ignore[arg-type]  # it only writes files here
    plant.write_recordings("normal", normal=40, odd=0, seed=5)
    plant.write_recordings("recordings", normal=16, odd=6)
    monkeypatch.chdir(folder)
    plant.write_config(
        model={"detector": "ensemble", "options": {}},
        alerts={"false_alarm_rate": 0.1},
        sinks={**SINKS, "decisions": "out/decisions.jsonl"},
        display={"windows": "all"},
        learning=LEARNING,
        web={"port": 0},
    )
    _invoke("train")
    _invoke("run", "--quiet")
    for role in ROLES:
        path = folder / "out" / f"{role}.jsonl"
        if path.exists():
            path.write_text(_with_hostile(path.read_text(), _first_alert(folder)))
    return plant


def _invoke(*words: str) -> None:
    outcome = CliRunner().invoke(app, [*words, "--config", "plant.yaml"])
    assert outcome.exit_code == 0, outcome.output


def _first_alert(folder: Path) -> str:
    kept = folder / "first_alert"
    if not kept.exists():
        kept.write_text(json.loads((folder / "out" / "alerts.jsonl").read_text().splitlines()[0])["sequence"])
    return kept.read_text()


def _with_hostile(text: str, name: str) -> str:
    return text.replace(json.dumps(name), json.dumps(HOSTILE))


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """Serve the page of the plant in ``folder`` during the block; yield its link."""
    with started("web", *options, cwd=folder, is_limited=False) as process:
        assert process.stdout is not None
        with ended_in_time(process):
            line = process.stdout.readline()
        assert line.startswith("open http://"), line
        try:
            yield line.split()[1]
        except BaseException:
            process.kill()
            print(f"the page said: {process.communicate()[1]}")
            raise
        process.terminate()
        process.wait(LIMIT_S)


def copied(plant: Path, folder: Path) -> Path:
    """Return a copy of a plant."""
    return Path(shutil.copytree(plant, folder))
