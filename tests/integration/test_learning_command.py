"""``streamad run`` with ``learning``, as a newcomer meets it: recordings and a config are enough."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.status import TrainingStatus, read_status
from tests.support.kafka.child import PLUGINS
from tests.support.runtime.cli import CliPlant, Outcome, started, streamad
from tests.support.waiting import LIMIT_S

TRAIN, NORMAL, FAULTY = 70, 24, 16
SMALL = {"epochs": 8, "n_transformations": 4, "n_blocks": 2, "base_width": 4, "embedding_dim": 8}
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")])}
# Of 70 sequences about 20 are reserved: 0.1 is the smallest rate that they certify by halves.
CONFIG: dict[str, Any] = {
    "model": {
        "detector": "mean",
        "options": {},
        "device": "cpu",
        "folds": 2,
        "recordings": None,
        "references": [],
    },
    "alerts": {"false_alarm_rate": 0.1, "early": None},
    "learning": {"first_training": 60, "min_training": 20, "reserve": 0.3, "schedule": None},
    "run": {"commit_interval": "10ms"},
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated fermenter plant: normal batches to begin with, later ones normal and faulty."""
    folder = tmp_path_factory.mktemp("simulated") / "plant"
    counts = ["--train", f"{TRAIN}", "--normal", f"{NORMAL}", "--faulty", f"{FAULTY}"]
    outcome = streamad("simulate", "--out", folder, *counts)
    assert outcome.code == 0, outcome.err
    return folder


class Plant(CliPlant):
    """The simulated plant in a folder of its own; its first life reads the normal batches, later ones the others."""

    def __init__(
        self, simulated: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(shutil.copytree(simulated, folder), capsys, monkeypatch)
        monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])  # for trainers; here PLUGINS can be imported
        self.configure()

    def configure(self, source: str = "train", **sections: Any) -> None:
        content = yaml.safe_load((self.folder / "plant.yaml").read_text())
        content["source"] = {"url": f"{source}/recordings.jsonl"}
        for name, section in {**CONFIG, **sections}.items():
            if section is None:
                content.pop(name, None)
            else:
                content[name] = {**content.get(name, {}), **section}
        (self.folder / "plant.yaml").write_text(yaml.safe_dump(content))

    def messages(self, role: str) -> list[dict[str, Any]]:
        path = self.folder / "out" / f"{role}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self) -> list[str]:
        """Kinds of the run's events, then of the learner's, which has a file beside its store."""
        own = self.folder / "inliers.events.jsonl"
        of_learner = [json.loads(line) for line in own.read_text().splitlines()] if own.exists() else []
        return [event["kind"] for event in [*self.messages("events"), *of_learner]]

    def training(self) -> TrainingStatus:
        return read_status(Registry(self.folder / "registry"), "default")

    def faulty(self) -> set[str]:
        with (self.folder / "live" / "labels.csv").open(newline="") as file:
            return {row["sequence"] for row in csv.DictReader(file) if row["label"] != "0"}

    def files(self) -> dict[str, bytes]:
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


