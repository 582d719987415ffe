"""Retraining from the worker's side, with the real process: what it does, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.learn.trainer.child import Retrainer
from streamad.learn.trainer.lease import LeaseRecord, LeaseTimes, take_lease
from streamad.learn.trainer.requests import (
    TrainingFailed,
    TrainingOutcome,
    TrainingReason,
    TrainingRequest,
    TrainingResult,
    posted_requests,
)
from streamad.learn.trainer.status import TrainingStatus
from streamad.system.clock import SystemClock
from streamad.testing import ManualClock
from tests.support.learning.training import COMMAND, ENVIRONMENT, TIMES, TrainingPlant

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lowest priority is tested as Linux has it")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def retrainers() -> AsyncIterator[list[Retrainer]]:
    """Retrainers whose processes a failing test leaves behind are closed."""
    started: list[Retrainer] = []
    yield started
    for retrainer in started:
        await retrainer.close()


class Worker:
    """A Retrainer and what came of its trainings."""

    def __init__(self, plant: TrainingPlant, retrainers: list[Retrainer], **options: Any) -> None:
        self.results: list[TrainingResult] = []
        self.retrainer = plant.retrainer(self.results, **options)
        retrainers.append(self.retrainer)

    def start(self, reason: TrainingReason = "first") -> bool:
        return self.retrainer.start(request_of(reason))

    async def train(self, reason: TrainingReason = "first") -> TrainingResult:
        assert self.start(reason)
        await self.retrainer.wait()
        return self.results[-1]


def request_of(reason: TrainingReason = "first") -> TrainingRequest:
    return TrainingRequest(reason=reason, requested_us=SystemClock().now_us(), detail="40 sequences")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not is_so():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.002)


def assert_failed(result: TrainingResult, *words: str, kind: str = "failed") -> None:
    assert isinstance(result, TrainingFailed), result
    assert result.kind == kind, result
    assert "\n" not in result.error
    for word in words:
        assert word in result.error, result.error


async def test_a_training_makes_a_version_and_tells_so_once(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    worker = Worker(plant, retrainers)
    assert not worker.retrainer.is_running
    assert worker.start()
    assert worker.retrainer.is_running
    assert not worker.start(), "one runs"
    await worker.retrainer.wait()
    assert not worker.retrainer.is_running
    (outcome,) = worker.results
    assert isinstance(outcome, TrainingOutcome), outcome
    assert (outcome.version, outcome.promoted, outcome.request.reason) == ("0001", True, "first")
    assert plant.registry.current("default") == "0001"
    status = plant.status()
    assert (status.state, status.last) == ("idle", outcome)
    assert status.last_started_us is not None
    assert status.last_ended_us is not None
    assert status.last_started_us <= status.last_ended_us


async def test_the_process_has_the_lowest_priority_and_the_threads_of_the_config(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    """The command that a worker uses; the other tests leave the priority alone."""
    plant = TrainingPlant(tmp_path, threads=2)
    plant.fill()
    results: list[TrainingResult] = []
    retrainer = Retrainer(plant.plant, "default", results.append)
    retrainers.append(retrainer)
    own = os.nice(0)
    retrainer.start(request_of())
    await retrainer.wait()
    assert isinstance(results[0], TrainingOutcome), results
    (first, *_) = plant.journal("fit")
    assert (first["nice"], first["policy"], first["threads"]) == (19, os.SCHED_IDLE, "2")
    assert os.nice(0) == own, "but not the worker"


async def test_a_registry_that_hangs_holds_up_the_training_and_not_the_worker(
    tmp_path: Path, retrainers: list[Retrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, gate = threading.Event(), threading.Event()
    glob = Path.glob

    def slow(folder: Path, pattern: str) -> Iterator[Path]:
        hanging.set()
        assert gate.wait(20), "the event loop waits, too"
        return glob(folder, pattern)

    monkeypatch.setattr(Path, "glob", slow)
    worker = Worker(TrainingPlant(tmp_path), retrainers, command=[sys.executable, "-c", ""])
    worker.start("command")
    await until(hanging.is_set)
    gate.set()
    await worker.retrainer.wait()
    assert_failed(worker.results[0], "ended with exit code 0")


async def test_progress_is_visible_while_it_runs(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    plant.hold.touch()
    worker = Worker(plant, retrainers)
    worker.start("drift")
    await until(lambda: plant.status().n_epochs > 0)
    status = plant.status()
    assert (status.state, status.epoch, status.n_epochs, status.fit) == ("running", 1, 4, 1)
    assert (status.loss, status.attempt, status.pid) == (1.0, 1, worker.retrainer.pid)
    assert status.request is not None
    assert (status.request.reason, status.request.detail) == ("drift", "40 sequences")
    plant.hold.unlink()
    await worker.retrainer.wait()
    assert plant.status().state == "idle"


async def test_the_environment_has_its_say_when_the_config_is_read_and_not_again(
    tmp_path: Path, retrainers: list[Retrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    monkeypatch.setenv("STREAMAD_LEARNING__MIN_TRAINING", "2000")
    monkeypatch.setenv("STREAMAD_MODEL__REGISTRY", str(tmp_path / "elsewhere"))
    assert isinstance(await Worker(plant, retrainers).train(), TrainingOutcome)
    assert plant.registry.current("default") == "0001"


async def test_too_few_sequences_are_one_clear_line_and_no_version(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill(accepted=10, reserve=5)
    assert_failed(await Worker(plant, retrainers).train(), "10", "20", "min_training")
    assert plant.registry.versions("default") == ()
    status = plant.status()
    assert status.state == "idle"
    assert isinstance(status.last, TrainingFailed)


async def test_an_empty_store_is_one_clear_line(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    assert_failed(await Worker(TrainingPlant(tmp_path), retrainers).train(), "min_training")


async def test_an_unreadable_store_is_one_clear_line(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    (tmp_path / "inliers").write_text("a file where a folder should be")
    assert_failed(await Worker(TrainingPlant(tmp_path), retrainers).train(), str(tmp_path / "inliers"))


async def test_a_full_disk_is_one_clear_line_and_the_next_training_succeeds(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    limited = ("bash", "-c", 'ulimit -f 1; exec "$@"', "-", *COMMAND)
    result = await Worker(plant, retrainers, command=limited).train()
    assert_failed(result, "cannot write", "raise the file size limit")
    assert plant.registry.current("default") is None
    assert isinstance(await Worker(plant, retrainers).train(), TrainingOutcome)


async def test_a_registry_that_cannot_be_written_is_one_clear_line(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    (tmp_path / "registry").write_text("a file where a folder should be")
    result = await Worker(TrainingPlant(tmp_path), retrainers).train()
    assert_failed(result, f"cannot read {tmp_path}/registry", "Not a directory")


@pytest.mark.parametrize(
    ("failure", "words"),
    [("error", "RuntimeError: the detector is broken"), ("exit", "SystemExit: 3")],
)
async def test_a_broken_detector_is_one_clear_line(
    tmp_path: Path, retrainers: list[Retrainer], failure: str, words: str
) -> None:
    plant = TrainingPlant(tmp_path, options={"failure": failure})
    plant.fill()
    assert_failed(await Worker(plant, retrainers).train(), words)
    assert plant.status().state == "idle"


async def test_what_a_detector_prints_does_not_get_mixed_up_with_the_result(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path, options={"failure": "chatter"})
    plant.fill()
    assert isinstance(await Worker(plant, retrainers).train(), TrainingOutcome)


async def test_a_detector_that_is_not_installed_is_one_clear_line(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    model = plant.settings.model.model_copy(update={"detector": "pacd"})
    plant.settings = plant.settings.model_copy(update={"model": model})
    assert_failed(await Worker(plant, retrainers).train(), "no detector 'pacd'; did you mean 'paced'?")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/nowhere/python",), ["cannot start the training process: No such file or directory"]),
        ((sys.executable, "-c", "import nowhere"), ["ended with exit code 1", "No module named 'nowhere'"]),
        ((sys.executable, "-c", "print('not a result')"), ["ended with exit code 0"]),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), ["was killed by signal 9"]),
        (("sleep", "inf"), ["interrupted before it had begun"]),
    ],
)
async def test_a_process_that_never_got_to_its_job_is_one_clear_line(
    tmp_path: Path, retrainers: list[Retrainer], command: tuple[str, ...], words: list[str]
) -> None:
    worker = Worker(TrainingPlant(tmp_path), retrainers, command=command)
    worker.start()
    if command[0] == "sleep":
        await until(lambda: worker.retrainer.pid is not None)
        await worker.retrainer.close()
    await worker.retrainer.wait()
    assert_failed(worker.results[-1], *words, kind="interrupted" if command[0] == "sleep" else "failed")


async def test_settings_that_cannot_be_passed_on_are_one_clear_line(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path, options={"odd": float("inf")})
    assert_failed(await Worker(plant, retrainers).train(), "options", "JSON has no form for")


async def test_closing_interrupts_a_training_that_goes_on_where_it_was_at_the_next_start(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path, options={"free_epochs": 2})
    plant.fill()
    plant.hold.touch()
    worker = Worker(plant, retrainers)
    worker.start("schedule")
    await until(lambda: len(plant.journal("epoch")) == 2)
    await worker.retrainer.close()
    assert_failed(worker.results[-1], "it goes on at the next start", kind="interrupted")
    assert not worker.start(), "closed"
    assert plant.status().state == "interrupted"
    plant.hold.unlink()

    later = Worker(plant, retrainers)
    request = later.retrainer.waiting()
    assert request == worker.results[-1].request
    assert later.retrainer.start(request)
    await later.retrainer.wait()
    (outcome,) = later.results
    assert isinstance(outcome, TrainingOutcome), outcome
    assert outcome.request == request
    assert [entry["epoch"] for entry in plant.journal("epoch")][:4] == [1, 2, 3, 4], "no epoch was trained twice"
    assert later.retrainer.waiting() is None
    assert plant.status().attempt == 1, "an orderly end is no death"


async def test_a_training_that_does_not_listen_is_killed_after_the_grace(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path, options={"failure": "stubborn"})
    plant.fill()
    plant.hold.touch()
    worker = Worker(plant, retrainers, grace_s=0.2)
    worker.start()
    await until(lambda: len(plant.journal("epoch")) == 1)
    async with asyncio.timeout(120):
        await worker.retrainer.close()
    assert_failed(worker.results[-1], "it goes on at the next start", kind="interrupted")
    with pytest.raises(ProcessLookupError):
        os.kill(plant.journal()[-1]["pid"], 0)


async def test_closing_without_any_training_returns_at_once_and_twice(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    worker = Worker(TrainingPlant(tmp_path), retrainers)
    await worker.retrainer.close()
    await worker.retrainer.close()
    await worker.retrainer.wait()
    assert not worker.start()
    assert worker.results == []


async def test_closing_in_the_same_breath_as_starting_trains_nothing(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    worker = Worker(TrainingPlant(tmp_path), retrainers)
    assert worker.start()
    await worker.retrainer.close()
    assert not worker.retrainer.is_running
    await worker.retrainer.wait()
    assert not plant_files(tmp_path)


def plant_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_training_that_waits_for_the_lease_is_ended_at_once(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    """The holder is another process that stands still: only after a minute would it be known to."""
    plant = TrainingPlant(tmp_path)
    lease = take_lease(plant.training, request_of(), prepare=lambda former, status: 1, since_us=0)
    worker = Worker(plant, retrainers, times=LeaseTimes(stopped_after_s=3600), grace_s=60)
    worker.start()
    await until(lambda: worker.retrainer.pid is not None and catches_sigterm(worker.retrainer.pid))
    async with asyncio.timeout(50):
        await worker.retrainer.close()
    assert_failed(worker.results[-1], "interrupted before it had begun", kind="interrupted")
    assert lease.is_held()
    lease.release()


def catches_sigterm(pid: int) -> bool:
    """Say whether the trainer has come to its job."""
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) & 1 << signal.SIGTERM - 1)


async def test_a_training_beside_another_worker_s_is_refused_with_its_pid(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    plant.hold.touch()
    first, second = Worker(plant, retrainers), Worker(plant, retrainers)
    first.start()
    await until(lambda: len(plant.journal("epoch")) == 1)
    assert second.retrainer.waiting() is None
    assert_failed(await second.train("command"), f"already runs (pid {first.retrainer.pid} on", kind="refused")
    plant.hold.unlink()
    await first.retrainer.wait()
    assert isinstance(first.results[-1], TrainingOutcome)
    assert {entry["pid"] for entry in plant.journal()} == {plant.status().pid}


async def test_what_nobody_asked_for_is_not_done_again_by_another_worker(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path, min_interval="1h")
    plant.fill()
    assert isinstance(await Worker(plant, retrainers).train("schedule"), TrainingOutcome)
    other = Worker(plant, retrainers)
    assert_failed(await other.train("schedule"), "another worker has trained the model 0 min ago", kind="refused")
    assert isinstance(await other.train("command"), TrainingOutcome)


async def test_a_posted_request_is_taken_on_once(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    asked = plant.post()
    first, second = Worker(plant, retrainers), Worker(plant, retrainers)
    assert first.retrainer.waiting() == second.retrainer.waiting() == asked
    plant.hold.touch()
    assert first.retrainer.start(asked)
    await until(lambda: len(plant.journal("epoch")) == 1)
    assert posted_requests(plant.registry, "default") == {}
    plant.hold.unlink()
    await first.retrainer.wait()
    assert isinstance(first.results[-1], TrainingOutcome)
    assert first.results[-1].request.requested_us > asked.requested_us, "it trains on what is stored by now"
    assert first.retrainer.waiting() is None
    assert second.retrainer.waiting() is None


async def test_a_request_that_another_worker_has_done_meanwhile_is_refused(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    """The second one read the request before the first one took it on, and comes to it when that is done."""
    plant = TrainingPlant(tmp_path)
    plant.fill()
    asked = plant.post()
    slow = ("bash", "-c", f'while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exec "$@"', "-", *COMMAND)
    first, second = Worker(plant, retrainers), Worker(plant, retrainers, command=slow)
    assert second.retrainer.start(asked)
    await until(lambda: second.retrainer.pid is not None)
    assert first.retrainer.start(asked)
    await first.retrainer.wait()
    (tmp_path / "go").touch()
    await second.retrainer.wait()
    assert isinstance(first.results[-1], TrainingOutcome)
    assert_failed(second.results[-1], "another worker has taken this request on", kind="refused")


async def test_an_interrupted_training_is_taken_up_by_one_worker(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    plant.hold.touch()
    worker = Worker(plant, retrainers)
    worker.start()
    await until(lambda: len(plant.journal("epoch")) == 1)
    await worker.retrainer.close()
    slow = ("bash", "-c", f'while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exec "$@"', "-", *COMMAND)
    first, second = Worker(plant, retrainers), Worker(plant, retrainers, command=slow)
    request = second.retrainer.waiting()
    assert request is not None
    assert request == first.retrainer.waiting()
    assert second.retrainer.start(request)
    await until(lambda: second.retrainer.pid is not None)
    plant.hold.unlink()
    assert first.retrainer.start(request)
    await first.retrainer.wait()
    (tmp_path / "go").touch()
    await second.retrainer.wait()
    assert isinstance(first.results[-1], TrainingOutcome)
    assert_failed(second.results[-1], "another worker has taken the interrupted training up", kind="refused")


async def test_what_an_operator_asked_for_is_not_lost_to_another_training(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    """A relearning is interrupted, and before anybody takes it up, drift starts another training."""
    plant = TrainingPlant(tmp_path)
    plant.fill()
    plant.hold.touch()
    worker = Worker(plant, retrainers)
    worker.retrainer.start(TrainingRequest(reason="command", requested_us=1, detail="by Ada"))
    await until(lambda: len(plant.journal("epoch")) == 1)
    await worker.retrainer.close()
    plant.hold.unlink()
    other = Worker(plant, retrainers)
    assert isinstance(await other.train("drift"), TrainingOutcome)
    waiting = other.retrainer.waiting()
    assert waiting is not None
    assert (waiting.reason, waiting.detail) == ("command", "by Ada")


async def test_the_later_of_two_words_of_an_operator_counts(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    """What was asked for anew meanwhile must not be done after it, with what was said before."""
    plant = TrainingPlant(tmp_path)
    plant.fill()
    plant.hold.touch()
    worker = Worker(plant, retrainers)
    worker.retrainer.start(TrainingRequest(reason="command", requested_us=1, detail="yesterday"))
    await until(lambda: len(plant.journal("epoch")) == 1)
    await worker.retrainer.close()
    plant.hold.unlink()
    other = Worker(plant, retrainers)
    assert isinstance(await other.train("command"), TrainingOutcome)
    assert other.retrainer.waiting() is None


async def test_a_training_that_dies_again_and_again_is_given_up(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path, options={"failure": "kill", "epochs": 50, "free_epochs": 50})
    plant.fill()
    clock = ManualClock(SystemClock().now_us())
    worker = Worker(plant, retrainers, clock=clock)
    worker.start()
    await worker.retrainer.wait()
    for attempt in (2, 3, 4):
        assert_failed(worker.results[-1], "was killed by signal 9", "it is started again", kind="interrupted")
        assert worker.retrainer.waiting() is None, "not at once"
        clock.advance(3600)
        request = worker.retrainer.waiting()
        assert request is not None
        assert worker.retrainer.start(request)
        await worker.retrainer.wait()
        assert plant.status().attempt == attempt
    assert_failed(worker.results[-1], "died 3 times without a word")
    clock.advance(3600)
    assert worker.retrainer.waiting() is None


async def test_what_waits_is_tried_again_after_pauses_that_double(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    clock = ManualClock()
    worker = Worker(plant, retrainers, clock=clock, command=("false",))
    asked = plant.post()
    for pause_s in (10, 20, 40):
        assert worker.retrainer.waiting() == asked
        worker.retrainer.start(asked)
        await worker.retrainer.wait()
        clock.advance(pause_s - 0.001)
        assert worker.retrainer.waiting() is None
        clock.advance(0.001)


async def test_retrainers_that_share_turns_train_one_after_the_other(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plants = [TrainingPlant(tmp_path / name) for name in ("a", "b", "c")]
    turns = asyncio.Semaphore(1)
    workers = []
    for plant in plants:
        plant.folder.mkdir()
        plant.fill()
        plant.hold.touch()
        workers.append(Worker(plant, retrainers, turns=turns))
        workers[-1].start()
    await until(lambda: len(plants[0].journal("epoch")) == 1)
    assert all(worker.retrainer.is_running for worker in workers)
    assert workers[1].retrainer.pid is None
    async with asyncio.timeout(5):
        await workers[2].retrainer.close()
    assert not workers[2].retrainer.is_running
    for plant in plants:
        plant.hold.unlink()
    for worker in workers[:2]:
        await worker.retrainer.wait()
        assert isinstance(worker.results[-1], TrainingOutcome)
    assert not plants[2].journal()
    assert not workers[2].results


async def test_the_next_training_may_be_started_where_the_end_of_one_is_told(
    tmp_path: Path, retrainers: list[Retrainer]
) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    results: list[TrainingResult] = []

    def emit(result: TrainingResult) -> None:
        results.append(result)
        if len(results) == 1:
            assert retrainer.start(request_of("command"))

    retrainer = Retrainer(plant.plant, "default", emit, times=TIMES, command=COMMAND)
    retrainers.append(retrainer)
    retrainer.start(request_of("command"))
    await retrainer.wait()
    assert [isinstance(result, TrainingOutcome) for result in results] == [True, True]


async def test_cancelling_the_worker_ends_its_process(tmp_path: Path) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    plant.hold.touch()
    retrainer = plant.retrainer([])
    others = asyncio.all_tasks()
    retrainer.start(request_of())
    await until(lambda: len(plant.journal("epoch")) == 1)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    await retrainer.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(plant.journal()[-1]["pid"], 0)


async def test_a_lease_held_by_this_very_process_is_respected_too(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    """Such as by a test of somebody's own: the holder's count moves, the trainer is refused."""
    plant = TrainingPlant(tmp_path)

    def prepare(former: LeaseRecord | None, status: Path) -> int:
        status.write_bytes(msgspec.json.encode(TrainingStatus(state="running")))
        return 1

    lease = take_lease(plant.training, request_of(), prepare=prepare, since_us=0)
    worker = Worker(plant, retrainers)
    worker.start()
    while worker.retrainer.is_running:
        lease.renew()
        await asyncio.sleep(0.001)
    assert_failed(worker.results[-1], f"pid {os.getpid()}", kind="refused")
    assert lease.is_held()
    lease.release()


async def test_ctrl_c_at_a_terminal_is_the_worker_s_to_answer(tmp_path: Path, retrainers: list[Retrainer]) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill()
    plant.hold.touch()
    worker = Worker(plant, retrainers)
    worker.start()
    await until(lambda: len(plant.journal("epoch")) == 1)
    assert worker.retrainer.pid is not None
    os.kill(worker.retrainer.pid, signal.SIGINT)
    plant.hold.unlink()
    await worker.retrainer.wait()
    assert isinstance(worker.results[-1], TrainingOutcome)
