"""The benchmark of peers, in short: those of this environment do the same job, and a missing one is in the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import LIMIT_S

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmarks" / "peers.py"


@pytest.mark.usefixtures("kafka_jars")
def test_streamad_and_a_plain_loop_make_the_same_windows_and_a_missing_peer_says_so() -> None:
    peers = [
        "--peers",
        "aiokafka",
        "bare",
        "quix",
        "--peers-python",
        sys.executable,
    ]  # which has no Quix Streams
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *peers, "--kinds", "single", "--sequences", "64", "--rounds", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    found = figures["single"]
    assert (found["messages"], found["windows"], found["samples"]) == (64 * 50, 64, 64 * 50)
    assert "No module named 'quixstreams'" in found["peers"]["quix"]["error"]
    ours, loop = found["peers"]["streamad"], found["peers"]["aiokafka"]
    assert (ours["promises"], ours["in_transactions"], loop["in_transactions"]) == ("exactly once", True, False)
    expected = ours["samples_per_s"] / loop["samples_per_s"]
    assert loop["streamad_times_as_fast"] == pytest.approx(expected, abs=0.01)
    assert found["peers"]["bare"]["samples_per_s"] > 0
    assert (ours["repeated"], loop["repeated"]) == (0, 0)
    assert {"streamad-monitor", "aiokafka"} <= set(figures["versions"])
