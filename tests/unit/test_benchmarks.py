"""The benchmarks run on tiny sizes and end with one JSON object that has the promised keys; how fast, they say."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def benchmark(name: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run a benchmark with ``--json`` and return the last line of its standard output."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments, "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def test_scoring_tells_windows_per_second_of_each_form_and_the_machine_s_matrix_product() -> None:
    figures = benchmark("scoring", "--rounds", "1", "--slice-s", "0.01")
    assert {"1", "8", "64", "256", "gemm_gflops", "gemm_share"} <= set(figures)
    for size in ("1", "8", "64", "256"):
        rates = [figures[size][form] for form in ("separate", "grouped", "torchscript")]
        assert all(10 < rate < 1e7 for rate in rates), figures
    assert figures["gemm_gflops"] > 0.1
    assert 0 < figures["gemm_share"] <= 1.5  # a loaded machine may be slow for the product and quick for the model


def test_pipeline_tells_samples_per_second_and_where_the_time_goes() -> None:
    figures = benchmark("pipeline", "--sequences", "40", "--rounds", "1")
    assert (figures["sequences"], figures["samples"]) == (40, 40 * 51)
    assert figures["samples_per_s"] == pytest.approx(40 * 51 / figures["whole_wall_s"])
    assert figures["sequences_per_s"] == pytest.approx(40 / figures["whole_wall_s"])
    stages = figures["stages"]
    assert list(stages) == ["read", "decode", "assemble", "window", "score", "judge", "write"]
    assert sum(stage["share"] for stage in stages.values()) == pytest.approx(1)
    assert figures["us_per_sample_decode_assemble"] == pytest.approx(
        stages["decode"]["us_per_sample"] + stages["assemble"]["us_per_sample"]
    )
    assert 0 < figures["us_per_sample_decode_assemble"] < 1_000


def test_the_demo_s_commands_work_one_after_the_other_and_sum_up() -> None:
    """The job of scripts/demo, end to end, on few batches and hardly trained."""
    sizes = ("--seeds", "1", "--train", "24", "--normal", "6", "--faulty", "4")
    environment = {"STREAMAD_MODEL__OPTIONS": '{"epochs": 2}', "STREAMAD_MODEL__FOLDS": "2"}
    figures = benchmark("demo_seeds", *sizes, **environment)
    (run,) = figures["runs"]
    assert (run["seed"], run["sequences"], run["unscorable"]) == (0, 10, 0)
    found, false = run["detection_rate"] * 4, run["false_alarm_rate"] * 6
    assert found == pytest.approx(round(found))
    assert run["alerts"] == pytest.approx(found + false)
    assert run["wall_s"] >= 0.9 * (run["simulate_s"] + run["train_s"] + run["run_s"]) > 0
    for name in ("detection_rate", "false_alarm_rate", "wall_s"):
        assert figures[f"median_{name}"] == run[name]


def test_figures_over_seeds_are_medians() -> None:
    spec = importlib.util.spec_from_file_location("demo_seeds", BENCHMARKS / "demo_seeds.py")
    assert spec is not None
    assert spec.loader is not None
    demo_seeds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo_seeds)
    found, false, wall = (0.9, 0.97, 0.91), (0.02, 0.01, 0.06), (100.0, 90.0, 200.0)
    runs = [
        {"seed": seed, "detection_rate": found[seed], "false_alarm_rate": false[seed], "wall_s": wall[seed]}
        for seed in range(3)
    ]
    assert demo_seeds.summed_up(runs) == {
        "median_detection_rate": 0.91,
        "median_false_alarm_rate": 0.02,
        "median_wall_s": 100.0,
        "runs": runs,
    }
