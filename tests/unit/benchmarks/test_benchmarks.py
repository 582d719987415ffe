"""The benchmarks run on tiny sizes and end with one JSON object that has the promised keys."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.paper.data.datasets import class_task, read_sequences
from benchmarks.paper.methods import make
from benchmarks.quality import contamination, epochs, precision
from benchmarks.quality.demo_seeds import summed_up
from benchmarks.quality.epochs import aucs_of, train_baseline
from tests.support.proof import proved_in_fork
from tests.support.waiting import LIMIT_S
from tests.support.web.browser import chromium_or_skip

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SMALL = {
    "STREAMAD_MODEL__OPTIONS": '{"n_minirocket": 420, "n_groups": 2, "time_limit_s": 1e-6}',
    "STREAMAD_MODEL__FOLDS": "2",
    "STREAMAD_MODEL__REFERENCES": "[]",
}
"""A training that takes seconds."""


@pytest.fixture
def study(
    data_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """The figures of RacketSports' first class by a benchmark's ``main``, in this process, which has loaded torch."""
    data_file("racket_sports.npz")

    def study(main: Callable[[], None], *arguments: str) -> Any:
        words = ["benchmark", "--datasets", "racket_sports", "--classes", "1", *arguments, "--json"]
        monkeypatch.setattr(sys, "argv", words)
        main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])["racket_sports"]

    return study


def benchmark(name: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run a benchmark's script in the checkout and return its figures: the JSON object that it prints last."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments, "--json"],
        cwd=BENCHMARKS.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Any]]:
    """The figures of a script in ``speed``, run in this process, which has loaded torch; versions prove in forks."""
    monkeypatch.setattr("streamad.learn.trainer.proof.proved_in_new_process", proved_in_fork)
    monkeypatch.setattr(sys, "path", [*sys.path])
    n_threads = torch.get_num_threads()

    def speed(name: str, *arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--json"])
        runpy.run_path(str(BENCHMARKS / "speed" / f"{name}.py"), run_name="__main__")
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    yield speed
    torch.set_num_threads(n_threads)


def test_scoring_reports_windows_per_second_of_each_form(speed: Callable[..., Any]) -> None:
    figures = speed("scoring", "--rounds", "1", "--slice-s", "0.01")
    assert {"1", "8", "64", "256", "gemm_gflops", "gemm_share"} <= set(figures)
    for size in ("1", "8", "64", "256"):
        rates = [figures[size][form] for form in ("separate", "grouped", "torchscript")]
        assert all(10 < rate < 1e7 for rate in rates), figures
    assert figures["gemm_gflops"] > 0.1
    assert 0 < figures["gemm_share"] <= 1.5  # a loaded machine may be slow for the product and quick for the model


def test_pipeline_reports_samples_per_second_and_each_stage_s_share(speed: Callable[..., Any]) -> None:
    figures = speed("pipeline", "--sequences", "40", "--rounds", "1")
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


def test_the_feed_reports_windows_a_second_up_to_each_stage(speed: Callable[..., Any]) -> None:
    pytest.importorskip("pyarrow")
    figures = speed("feed", "--files", "1", "--sequences", "40", "--processes", "1", "--rounds", "1")
    assert [each["stage"] for each in figures["cells"]] == ["rows", "windows", "verdicts", "replay"]
    assert all((each["processes"], each["windows"]) == (1, 40) for each in figures["cells"])
    assert all(each["windows_a_s"] > 1 and each["cpu_us"] > 10 for each in figures["cells"])


def test_numbers_in_arrays_are_fuzzed_beside_lists(speed: Callable[..., Any]) -> None:
    pytest.importorskip("simdjson")
    figures = speed("arrays", "--fuzz", "500")
    assert figures["messages"] == 500
    assert 100 < figures["read into arrays"] < 400
    assert 50 < figures["refused"] < 300


def test_the_demo_s_commands_work_one_after_the_other_and_sum_up() -> None:
    """The job of scripts/demo, end to end, on few batches and hardly trained."""
    sizes = ("--seeds", "1", "--train", "24", "--normal", "6", "--faulty", "4")
    early = {"STREAMAD_ALERTS__EARLY__FALSE_ALARM_RATE": "0.1", "STREAMAD_ALERTS__EARLY__LOOKS": "4"}
    figures = benchmark("quality/demo_seeds", *sizes, **SMALL, **early)
    (run,) = figures["runs"]
    assert (run["seed"], run["sequences"], run["unscorable"]) == (0, 10, 0)
    found, false = run["detection_rate"] * 4, run["false_alarm_rate"] * 6
    assert found == pytest.approx(round(found))
    assert run["alerts"] == pytest.approx(found + false)
    assert run["faults_warned_of"] > run["normal_ever_warned_of"]
    assert run["median_lead_s"] > 3600, "hours of the plant"
    assert run["wall_s"] >= 0.9 * (run["simulate_s"] + run["train_s"] + run["run_s"]) > 0
    for name in ("detection_rate", "false_alarm_rate", "wall_s"):
        assert figures[f"median_{name}"] == run[name]


def test_figures_over_seeds_are_medians() -> None:
    found, false, wall = (0.9, 0.97, 0.91), (0.02, 0.01, 0.06), (100.0, 90.0, 200.0)
    runs = [
        {"seed": seed, "detection_rate": found[seed], "false_alarm_rate": false[seed], "wall_s": wall[seed]}
        for seed in range(3)
    ]
    assert summed_up(runs) == {
        "median_detection_rate": 0.91,
        "median_false_alarm_rate": 0.02,
        "median_wall_s": 100.0,
        "runs": runs,
    }


def test_swap_reports_latencies_with_and_without_swaps_and_a_swap_s_own_time(speed: Callable[..., Any]) -> None:
    figures = speed(
        "swap", "--seconds", "1", "--slice-s", "0.5", "--every-s", "0.1", "--rate", "40", "--training", "12"
    )
    assert figures["swaps"] > 0
    assert 0 <= figures["wait_median_ms"] <= figures["wait_max_ms"]
    assert 0 < figures["load_cpu_ms"] < 10_000
    for row in figures["conditions"].values():
        assert row["n"] == 2 * 20
        assert 0 < row["latency_p50_ms"] <= row["latency_p99_ms"] <= row["latency_p100_ms"]
    for quantile in ("p50", "p99", "p100"):
        with_, without = (figures["conditions"][name][f"latency_{quantile}_ms"] for name in ("with", "without"))
        assert figures[f"cost_{quantile}_ms"] == pytest.approx(with_ - without, abs=0.002)


def test_learning_reports_the_times_of_worker_learner_and_store() -> None:
    figures = benchmark("speed/learning", "--sequences", "1500")
    for row in figures.values():
        assert all(0 < row[name] < 100_000 for name in ("us_gate", "us_worker", "us_drift", "us_learner"))
        assert row["store_ms"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="stops and continues the training process, reads /proc")
def test_retraining_latency_reports_quantiles_with_and_without_a_training_beside_the_load() -> None:
    figures = benchmark("speed/retraining_latency", "--seconds", "1", "--slice-s", "0.5", "--stored", "60")
    conditions = figures["conditions"]
    assert list(conditions) == ["without", "with"]
    for row in conditions.values():
        assert row["n"] == 2 * 10
        assert 0 < row["scoring_p50_ms"] < row["latency_p50_ms"] <= row["latency_p99_ms"]
    assert conditions["without"]["training_cpu_share"] <= 0.02, "it stood still"
    ratio = conditions["with"]["latency_p99_ms"] / conditions["without"]["latency_p99_ms"]
    assert figures["p99_ratio"] == {"with": pytest.approx(ratio, abs=0.001)}


def test_contamination_reports_the_rates_of_each_training_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["contamination.py", "--seeds", "1", "--batches", "20", "--epochs", "1", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    contamination.main()
    (by_training_set,) = json.loads(capsys.readouterr().out)["seeds"]
    assert list(by_training_set) == ["clean", "trim 0", "trim 0.05", "trim 0.1"]
    for found in by_training_set.values():
        assert {"detection_rate", "false_alarm_rate", "auc"} <= set(found)
        assert all(0 <= value <= 1 for value in found.values()), found


@pytest.mark.parametrize(("method", "protocol"), [("neutral_ad", "n_vs_rest"), ("drocc", "one_vs_rest")])
def test_epochs_reports_the_auc_of_each_choice_of_an_epoch(
    method: str, protocol: str, study: Callable[..., Any]
) -> None:
    figures = study(epochs.main, "--method", method, "--protocol", protocol, "--epochs", "2")
    assert (figures["protocol"], figures["n_tasks"], figures["epochs"]) == (protocol, 1, 2)
    aucs = figures["auc_by_seed"]
    assert list(aucs) == ["lowest", "last", "tenth", "best"]
    assert all(0 <= values[0] <= 100 and len(values) == 1 for values in aucs.values())


def test_scoring_each_epoch_leaves_a_training_as_it_is(data_file: Callable[[str], Path]) -> None:
    data_file("racket_sports.npz")
    task = class_task(read_sequences("racket_sports"), (0,))
    losses, scores = train_baseline("drocc", task, "racket_sports", 2, seed=0)
    alone = make("drocc", "racket_sports", {"epochs": 2}).fit(task.train, seed=0, device="cpu")
    terms = alone.score(task.test.values, task.test.lengths)
    assert scores[-1] == pytest.approx(terms.sum(axis=1), abs=1e-4)
    assert losses[-1] == pytest.approx(alone.summary.best_loss, rel=1e-5)
    assert len(losses) == len(scores) == 2


@pytest.mark.parametrize("method", ["neutral_ad", "fixed_transformations"])
def test_precision_reports_the_paired_difference_and_the_gain(method: str, study: Callable[..., Any]) -> None:
    found = study(precision.main, "--method", method, "--epochs", "2", "--seeds", "2")
    assert found["n_pairs"] == 2
    assert found["difference"] == pytest.approx(found["auc_bfloat16"] - found["auc_float32"], abs=0.011)
    assert 0 <= found["standard_error"] <= 100
    assert 0 < found["gain"] < 100


def test_epochs_choices_are_the_lowest_loss_the_last_the_best_of_a_tenth_and_the_best() -> None:
    """Four epochs whose scores put 0, 40, 20 and 30 of 40 anomalies above all of 40 normal sequences."""
    is_anomaly = np.repeat([False, True], 40)
    scores = np.array([np.where(np.arange(80) >= 80 - n, 2.0, np.where(is_anomaly, 0.0, 1.0)) for n in (0, 40, 20, 30)])
    found = aucs_of(np.array([0.3, 0.2, 0.1, 0.4]), scores, is_anomaly, seed=0)
    assert found == {"lowest": 50.0, "last": 75.0, "tenth": 100.0, "best": 100.0}


def test_the_latency_of_alerts_is_compared_with_and_without_explanations(speed: Callable[..., Any]) -> None:
    figures = speed("explained_alerts", "--turns", "1", "--turn-s", "1", "--rate", "10")
    assert figures["alerts"]["with"] == figures["alerts"]["without"] == figures["attributions"]["with"] > 0
    assert figures["attributions"]["without"] == 0
    for share in ("p50", "p99"):
        assert figures["ratio"][share] == pytest.approx(
            figures["latency_ms"]["with"][share] / figures["latency_ms"]["without"][share]
        )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_page_s_load_is_measured_in_a_browser() -> None:
    chromium_or_skip()
    sizes = {"sequences": 120, "streams": 6, "listeners": 20, "alerts": 1, "rounds": 1, "scroll-s": 0.2}
    environment = {**SMALL, "STREAMAD_WEB__MAX_BROWSERS": "20"}
    figures = benchmark("web", *(word for name, n in sizes.items() for word in (f"--{name}", str(n))), **environment)
    assert list(figures["pages"]) == [
        "now", "sequence", "alerts", "highest", "streams", "stream", "compare", "calibration", "models",
    ]  # fmt: skip
    for row in figures["pages"].values():
        assert 0 < row["first_paint_ms"] <= row["first_paint_max_ms"]
        assert 5 < row["weight_kb"] < 150
    assert len(figures["longest_frame_ms"]) == 4
    assert all(longest > 0 for longest in figures["longest_frame_ms"].values())
    assert figures["alert_seen_s"]["n"] == 1
    assert figures["ingest"]["messages"] > 120
    many = figures["browsers"]
    assert many["one_more"]["status"] == 503
    assert "web.max_browsers" in many["one_more"]["text"]
    assert (many["listeners"], many["renewed"]) == (20, 20)


def test_throughput_is_compared_with_and_without_status_and_open_sequences(speed: Callable[..., Any]) -> None:
    figures = speed("open_sequences", "--turns", "1", "--streams", "60", "--sequences", "6")
    assert figures["writes_per_turn"] >= 1
    with_, without = (figures["samples_per_s"][kind] for kind in ("with", "without"))
    assert figures["ratio"]["median"] == pytest.approx(with_ / without)
    assert figures["ratio"]["low"] <= figures["ratio"]["median"] <= figures["ratio"]["high"]


def test_growth_reports_cost_and_memory_of_each_size() -> None:
    arguments = ("--axes", "open", "models", "--samples", "500", "--rounds", "1", "--largest", "10")
    axes = {each["axis"]: each for each in benchmark("growth", *arguments)["axes"]}
    assert {name: [point["size"] for point in each["points"]] for name, each in axes.items()} == {
        "open": [10],
        "models": [1, 10],
    }
    for each in axes.values():
        costs = [point["ns_per_value"] for point in each["points"]]
        assert each["growth"] == pytest.approx(max(costs) / costs[0])
        assert all(0 < cost < 1e6 for cost in costs)
        assert all(point["sequences"] > 0 for point in each["points"])
