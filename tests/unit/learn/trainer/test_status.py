"""The progress of a training: what its process writes, and what others read, also after its death."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.errors import OutputError, RegistryError
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.lease import Lease
from streamad.learn.trainer.requests import TrainingFailed, TrainingRequest
from streamad.learn.trainer.status import StatusWriter, TrainingStatus, progress_of, read_status
from streamad.learn.training.fits import FitStep
from streamad.ports import TrainingStep
from streamad.testing import ManualClock

REQUEST = TrainingRequest(reason="drift", requested_us=7, detail="mean of temp")
FAILED = TrainingFailed(model="default", error="too few", request=REQUEST)
BEGUN = TrainingStatus(state="running", request=REQUEST, attempt=1, phase="preparing", started_us=5)


class Training:
    """A lease in this process, its status, and the two clocks of the writer."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry(root)
        self.clock = ManualClock(1_000_000)
        self.folder = self.registry.training_folder("default")
        self.path = self.folder / "status.json"
        self.lease = Lease(self.folder)
        self.lease.take(0)
        self.writer = StatusWriter(
            self.folder, BEGUN, self.clock, self.lease.is_held, lambda: self.clock.monotonic_us() / 1e6
        )

    def read(self) -> TrainingStatus:
        return read_status(self.registry, "default")


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    training = Training(tmp_path)
    yield training
    training.lease.release()


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
    training.lease.release()
    status = training.read()
    assert (status.state, status.last) == ("idle", FAILED)
    assert (status.last_started_us, status.last_ended_us) == (5, 61_000_000)


@pytest.mark.parametrize("has_died", [True, False])
def test_a_training_is_interrupted_by_a_death_or_in_good_order(training: Training, has_died: bool) -> None:
    training.writer.on_step(step(1))
    if has_died:
        training.lease.release()
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


def test_a_holder_that_lost_the_lease_writes_nothing(training: Training) -> None:
    (training.folder / "lease").unlink()  # as another process does that takes it from a stopped one
    later = Training(training.registry.root)
    training.writer.ended(FAILED)
    assert training.read().state == "running"
    later.lease.release()


def test_a_holder_that_loses_the_lease_while_it_writes_overwrites_nothing(training: Training) -> None:
    """As if it was stopped (SIGSTOP) between its question and its write, and another process trained meanwhile."""
    answers = iter((True, False))
    stopped = StatusWriter(training.folder, BEGUN, training.clock, lambda: next(answers, True))
    assert training.read().state == "running"
    training.writer.ended(FAILED)
    before = training.path.read_bytes()
    answers = iter((True, False))
    stopped.ended(FAILED)
    assert training.path.read_bytes() == before
    assert [path.name for path in training.folder.glob(".status*")] == []


def test_the_status_of_a_former_version_counts_until_the_next_training(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    holders = registry.training_folder("default") / "holders"
    holders.mkdir(parents=True)
    former = TrainingStatus(state="running", request=REQUEST, attempt=2, last=FAILED, last_ended_us=9)
    (holders / "0123456789abcdef.json").write_bytes(msgspec.json.encode(former))
    assert read_status(registry, "default") == msgspec.structs.replace(former, state="interrupted")
    training = Training(tmp_path)
    assert training.read().attempt == 1
    training.lease.release()


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
