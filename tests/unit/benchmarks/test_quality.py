"""The benchmark of the model's quality: on recordings whose classes differ, and with a mistake of its user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import many_alerts
from benchmarks.quality import quality as benchmark
from tests.support.waiting import LIMIT_S

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks/quality/quality.py"


def quality(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--dataset", "waves", *arguments, "--json"],
        env={**os.environ, "STREAMAD_DATA": str(folder)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture
def waves(tmp_path: Path) -> Path:
    """Recordings of two classes, slow and quick waves; what lies behind their ends is not a number."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 24), ("test", 16)):
        classes, lengths = np.arange(n) % 2, rng.integers(20, 25, n)
        speed, phase = np.where(classes, 1.5, 0.4), rng.uniform(0, 6, n)
        x = np.sin(np.arange(24) * speed[:, None] + phase[:, None])[:, None] + rng.normal(0, 0.05, (n, 2, 24))
        x[np.broadcast_to((np.arange(24) >= lengths[:, None])[:, None], x.shape)] = np.nan
        arrays |= {f"{split}_x": x.astype(np.float32), f"{split}_len": lengths, f"{split}_y": classes}
    np.savez(tmp_path / "waves.npz", **arrays)
    return tmp_path


def test_each_class_in_turn_is_separated_from_the_other(waves: Path) -> None:
    done = quality(waves, "--seeds", "2", "--options", "epochs=15", "n_transformations=4", "base_width=8")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["options"] == {"epochs": 15, "n_transformations": 4, "base_width": 8}
    assert {name: len(aucs) for name, aucs in figures["auc"].items()} == {"0": 2, "1": 2}
    assert min(min(aucs) for aucs in figures["auc"].values()) > 0.7  # chance is 0.5
    means = [(a + b) / 2 for a, b in zip(*figures["auc"].values(), strict=True)]
    assert figures["mean_auc"] == pytest.approx(means, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(("--classes", "7"), "no class 7"), (("--options", "epoch=3"), "epochs"), (("--dataset", "gone"), "gone.npz")],
)
def test_a_mistake_is_one_line_with_exit_code_2(
    waves: Path,
    arguments: tuple[str, ...],
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(benchmark, "DATA", waves)
    monkeypatch.setattr(sys, "argv", ["quality.py", "--dataset", "waves", *arguments, "--json"])
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    assert ended.value.code == 2
    assert word in capsys.readouterr().err.splitlines()[-1]


def test_many_alerts_scans_as_the_rule_says_and_an_unchanged_plant_is_quiet() -> None:
    rng = np.random.default_rng(0)
    plant = many_alerts.Plant.drawn(rng, 99, 0.02, 0.3)
    alerts = np.concatenate([rng.uniform(size=60) < plant.p_alert, rng.uniform(size=300) < 0.7])
    first = many_alerts.Rule().first(plant.allowed, alerts)
    by_hand = (
        n for n in range(1, 361) if plant.allowed.is_exceeded_by(int(alerts[max(0, n - 100) : n].sum()), min(n, 100))
    )
    assert first == next(by_hand)
    assert [row["wrong"] for row in many_alerts.false_events(3)] == [0] * 15


def test_many_alerts_of_most_sequences_come_soon() -> None:
    rows = {(row["n"], row["rate"], row["quiet"], row["share"]): row["late"] for row in many_alerts.delays(20)}
    assert rows[99, 0.02, 0, 0.95] < 30 < rows[99, 0.02, 100, 0.95] < 80
