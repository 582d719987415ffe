"""streamad init: warnings of running sequences where sequences are long, and only where looks at them can work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.settings.outputs import EarlySettings
from streamad.settings.plant_yaml import Settings


def written(sample: Path, *arguments: str) -> Settings:
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(sample.parent / "plant.yaml"), *arguments])
    assert result.exit_code == 0, result.output or result.exception
    return load_plant(sample.parent / "plant.yaml").settings


def recorded(folder: Path, n: int = 21, period_s: float = 60, pause_s: float = 3600, *, ids: bool = True) -> Path:
    """Write six sequences, half of them of ``n`` samples or fewer."""
    rng, time, lines = np.random.default_rng(0), 1_772_352_930.0, []
    for number in range(6):
        for _ in range(n + number % 3 - 1):
            message = {"time": time, "a": rng.normal(), "b": rng.normal()}
            lines.append(json.dumps(message | ({"batch": f"B-{number}"} if ids else {})) + "\n")
            time += period_s
        time += pause_s
    (folder / "plant.jsonl").write_text("".join(lines))
    return folder / "plant.jsonl"


def test_long_sequences_are_looked_at_while_they_run(tmp_path: Path) -> None:
    settings = written(recorded(tmp_path))
    assert settings.alerts.early == EarlySettings()
    assert settings.sinks.warnings == "out/warnings.jsonl"
    (line,) = [line for line in (tmp_path / "plant.yaml").read_text().splitlines() if "early" in line]
    assert "  # warnings while a sequence runs" in line


@pytest.mark.parametrize(
    "given",
    [{"period_s": 29}, {"ids": False, "pause_s": 60}, {"n": 700}],
    ids=["short", "cut by length", "more points than the window"],
)
def test_others_are_not(tmp_path: Path, given: dict[str, Any]) -> None:
    settings = written(recorded(tmp_path, **given))
    assert (settings.alerts.early, settings.sinks.warnings) == (None, None)


def test_without_times_nothing_is_known_of_their_length(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 2, 900)).astype(np.float32)
    np.savez_compressed(tmp_path / "strokes.npz", x=x, len=np.full(6, 900))
    assert written(tmp_path / "strokes.npz").alerts.early is None
    rows = [f"B-{number},{at % 7},{at % 5}" for number in range(4) for at in range(20)]
    (tmp_path / "plant.csv").write_text("\n".join(["batch,a,b", *rows]) + "\n")
    assert written(tmp_path / "plant.csv", "--force", "--row-period", "1m").alerts.early is None
