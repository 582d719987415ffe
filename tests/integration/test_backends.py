"""A plant whose model was exported for every backend: worked with, without torch, and with a damaged export."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from streamad.cli import app
from tests.support.runtime.cli import NEAREST, CliPlant

pytest.importorskip("onnxscript")
pytest.importorskip("openvino")

WITHOUT_TORCH = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder
found, lacking = PathFinder.find_spec, json.loads(sys.argv[2])
PathFinder.find_spec = staticmethod(lambda name, *more: None if name in lacking else found(name, *more))
from streamad.cli import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["streamad", *command]
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    print(json.dumps({"code": code, "out": said.getvalue()}))
    print("----", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings and a model in service that was exported for every backend."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant = CliPlant(folder, None, monkeypatch)  # type: ignore[arg-type]  # only writes files here
        plant.write_recordings("normal", normal=24, odd=0, seed=5)
        plant.write_recordings("recordings", normal=12, odd=4)
        write_config(plant)
        monkeypatch.chdir(folder)
        outcome = CliRunner().invoke(app, ["train", "--config", str(plant.config)])
    assert outcome.exit_code == 0, outcome.output
    return folder


ALERTS = {"false_alarm_rate": 0.3, "early": {"false_alarm_rate": 0.3, "looks": 2}}


def write_config(plant: CliPlant, backend: str = "auto") -> None:
    sinks = {role: f"out/{role}.jsonl" for role in ("alerts", "warnings", "attributions", "verdicts", "events")}
    # Which kind of detector is exported, tests/unit/models/test_backends.py varies; this one takes the least time.
    plant.write_config(model={**NEAREST, "backend": backend}, alerts=ALERTS, sinks=sinks)


def warned(folder: Path) -> dict[str, tuple[int, float, float]]:
    """Return look, p-value and score of each warning in ``folder``, by the sequence."""
    warnings = [json.loads(line) for line in (folder / "warnings.jsonl").read_text().splitlines()]
    return {each["sequence"]: (each["look"], each["p_value"], each["score"]) for each in warnings}


def about(warnings: dict[str, tuple[int, float, float]]) -> dict[str, tuple[int, float, Any]]:
    return {name: (look, p, pytest.approx(score, abs=0.01)) for name, (look, p, score) in warnings.items()}


@pytest.fixture
def plant(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    shutil.copytree(exported, tmp_path / "plant")
    return CliPlant(tmp_path / "plant", capsys, monkeypatch)


def version(plant: CliPlant) -> Path:
    return plant.folder / "registry" / "default" / "versions" / "0001"


def without_torch(plant: CliPlant, *commands: list[str], lacks: str = "") -> list[tuple[dict[str, Any], str]]:
    """Run the commands in one process that can import neither torch nor the modules ``lacks``.

    Return code and output of each, and its errors.
    """
    lacking = ["torch", *lacks.split()]
    command = [sys.executable, "-c", WITHOUT_TORCH, json.dumps(commands), json.dumps(lacking)]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=plant.folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return list(zip(said, done.stderr.split("----\n")[:-1], strict=True))


def test_every_backend_judges_alike(plant: CliPlant) -> None:
    decided, early = {}, {}
    for backend in ("torchscript", "onnxruntime", "openvino"):
        write_config(plant, backend)
        checked = plant("check")
        assert checked.code == 0, checked.err
        assert (f"serving with {backend}" in checked.out) == (backend != "torchscript")
        verdicts = [json.loads(line) for line in plant("score --json", "--from", "recordings").out.splitlines()]
        decided[backend] = [(each["sequence"], each["decision"]) for each in verdicts]
        assert plant(f"replay --quiet --out replayed-{backend}").code == 0
        early[backend] = warned(plant.folder / f"replayed-{backend}")
    assert len(decided["torchscript"]) == 16
    assert decided["torchscript"] == decided["onnxruntime"] == decided["openvino"]
    assert len(early["torchscript"]) > 2
    assert early["onnxruntime"] == about(early["torchscript"])
    assert early["openvino"] == about(early["torchscript"])


@pytest.mark.parametrize(
    ("lacks", "serving"),
    [("", r"(openvino|onnxruntime) \(a window takes "), ("openvino matplotlib starlette uvicorn", "onnxruntime")],
    ids=["torch", "as deploy/scorer.lock"],
)
def test_a_worker_without_torch_judges_as_one_with_it_and_does_not_train(
    plant: CliPlant, lacks: str, serving: str
) -> None:
    expected = plant("replay --json --out replayed").last_json["counters"]
    config = ["--config", "plant.yaml"]
    checked, replayed, ran, scored, reported, trained = without_torch(
        plant,
        ["check", *config],
        ["replay", "--json", "--out", "lean", *config],
        ["run", "--quiet", *config],
        ["score", "--json", "--from", "recordings", *config],
        ["report", "--pictures", "0", *config],
        ["train", *config],
        lacks=lacks,
    )
    for ended, errors in (checked, replayed, ran, scored, reported):
        assert ended["code"] == 0, errors
        assert "refused" not in errors
    assert re.search(f"torch: not installed, serving with {serving}", " ".join(checked[0]["out"].split()))
    counters = json.loads(replayed[0]["out"].splitlines()[-1])["counters"]
    of_timing = {"commits": 0}  # how many fall into the time of one is no matter of the backend
    assert {**counters, **of_timing} == {**expected, **of_timing}
    assert len(plant.lines("verdicts")) == 16
    for folder in ("lean", "out"):
        assert warned(plant.folder / folder) == about(warned(plant.folder / "replayed"))
    ended, errors = trained
    assert ended["code"] == 1
    (line,) = [line for line in errors.splitlines() if line.strip()]
    assert "training and TorchScript need torch, which is not installed here: train where it is" in line


def test_a_worker_without_torch_that_should_learn_is_warned_of(plant: CliPlant) -> None:
    given = yaml.safe_load(plant.config.read_text())
    plant.config.write_text(yaml.safe_dump({**given, "alerts": {}, "learning": {"store": "inliers"}}))
    ((checked, errors),) = without_torch(plant, ["check", "--config", "plant.yaml"])
    assert checked["code"] == 0, errors
    assert "torch is not installed: this worker cannot train" in " ".join(checked["out"].split())
    assert "cannot train" not in plant("check").out


def test_all_workers_may_be_without_torch_if_the_learner_is_elsewhere(plant: CliPlant) -> None:
    """They judge, write the windows and swap; ``streamad learn``, with torch, makes their next version."""
    learning = {
        "process": "elsewhere",
        "after_inliers": 10,
        "min_interval": 0,
        "min_training": 10,
        "reserve": 0.4,
        "promotion": {"min_comparison": 5, "false_alarms": 0.9, "detection": 0.9},
        "drift": {"enabled": False},
        "schedule": None,
    }
    given = yaml.safe_load(plant.config.read_text())
    sinks = {**given["sinks"], "windows": "out/windows.jsonl"}
    plant.config.write_text(
        yaml.safe_dump({**given, "alerts": {"false_alarm_rate": 0.3}, "learning": learning, "sinks": sinks})
    )
    plant.write_recordings("recordings", normal=70, odd=6)
    config = ["--config", "plant.yaml"]
    for ended, errors in without_torch(plant, ["check", *config], ["run", "-q", *config]):
        assert ended["code"] == 0, errors
        assert "cannot train" not in ended["out"]
    assert not (plant.folder / "inliers").exists(), "the store is the learner's alone"
    assert len(plant.lines("windows")) == 76

    learned = plant("learn --present")
    assert learned.code == 0, learned.err
    assert (plant.folder / "registry" / "default" / "CURRENT").read_text().strip() == "0002", learned.err

    plant.write_recordings("more", normal=10, odd=0, seed=9)
    (plant.folder / "more" / "day.jsonl").rename(plant.folder / "recordings" / "later.jsonl")
    ((ended, errors),) = without_torch(plant, ["run", "-q", *config])
    assert ended["code"] == 0, errors
    assert {each["model"]["version"] for each in plant.lines("verdicts")[76:]} == {"0002"}


@pytest.mark.parametrize("name", ["model.bin", "early/1/model.bin"])
def test_a_damaged_export_is_an_event_of_the_run_and_the_next_backend_serves(plant: CliPlant, name: str) -> None:
    (version(plant) / name).write_bytes(b"")
    write_config(plant, "openvino")
    assert plant("run --quiet").code == 0
    (event,) = plant.lines("events")
    assert event["kind"] == "backend_refused"
    assert event["message"].startswith(f"openvino does not serve default 0001: {name} is damaged (0 bytes, ")
    assert event["message"].endswith("; onnxruntime serves")
    assert event["model"] == {"name": "default", "version": "0001"}
    assert len(plant.lines("verdicts")) == 16
    checked = plant("check")
    assert checked.code == 0
    assert "openvino does not serve default 0001" in checked.out + checked.err
    scored = plant("score --from recordings")
    assert scored.code == 0
    assert "backend refused: openvino does not serve default 0001" in " ".join(scored.err.split())


def test_backends_are_timed_where_a_plant_is_served_and_not_where_parts_are_judged(plant: CliPlant) -> None:
    judged = {}
    for command in ("run", "replay", "replay --format parquet --out parts"):
        done = plant(f"-v {command} --quiet")
        assert done.code == 0, done.err
        judged[command] = "a window takes " in done.err
    assert judged == {"run": True, "replay": True, "replay --format parquet --out parts": False}


def test_a_version_with_a_damaged_export_can_be_rolled_back_to(plant: CliPlant) -> None:
    (version(plant) / "model.onnx").unlink()
    assert plant("models promote 0001").code == 0
    assert "serving with openvino" in plant("check").out


def test_without_torch_a_version_that_was_not_exported_is_refused_in_one_line(
    trained_nearest: Path, plant: CliPlant
) -> None:
    shutil.rmtree(plant.folder / "registry")
    shutil.copytree(trained_nearest / "registry", plant.folder / "registry")
    ((ended, errors),) = without_torch(plant, ["run", "--config", "plant.yaml"])
    assert ended["code"] == 1
    (line,) = [line for line in errors.splitlines() if line.strip()]
    assert "training and TorchScript need torch" in line
