"""A plant that learns its first version warns of a running sequence, once, also if it is killed meanwhile."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.test_learner_sigkill import until
from tests.support.kafka.workers import Worker
from tests.support.learning.scenario import LIMIT_S, Scenario
from tests.support.learning.store import NAME
from tests.support.runtime.pipeline import START_US, L

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server and /proc")

EARLY = {"false_alarm_rate": 0.05, "looks": 4}
N_USUAL = 90


def plant_in(folder: Path) -> Scenario:
    """A plant whose feed grows: so far the sequences of its cold start."""
    plant = Scenario(folder, "here")
    path = folder / "plant.yaml"
    content = yaml.safe_load(path.read_text())
    content["source"] = {"url": "feed.jsonl", "options": {"follow": True}}
    content["alerts"]["early"] = EARLY
    content["sinks"]["warnings"] = "out/warnings.jsonl"
    path.write_text(yaml.safe_dump(content))
    feed(plant, [plant.plant.message(number) for number in range(N_USUAL)])
    return plant


def feed(plant: Scenario, lines: list[bytes]) -> None:
    with (plant.folder / "feed.jsonl").open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))


def samples(plant: Scenario, number: int, begin: int, end: int) -> list[bytes]:
    """Samples of a sequence that leaves the usual course at its fifth sample."""
    rows = plant.plant.values(number)[:4] + plant.plant.values(number, level=10.0)[4:]
    head = {"stream": f"s{number % 3}", "sequence": f"B-{number}"}
    times = [START_US / 1e6 + 60 * number + step for step in range(L)]
    found = [{**head, "times": [times[step]], "values": [rows[step]], "end": step == L - 1} for step in range(L)]
    return [json.dumps(each).encode() for each in found[begin:end]]


def said(plant: Scenario, role: str) -> list[dict[str, Any]]:
    """What is committed of a role, as far as its last line is whole."""
    path = plant.folder / f"out/{role}.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def run_of(plant: Scenario, number: int) -> Worker:
    return plant.forks.start("run", ["run", "--quiet"], plant.folder, plant.folder / f"run-{number}.log")


def test_a_running_sequence_is_warned_of_by_the_first_version_that_was_learned(tmp_path: Path) -> None:
    plant = plant_in(tmp_path / "plant")
    run = run_of(plant, 1)
    try:
        until(lambda: plant.plant.registry.current(NAME) == "0001" or not run.is_running)
        assert run.is_running, run.said()[-3000:]
        until(lambda: any(each["kind"] == "model_swapped" for each in said(plant, "events")))
        assert [each["kind"] for each in said(plant, "events") if each["kind"] == "no_looks"] == []
        feed(plant, samples(plant, N_USUAL, 0, 12))
        until(lambda: bool(said(plant, "warnings")))
        run.kill()
        run = run_of(plant, 2)
        feed(plant, samples(plant, N_USUAL, 12, L))
        until(lambda: len(said(plant, "verdicts")) > N_USUAL)
        run.send(signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0, run.said()[-3000:]
    finally:
        run.end()
    (warning,) = said(plant, "warnings")
    verdict = said(plant, "verdicts")[-1]
    assert (warning["sequence"], verdict["sequence"]) == (f"B-{N_USUAL}", f"B-{N_USUAL}")
    assert warning["model"]["version"] == "0001"
    assert warning["age"] < 1
    assert verdict["warning"] == {"warning_id": warning["warning_id"], "age": warning["age"]}
    stored = plant.plant.store()
    kept = [one for share in ("accepted", "reserve", "aside") for one in stored.read(share)]  # type: ignore[arg-type]
    assert len(kept) >= N_USUAL
    assert all(one.course is not None for one in kept)
