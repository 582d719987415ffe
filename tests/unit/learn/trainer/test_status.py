"""The progress of a training: what its process writes, and what others read, also after its death."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.errors import OutputError, RegistryError
from streamad.learn.registry.registry import Registry
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import TrainingFailed
from streamad.learn.trainer.status import StatusWriter, TrainingStatus, lock_of, progress_of, read_status
from streamad.learn.training.fits import FitStep
from streamad.ports import TrainingStep
from streamad.system.locks import try_lock
from streamad.testing import ManualClock

REQUEST = TrainingRequest(reason="drift", requested_us=7, detail="mean of temp")
FAILED = TrainingFailed(model="default", error="too few", request=REQUEST)
BEGUN = TrainingStatus(state="running", request=REQUEST, attempt=1, phase="preparing", started_us=5)


class Training:
    """The lock of a training, held by this process, its status, and the two clocks of the writer."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry(root)
        self.clock = ManualClock(1_000_000)
        self.folder = self.registry.training_folder("default")
        self.path = self.folder / "status.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = try_lock(lock_of(self.folder))
        self.writer = StatusWriter(self.folder, BEGUN, self.clock, lambda: self.clock.monotonic_us() / 1e6)

    def die(self) -> None:
        """Release the lock, as the system does for a process that ends."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> TrainingStatus:
        return read_status(self.registry, "default")


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    training = Training(tmp_path)
    yield training
    training.die()


def step(epoch: int, *, fit: int = 1, phase: str = "calibration", loss: float = 0.5) -> FitStep:
    assert phase in ("calibration", "final", "comparison")
    return FitStep(phase, fit, 3, TrainingStep(epoch, 100, loss))  # type: ignore[arg-type]


def test_a_training_that_has_just_begun(training: Training) -> None:
    assert training.read() == msgspec.structs.replace(BEGUN, updated_us=1_000_000)


def test_progress_is_written_once_a_second(training: Training) -> None:
    for epoch, after_s in ((1, 0.0), (2, 0.5), (3, 0.499), (4, 0.001), (5, 0.999), (6, 0.001)):
        training.clock.advance(after_s)
        training.writer.on_step(step(epoch))
        written = {1: 1, 2: 1, 3: 1, 4: 4, 5: 4, 6: 6}[epoch]
        assert training.read().epoch == written
    status = training.read()
    assert (status.phase, status.fit, status.n_fits, status.n_epochs, status.loss) == ("calibration", 1, 3, 100, 0.5)
    assert status.updated_us == 3_000_000
    assert status.started_us == 5


def test_a_new_phase_is_written_at_once(training: Training) -> None:
    for each in (step(1), step(2), step(1, fit=3, phase="final")):
        training.writer.on_step(each)
    assert (training.read().phase, training.read().epoch) == ("final", 1)


def test_a_loss_that_is_no_number_is_none(training: Training) -> None:
    training.writer.on_step(step(1, loss=float("nan")))
    assert (training.read().epoch, training.read().loss) == (1, None)


def test_an_end_is_written_with_its_result_and_stays_after_the_process(training: Training) -> None:
    training.clock.advance(60)
    training.writer.ended(FAILED)
    training.die()
    status = training.read()
    assert (status.state, status.last) == ("idle", FAILED)
    assert status.last_ended_us == 61_000_000


@pytest.mark.parametrize("has_died", [True, False])
def test_a_training_is_interrupted_by_a_death_or_in_good_order(training: Training, has_died: bool) -> None:
    training.writer.on_step(step(1))
    if has_died:
        training.die()
    else:
        training.writer.interrupted()
    assert (training.read().state, training.read().epoch) == ("interrupted", 1)


def test_progress_that_cannot_be_written_does_not_stop_the_training_but_its_end_is_an_error(training: Training) -> None:
    training.path.unlink()
    training.path.mkdir()
    training.writer.on_step(step(1))
    training.writer.interrupted()
    with pytest.raises(OutputError, match=r"status\.json"):
        training.writer.ended(FAILED)
    with pytest.raises(RegistryError, match="cannot read the training status in"):
        training.read()


@pytest.mark.parametrize("content", [b"", b"{", b'{"state": "asleep"}', b'{"phase": "\xff"}', None])
def test_a_status_that_is_damaged_or_gone_is_idle(training: Training, content: bytes | None) -> None:
    if content is None:
        training.path.unlink()
    else:
        training.path.write_bytes(content)
    assert training.read() == TrainingStatus()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": "idle"}, "training, starting"),
        ({"pid": 41}, "training, starting"),
        ({}, "training, fit 1/7, epoch 10 of at most 20"),
        ({"n_fits": 1, "n_epochs": 0}, "training"),
    ],
)
def test_the_progress_of_a_former_training_is_not_that_of_the_process_that_runs(
    changes: dict[str, Any], text: str
) -> None:
    running = TrainingStatus(state="running", fit=1, n_fits=7, epoch=10, n_epochs=20, pid=42)
    assert progress_of(msgspec.structs.replace(running, **changes), 42) == text


def test_the_file_is_json_for_other_programs_too(training: Training) -> None:
    content = json.loads(training.path.read_text())
    assert (content["state"], content["request"]["reason"]) == ("running", "drift")