@pytest.fixture
def plant(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Plant:
    return Plant(simulated, tmp_path / "plant", capsys, monkeypatch)


@pytest.fixture(scope="module")
def first_life(simulated: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A plant after its first run, which has trained its first model, and what that run printed."""
    folder = tmp_path_factory.mktemp("trained") / "plant"
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant = Plant(simulated, folder, None, monkeypatch)  # type: ignore[arg-type]  # only writes the config here
        plant.configure(run={"report_interval": "1us"})
    outcome = streamad("run", "--quiet", cwd=folder, **ENVIRONMENT)
    assert outcome.code == 0, outcome.err
    return folder, outcome


@pytest.fixture
def trained(
    first_life: tuple[Path, Outcome],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Plant:
    return Plant(first_life[0], tmp_path / "plant", capsys, monkeypatch)


def test_recordings_and_a_config_are_enough(plant: Plant) -> None:
    model = {**CONFIG["model"], "detector": "neutral_ad", "options": SMALL}
    plant.configure(model=model)
    first = plant("run --json --quiet")
    assert first.code == 0, first.err
    report = first.last_json
    assert report["model"] == "default 0001"
    assert report["counters"]["verdicts"] == {"learning": TRAIN}
    served = report["counters"]["learning"]["default"]
    learned = served["learned"]
    assert (served["version"], learned["trainings"], learned["promotions"], served["swaps"]) == ("0001", 1, 1, 1)
    assert learned["accepted"] + learned["reserved"] == TRAIN
    assert Counter(plant.events()) == {"model_promoted": 1, "model_swapped": 1}
    plant.configure("live", model=model)
    second = plant("run --json --quiet")
    assert second.code == 0, second.err
    assert second.last_json["counters"]["verdicts"].keys() <= {"normal", "anomalous"}
    later = plant.messages("verdicts")[TRAIN:]
    assert len(later) == NORMAL + FAULTY
    assert {verdict["model"]["version"] for verdict in later} == {"0001"}
    faulty = plant.faulty()
    alerted = {verdict["sequence"] for verdict in later if verdict["decision"] == "anomalous"}
    normal = {verdict["sequence"] for verdict in later} - faulty
    assert len(alerted & normal) / NORMAL < 0.5
    assert len(alerted & faulty) / FAULTY > len(alerted & normal) / NORMAL + 0.2


def test_a_ctrl_c_ends_the_training_and_the_next_run_goes_on_with_it(plant: Plant) -> None:
    plant.configure(model={**CONFIG["model"], "options": {"epoch_ms": 600_000}}, run={"stop_timeout": "6s"})
    with started("run", "--quiet", cwd=plant.folder, **ENVIRONMENT) as process:
        deadline = time.monotonic() + LIMIT_S
        while plant.training().state != "running":
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "not within three minutes"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said
    assert plant.training().state == "interrupted"
    assert plant.events() == []
    assert len(plant.messages("verdicts")) == TRAIN
    plant.configure()
    outcome = plant("run --json --quiet")
    assert outcome.code == 0, outcome.err
    assert outcome.last_json["model"] == "default 0001"
    assert len(plant.messages("verdicts")) == TRAIN
    assert Counter(plant.events()) == {"model_promoted": 1, "model_swapped": 1}


def test_a_replay_learns_nothing(trained: Plant) -> None:
    before = trained.files()
    outcome = trained("replay live/recordings.jsonl --json --quiet")
    assert outcome.code == 0, outcome.err
    assert outcome.last_json["model"] == "default 0001"
    assert "learning" not in outcome.last_json["counters"]
    assert trained.files() == before


def test_without_learning_nothing_of_it_is_there(plant: Plant) -> None:
    plant.configure(learning=None)
    outcome = plant("run")
    outcome.assert_one_line_error("no model 'default'", "learning: {}", "streamad train")
    trained = plant("train train/recordings.jsonl")
    assert trained.code == 0, trained.err
    before = plant.files()
    outcome = plant("run --json")
    assert outcome.code == 0, outcome.err
    assert "learning" not in outcome.last_json["counters"]
    changed = {name for name, content in plant.files().items() if before.get(name) != content}
    assert {name.split("/")[0] for name in changed} == {"out", "checkpoint"}


def test_a_replay_without_a_model_names_the_commands_that_make_one(plant: Plant) -> None:
    plant("replay").assert_one_line_error("no model 'default'", "streamad run", "streamad train")


def test_a_broken_model_at_the_start_ends_the_run_with_one_line(trained: Plant) -> None:
    path = trained.folder / "registry" / "default" / "versions" / "0001" / "mean.npz"
    path.write_bytes(path.read_bytes()[:-1])
    trained.configure("live")
    trained("run").assert_one_line_error("mean.npz is damaged")


def test_the_status_line_contains_the_learning_counters(first_life: tuple[Path, Outcome]) -> None:
    lines = [json.loads(line) for line in first_life[1].err.splitlines() if line.startswith("{")]
    status = [line for line in lines if line["event"] == "status"]
    assert status[-1]["learning"]["default"].keys() == {"version", "swaps", "learned"}
    said = [line["learning"]["default"]["learned"] for line in status if line["learning"]["default"]["learned"]]
    stored, trained = {"accepted", "reserved", "aside"}, {"trainings", "promotions", "not_promoted", "failed"}
    assert {"drifts"} | stored | trained == set(said[-1])


def test_at_a_terminal_the_status_line_shows_learning_and_training(plant: Plant) -> None:
    plant.configure(model={**CONFIG["model"], "options": {"epoch_ms": 1500}})
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "streamad", "run"],
        cwd=plant.folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200", **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
    )
    os.close(slave)
    said = b""
    try:
        while chunk := _read(master):
            said += chunk
        out, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
        os.close(master)
    assert "0001" in out
    assert re.search(r"learned\s+\d+ accepted, \d+ reserved", out), out
    text = said.decode()
    assert f"{TRAIN} sequences, none judged yet, training" in text
    assert "epoch " in text
    assert re.search(r"EVENT.* model_promoted", text)
    assert re.search(r"EVENT.* model_swapped: default 0001 is in service as the first one", text)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # Linux: nobody has the other end open any more
        return b""
