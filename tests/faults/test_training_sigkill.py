"""Learners and trainers that are killed at any moment: one training at a time, none lost, nothing broken."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.results import TrainingOutcome
from tests.support.learning.training import ENVIRONMENT, TrainingPlant, WorkerProcess, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL, SIGSTOP and /proc")

KILLS = 8


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingPlant:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    plant = TrainingPlant(tmp_path)
    plant.fill()
    return plant


@pytest.fixture
def ended() -> Iterator[list[int]]:
    """Processes that a failing test leaves behind are ended, each by its id."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that only waits for its parent to take note of its end does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def in_first_fit(plant: TrainingPlant, worker: WorkerProcess) -> int:
    """Return the pid of the trainer, once it is held in the middle of its first fit."""
    before = len(plant.journal("epoch"))
    worker.until(lambda: len(plant.journal("epoch")) > before)
    return int(plant.journal("epoch")[-1]["pid"])


def assert_clean(plant: TrainingPlant) -> None:
    """The registry loads, names a whole version, and nothing is left of what was killed."""
    registry: Registry = plant.registry
    current = registry.current("default")
    assert current is not None
    for version in registry.versions("default"):
        assert registry.manifest("default", version).version == version
    registry.promote("default", current, expected=current)  # verifies its files
    status = plant.status()
    assert status.state == "idle"
    assert isinstance(status.last, TrainingOutcome)
    left = {path.name for path in plant.training.rglob("*") if path.is_file()}
    assert left == {"lock", "status.json"}


def test_a_killed_worker_s_trainer_ends_by_itself_and_the_training_goes_on_at_the_next_start(
    plant: TrainingPlant, ended: list[int]
) -> None:
    plant.hold.touch()
    plant.post()
    with plant.worker() as worker:
        trainer = in_first_fit(plant, worker)
        ended.append(trainer)
        worker.process.kill()
        until(lambda: not is_alive(trainer))
    assert plant.status().state == "interrupted"
    assert plant.registry.versions("default") == ()
    plant.hold.unlink()
    with plant.worker() as worker:
        worker.until(lambda: bool(worker.outcomes))
    assert [entry["epoch"] for entry in plant.journal("epoch")][:4] == [1, 2, 3, 4], "no epoch was trained twice"
    assert plant.status().attempt == 1, "an orderly end is no death"
    assert_clean(plant)


def test_two_learners_never_train_at_once_and_each_request_is_trained_once(plant: TrainingPlant) -> None:
    """As after a takeover by another machine, while the first one's process still works."""
    asked = {plant.post().id for _ in range(4)}
    with plant.worker() as first, plant.worker() as second:
        until(lambda: not plant.store().requests(), lambda: first.said() + second.said())
        trained = [outcome.request.id for worker in (first, second) for outcome in worker.outcomes]
    assert set(trained) == asked
    pids = [entry["pid"] for entry in plant.journal()]
    runs = [pid for index, pid in enumerate(pids) if index == 0 or pids[index - 1] != pid]
    assert len(runs) == len(set(runs)), "what one did, it did without another one in between"
    assert_clean(plant)


def test_killed_at_random_moments_a_training_still_comes_to_its_end(plant: TrainingPlant, ended: list[int]) -> None:
    """Workers, or both they and their trainers, each after some steps of a training: before, in or after its fits."""
    rng = random.Random(5)
    plant.post()
    n_interrupted = 0
    for number in range(KILLS):
        with plant.worker() as worker:
            steps = len(plant.journal()) + rng.randrange(1, 7)
            until(partial(has_reached, plant, worker, steps), worker.said)
            time.sleep(rng.random() * 0.01)
            trainer = int(plant.journal()[-1]["pid"])
            ended.append(trainer)
            worker.process.kill()
            if number % 2:
                with suppress(ProcessLookupError):
                    os.kill(trainer, signal.SIGKILL)
        until(lambda: plant.status().state != "running")
        if plant.status().state == "interrupted":
            n_interrupted += 1
        else:
            plant.post()
    assert n_interrupted >= KILLS // 3, "the kills hit trainings"
    with plant.worker() as worker:
        worker.until(lambda: not plant.store().requests())
    assert_clean(plant)


def has_reached(plant: TrainingPlant, worker: WorkerProcess, steps: int) -> bool:
    return len(plant.journal()) >= steps or bool(worker.outcomes)
