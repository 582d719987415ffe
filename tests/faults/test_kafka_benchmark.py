"""The long run of kills, in short: it ends with one JSON object that says what was lost and repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")
@pytest.mark.usefixtures("kafka_jars")
def test_a_few_kills_lose_and_repeat_nothing() -> None:
    sizes = ["--kills", "4", "--workers", "2", "--detector", "mean_square", "--limit-s", "120"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *sizes, "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert [figures[name] for name in ("lost", "repeated", "foreign", "disordered")] == [0] * 4
    assert (figures["kills"], figures["workers"]) == (4, 2)
    assert figures["restarts"] == 4 + figures["other_faults"].get("worker_stops", 0)
    assert figures["sequences"] > 100
    assert figures["messages"] > figures["sequences"]
    assert figures["rebalances"] > 0
    assert figures["wall_s"] > 0
