"""The benchmarks of Kafka, in short: each ends with one JSON object that has the promised keys; how fast, they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.faults import WRONG
from tests.support.waiting import LIMIT_S

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
BENCHMARK = BENCHMARKS / "faults.py"


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")
@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.parametrize("more", [[], ["--hold", "--each", "--while"]])
def test_a_few_kills_lose_and_repeat_nothing(more: list[str]) -> None:
    sizes = ["--kills", "4", "--workers", "2", "--detector", "mean_square", "--limit-s", "120", *more]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *sizes, "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert {name: figures[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert figures["attributions"] > 20
    assert (figures["kills"], figures["workers"]) == (4, 2)
    assert figures["restarts"] == 4 + figures["other_faults"].get("worker_stops", 0)
    assert figures["sequences"] > 100
    assert figures["messages"] > figures["sequences"]
    assert figures["rebalances"] > 0
    assert figures["wall_s"] > 0


@pytest.mark.usefixtures("kafka_jars")
def test_a_worker_is_measured_beside_a_bare_loop() -> None:
    sizes = [
        "--kinds",
        "chunked",
        "--sequences",
        "128",
        "--rounds",
        "1",
        "--latency-s",
        "2",
        "--memory-minutes",
        "0.05",
    ]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "speed" / "kafka_pipeline.py"), *sizes, "--json"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    stages = {"fetch", "intake", "window", "score", "judge", "transactions_and_joining"}
    found = figures["chunked"]
    assert found["messages"] == 128
    assert all(found[form] > 0 for form in ("bare", "streamad", "without_model"))
    assert found["ratio"] == pytest.approx(found["streamad"] / found["bare"])
    assert set(found["stages_us_per_sample"]) == stages
    assert {"p50", "p99", "loads"} <= set(figures["latency_ms"])
    for load in figures["latency_ms"]["loads"].values():
        for form in ("bare", "streamad"):
            assert (load[form]["late"], load[form]["alerts"] > 0) == (0, True)
        assert load["ratio"]["p50"] == pytest.approx(load["streamad"]["p50"] / load["bare"]["p50"])
    assert figures["rss_mb"]["start"] > 10
    assert figures["rss_mb"]["end"] > 10
