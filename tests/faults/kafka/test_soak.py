"""The soak, in short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak_law import lines_of
from tests.support.waiting import LIMIT_S

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.usefixtures("kafka_jars")
def test_a_short_soak_loses_nothing_and_is_drawn(tmp_path: Path) -> None:
    """Takes 50 s of a core: eight processes start, and those that are killed start again; no part runs without them."""
    sizes = ["--hours", "0.005", "--sample-s", "2", "--kill-s", "6", "--lines", "12", "--detector", "mean_square"]
    folder, out = tmp_path / "soak", tmp_path / "results"
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "soak.py"), *sizes, "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = lines_of(folder / "samples.jsonl")
    assert lines[-1]["kind"] == "end"
    assert lines[-1]["counts"]["verdicts"] == lines[-1]["counts"]["sequences_begun"] >= 6
    assert {line["part"] for line in lines if line["kind"] == "kill"} <= {"worker", "learn", "web", "notify"}
    samples = [line for line in lines if line["kind"] == "sample"]
    # Fewer while one that was killed starts again, and at the end.
    assert max(len(sample["processes"]) for sample in samples) >= 8
    assert samples[-1]["disk_mb"]["topic soak.samples"] > 0
    drawn = subprocess.run(
        [sys.executable, str(BENCHMARKS / "soak_law.py"), str(folder), "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    summary = json.loads((out / "soak.json").read_text())
    assert summary["end"]["right"]
    assert "spared worker: anonymous_mb" in summary["too_few_points"]  # it ran for less than half an hour
    assert (out / "soak.png").stat().st_size > 10_000
