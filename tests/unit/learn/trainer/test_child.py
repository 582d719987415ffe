"""Trainings from the learner's side, with the real process: results, failures, requests, and the end."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from streamad.learn.process.service import PlantLearner
from streamad.learn.store.records import TrainingReason, TrainingRequest
from streamad.learn.trainer import job
from streamad.learn.trainer.child import TrainerSpec
from streamad.learn.trainer.results import TrainingFailed, TrainingOutcome, TrainingResult
from streamad.learn.trainer.status import TrainingStatus, lock_of
from streamad.learn.trainer.trainings import Need
from streamad.system.clock import SystemClock
from streamad.system.locks import try_lock
from streamad.testing import ManualClock
from tests.support.learning.training import COMMAND, ENVIRONMENT, PLUGINS, TrainingPlant
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lowest priority is tested as Linux has it")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(PLUGINS)


class Worker:
    """The trainings of a learner, and their results."""

    def __init__(self, plant: TrainingPlant, thread: ThreadPoolExecutor, **options: Any) -> None:
        self.results: list[TrainingResult] = []
        self.trainings = plant.trainings(self.results.append, thread, **options)

    @property
    def pid(self) -> int | None:
        return self.trainings._child.pid  # noqa: SLF001

    def start(self, reason: TrainingReason = "first") -> bool:
        return self.trainings.start(request_of(reason))

    async def train(self, reason: TrainingReason = "first") -> TrainingResult:
        assert self.start(reason)
        await self.trainings.wait()
        return self.results[-1]

    async def start_held(self, plant: TrainingPlant, request: TrainingRequest | None = None) -> None:
        """Start a training that stands after its first epoch."""
        plant.hold.touch()
        assert self.trainings.start(request or request_of())
        await until(lambda: len(plant.journal("epoch")) == 1)


WorkerOf: TypeAlias = Callable[..., Worker]


@pytest.fixture
async def worker_of() -> AsyncIterator[WorkerOf]:
    """Trainings of a plant; processes that a failing test leaves behind are ended."""
    started: list[Worker] = []
    with ThreadPoolExecutor(1) as thread:

        def worker_of(plant: TrainingPlant, **options: Any) -> Worker:
            started.append(Worker(plant, thread, **options))
            return started[-1]

        yield worker_of
        for worker in started:
            await worker.trainings.close()


@pytest.fixture
def plant(tmp_path: Path) -> TrainingPlant:
    return filled(tmp_path)


def filled(folder: Path, **options: Any) -> TrainingPlant:
    plant = TrainingPlant(folder, **options)
    plant.fill()
    return plant


def request_of(reason: TrainingReason = "first") -> TrainingRequest:
    return TrainingRequest(reason=reason, requested_us=SystemClock().now_us(), detail="40 sequences")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.002)


def assert_failed(result: TrainingResult, *words: str, kind: str = "failed") -> None:
    assert isinstance(result, TrainingFailed), result
    assert result.kind == kind, result
    assert "\n" not in result.error
    for word in words:
        assert word in result.error, result.error


async def test_a_training_makes_a_version_and_reports_it_once(plant: TrainingPlant, worker_of: WorkerOf) -> None:
    worker = worker_of(plant)
    assert not worker.trainings.is_running
    assert worker.start()
    assert worker.trainings.is_running
    assert not worker.start(), "one runs"
    await worker.trainings.wait()
    assert not worker.trainings.is_running
    (outcome,) = worker.results
    assert isinstance(outcome, TrainingOutcome), outcome
    assert (outcome.version, outcome.promoted, outcome.request.reason) == ("0001", True, "first")
    assert plant.registry.current("default") == "0001"
    status = plant.status()
    assert (status.state, status.last) == ("idle", outcome)
    assert status.last_ended_us is not None


async def test_the_process_has_the_lowest_priority_and_the_threads_of_the_config(
    tmp_path: Path, worker_of: WorkerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that a worker uses; the other tests leave the priority alone."""
    monkeypatch.delenv("TESTS_KEEP_PRIORITY")
    plant, own = filled(tmp_path, threads=2), os.nice(0)
    result = await worker_of(plant, command=(sys.executable, "-m", "streamad.learn.trainer")).train()
    assert isinstance(result, TrainingOutcome), result
    (first, *_) = plant.journal("fit")
    assert (first["nice"], first["policy"], first["threads"]) == (19, os.SCHED_IDLE, "2")
    assert os.nice(0) == own, "but not the worker"


async def test_progress_is_visible_while_it_runs(plant: TrainingPlant, worker_of: WorkerOf) -> None:
    plant.hold.touch()
    worker = worker_of(plant)
    worker.start("drift")
    await until(lambda: plant.status().n_epochs > 0)
    status = plant.status()
    assert (status.state, status.epoch, status.n_epochs, status.fit) == ("running", 1, 4, 1)
    assert (status.loss, status.attempt, status.pid) == (1.0, 1, worker.pid)
    assert status.request is not None
    assert (status.request.reason, status.request.detail) == ("drift", "40 sequences")
    plant.hold.unlink()
    await worker.trainings.wait()
    assert plant.status().state == "idle"


async def test_the_environment_overrides_the_config_when_it_is_read_and_not_again(
    plant: TrainingPlant, tmp_path: Path, worker_of: WorkerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do options change on the way that JSON has no form for."""
    source = plant.settings.source.model_copy(update={"options": {"since": date(2026, 3, 1), "limit": math.inf}})
    plant.settings = plant.settings.model_copy(update={"source": source})
    monkeypatch.setenv("STREAMAD_LEARNING__MIN_TRAINING", "2000")
    monkeypatch.setenv("STREAMAD_MODEL__REGISTRY", str(tmp_path / "elsewhere"))
    assert isinstance(await worker_of(plant).train(), TrainingOutcome)
    assert plant.registry.current("default") == "0001"


async def test_too_few_sequences_are_one_clear_line_and_no_version(tmp_path: Path, worker_of: WorkerOf) -> None:
    plant = TrainingPlant(tmp_path)
    plant.fill(accepted=10, reserve=5)
    result = await worker_of(plant).train()
    assert_failed(result, "10", "20", "min_training")
    assert plant.registry.versions("default") == ()
    assert (plant.status().state, plant.status().last) == ("idle", result)


@pytest.mark.parametrize(
    ("in_the_way", "words"),
    [
        ("inliers", ["{folder}/inliers"]),
        ("registry", ["cannot write", "{folder}/registry", "Not a directory"]),
    ],
)
async def test_an_unreadable_folder_is_one_clear_line(
    tmp_path: Path, worker_of: WorkerOf, in_the_way: str, words: list[str]
) -> None:
    (tmp_path / in_the_way).write_text("a file where a folder should be")
    result = await worker_of(TrainingPlant(tmp_path)).train()
    assert_failed(result, *(word.format(folder=tmp_path) for word in words))


async def test_a_full_disk_is_one_clear_line_and_the_next_training_succeeds(
    plant: TrainingPlant, worker_of: WorkerOf
) -> None:
    limited = ("bash", "-c", 'ulimit -f 1; exec "$@"', "-", *COMMAND)
    result = await worker_of(plant, command=limited).train()
    assert_failed(result, "cannot write", "raise the file size limit")
    assert plant.registry.current("default") is None
    assert isinstance(await worker_of(plant).train(), TrainingOutcome)


@pytest.mark.parametrize(
    ("failure", "words"),
    [("error", "RuntimeError: the detector is broken"), ("exit", "SystemExit: 3")],
)
async def test_a_broken_detector_is_one_clear_line(
    tmp_path: Path, worker_of: WorkerOf, failure: str, words: str
) -> None:
    plant = filled(tmp_path, options={"failure": failure})
    assert_failed(await worker_of(plant).train(), words)
    assert plant.status().state == "idle"


async def test_a_version_that_no_worker_could_use_is_a_failed_training(tmp_path: Path, worker_of: WorkerOf) -> None:
    plant = filled(tmp_path, threads=2)
    model = plant.settings.model.model_copy(update={"detector": "uneven", "options": {}})
    plant.settings = plant.settings.model_copy(update={"model": model})
    result = await worker_of(plant).train()
    assert_failed(result, "the new version is not published", "scores its probe otherwise", "learning.threads: 1")
    assert (plant.registry.versions("default"), plant.registry.current("default")) == ((), None)


async def test_what_a_detector_prints_does_not_get_mixed_up_with_the_result(
    tmp_path: Path, worker_of: WorkerOf
) -> None:
    plant = filled(tmp_path, options={"failure": "chatter"})
    assert isinstance(await worker_of(plant).train(), TrainingOutcome)


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
    tmp_path: Path, worker_of: WorkerOf, command: tuple[str, ...], words: list[str]
) -> None:
    worker = worker_of(TrainingPlant(tmp_path), command=command)
    worker.start()
    if command[0] == "sleep":
        await until(lambda: worker.pid is not None)
        await worker.trainings.close()
    await worker.trainings.wait()
    assert_failed(worker.results[-1], *words, kind="interrupted" if command[0] == "sleep" else "failed")


async def test_closing_interrupts_a_training_that_goes_on_where_it_was_at_the_next_start(
    tmp_path: Path, worker_of: WorkerOf
) -> None:
    plant = filled(tmp_path, options={"free_epochs": 2})
    plant.hold.touch()
    worker = worker_of(plant)
    worker.start("schedule")
    await until(lambda: len(plant.journal("epoch")) == 2)
    await worker.trainings.close()
    assert_failed(worker.results[-1], "it resumes at the next start", kind="interrupted")
    assert not worker.start(), "closed"
    assert plant.status().state == "interrupted"
    plant.hold.unlink()

    later = worker_of(plant)
    request = later.trainings.waiting()
    assert request == worker.results[-1].request
    assert later.trainings.start(request)
    await later.trainings.wait()
    (outcome,) = later.results
    assert isinstance(outcome, TrainingOutcome), outcome
    assert outcome.request == request
    assert [entry["epoch"] for entry in plant.journal("epoch")][:4] == [1, 2, 3, 4], "no epoch was trained twice"
    assert later.trainings.waiting() is None
    assert plant.status().attempt == 1, "an orderly end is no death"


async def test_a_training_that_does_not_listen_is_killed_after_the_grace(tmp_path: Path, worker_of: WorkerOf) -> None:
    plant = filled(tmp_path, options={"failure": "stubborn"})
    plant.hold.touch()
    worker = worker_of(plant, grace_s=0.2)
    worker.start()
    await until(lambda: len(plant.journal("epoch")) == 1)
    async with asyncio.timeout(LIMIT_S):
        await worker.trainings.close()
    assert_failed(worker.results[-1], "it resumes at the next start", kind="interrupted")
    with pytest.raises(ProcessLookupError):
        os.kill(plant.journal()[-1]["pid"], 0)


@pytest.mark.parametrize("is_started", [False, True])
async def test_closing_before_a_process_has_started_trains_nothing(
    tmp_path: Path, worker_of: WorkerOf, is_started: bool
) -> None:
    worker = worker_of(TrainingPlant(tmp_path))
    assert not is_started or worker.start()
    await worker.trainings.close()
    await worker.trainings.close()
    await worker.trainings.wait()
    assert not worker.trainings.is_running
    assert worker.pid is None
    assert not worker.start()
    assert worker.results == []
    assert TrainingPlant(tmp_path).status() == TrainingStatus()


async def test_a_training_waits_for_another_process_to_end_and_trains_then(
    plant: TrainingPlant, worker_of: WorkerOf
) -> None:
    """As the learner does that is started at once after a killed one, whose process still saves its state."""
    first, second = worker_of(plant), worker_of(plant)
    await first.start_held(plant)
    assert await second.trainings.due(Need(300, has_model=False)) is None, "one works elsewhere"
    assert second.start("command")
    await until(lambda: second.pid is not None)
    plant.hold.unlink()
    await first.trainings.wait()
    await second.trainings.wait()
    results = [first.results[-1], second.results[-1]]
    assert all(isinstance(result, TrainingOutcome) for result in results), results
    pids = [entry["pid"] for entry in plant.journal()]
    assert pids == sorted(pids, key=pids.index), "one after the other"


async def test_a_training_that_cannot_begin_beside_another_says_so(
    plant: TrainingPlant, worker_of: WorkerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_LOCK_S", 0.0)
    plant.training.mkdir(parents=True)
    lock = try_lock(lock_of(plant.training))
    assert lock is not None
    spec = TrainerSpec(settings=plant.settings, base_dir=plant.folder, model="default", request=request_of())
    assert_failed(job.run_job(spec, SystemClock()), "a training of the model already runs")
    os.close(lock)
    assert plant.status() == TrainingStatus()


async def test_a_request_is_trained_once_and_answered_even_if_the_learner_dies_before_it_knows(
    plant: TrainingPlant, worker_of: WorkerOf
) -> None:
    asked = plant.post()
    worker = worker_of(plant)
    waiting = worker.trainings.waiting()
    assert waiting is not None
    assert (waiting.id, waiting.reason) == (asked.id, "command")
    assert waiting.requested_us > asked.requested_us, "it trains on what is stored by now"
    assert worker.trainings.start(waiting)
    await worker.trainings.wait()
    assert isinstance(worker.results[-1], TrainingOutcome)
    assert [each.id for each in plant.store().requests()] == [asked.id], "the learner dies here"
    assert worker_of(plant).trainings.waiting() is None
    assert plant.store().requests() == []


async def test_the_first_training_is_quick_and_one_with_the_configured_effort_follows_once(
    tmp_path: Path, worker_of: WorkerOf
) -> None:
    plant = filled(tmp_path, options={"effort": "normal"})
    worker = worker_of(plant)
    assert isinstance(await worker.train(), TrainingOutcome)
    assert {entry["effort"] for entry in plant.journal("fit")} == {"quick"}
    asked = worker.trainings.waiting()
    assert asked is not None
    assert (asked.reason, asked.detail) == ("effort", "effort normal, after a quick first training")
    assert worker.trainings.start(asked)
    await worker.trainings.wait()
    assert isinstance(worker.results[-1], TrainingOutcome)
    assert {entry["effort"] for entry in plant.journal("fit")} == {"quick", "normal"}
    for later in (worker, worker_of(plant)):
        assert later.trainings.waiting() is None
    plant.registry.promote("default", "0001", expected=plant.registry.current("default"))
    assert worker_of(plant).trainings.waiting() is None, "a rollback to the quick one asks for no more"


@pytest.mark.parametrize(("reason", "is_recorded"), [("first", True), ("first", False), ("command", False)])
async def test_a_training_that_died_after_its_promotion_is_not_done_twice(
    tmp_path: Path, worker_of: WorkerOf, reason: TrainingReason, is_recorded: bool
) -> None:
    """Nor if it died before it had recorded the decision."""
    plant = filled(tmp_path, options={"effort": "normal"})
    worker = worker_of(plant)
    done = await worker.train(reason)
    assert isinstance(done, TrainingOutcome)
    path = plant.registry.folder("default", "0001") / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["decision"] is not None
    path.write_text(json.dumps(manifest if is_recorded else {**manifest, "decision": None}))
    n_fits, status = len(plant.journal("fit")), plant.status()
    before = msgspec.structs.replace(status, state="running", request=done.request, last=None)
    (plant.training / "status.json").write_bytes(msgspec.json.encode(before))
    waiting = worker.trainings.waiting()
    assert waiting == done.request
    assert worker.trainings.start(waiting)
    await worker.trainings.wait()
    again = worker.results[-1]
    assert isinstance(again, TrainingOutcome)
    why = done.reason if is_recorded else "promoted before its process died"
    assert (again.version, again.promoted, again.reason) == ("0001", True, why)
    assert len(plant.journal("fit")) == n_fits
    assert plant.registry.versions("default") == ("0001",)
    asked = worker.trainings.waiting()
    assert (None if asked is None else asked.reason) == ("effort" if reason == "first" else None)


async def test_a_training_that_dies_again_and_again_is_given_up(tmp_path: Path, worker_of: WorkerOf) -> None:
    plant = filled(tmp_path, options={"failure": "kill", "epochs": 50, "free_epochs": 50})
    clock = ManualClock(SystemClock().now_us())
    worker = worker_of(plant, clock=clock)
    worker.start()
    await worker.trainings.wait()
    for attempt in (2, 3, 4):
        assert_failed(worker.results[-1], "was killed by signal 9", "it is started again", kind="interrupted")
        assert worker.trainings.waiting() is None, "not at once"
        clock.advance(3600)
        request = worker.trainings.waiting()
        assert request is not None
        assert worker.trainings.start(request)
        await worker.trainings.wait()
        assert plant.status().attempt == attempt
    assert_failed(worker.results[-1], "died 3 times without an error")
    clock.advance(3600)
    assert worker.trainings.waiting() is None


async def test_the_configured_effort_is_tried_again_after_pauses_that_double(
    tmp_path: Path, worker_of: WorkerOf
) -> None:
    plant = TrainingPlant(tmp_path)
    clock = ManualClock()
    worker = worker_of(plant, clock=clock, command=("false",))
    asked = plant.post("effort")
    for pause_s in (10, 20, 40):
        waiting = worker.trainings.waiting()
        assert waiting is not None
        assert waiting.id == asked.id
        worker.trainings.start(waiting)
        await worker.trainings.wait()
        clock.advance(pause_s - 0.001)
        assert worker.trainings.waiting() is None
        clock.advance(0.001)


async def test_a_person_s_request_that_cannot_begin_has_failed_and_holds_up_no_later_one(
    tmp_path: Path, worker_of: WorkerOf
) -> None:
    plant = TrainingPlant(tmp_path)
    clock = ManualClock()
    worker = worker_of(plant, clock=clock, command=("/nowhere/python",))
    first, second = plant.post(), plant.post()
    waiting = worker.trainings.waiting()
    assert waiting is not None
    assert worker.trainings.start(waiting)
    await worker.trainings.wait()
    assert_failed(worker.results[-1], "cannot start the training process")
    assert plant.store().is_answered(first.id)
    clock.advance(3600)
    later = worker.trainings.waiting()
    assert later is not None
    assert later.id == second.id


async def test_children_that_share_turns_train_one_after_the_other(tmp_path: Path, worker_of: WorkerOf) -> None:
    plants = [TrainingPlant(tmp_path / name) for name in ("a", "b", "c")]
    turns = asyncio.Semaphore(1)
    workers = []
    for plant in plants:
        plant.folder.mkdir()
        plant.fill()
        plant.hold.touch()
        workers.append(worker_of(plant, turns=turns))
        workers[-1].start()
    await until(lambda: len(plants[0].journal("epoch")) == 1)
    assert all(worker.trainings.is_running for worker in workers)
    assert workers[1].pid is None
    async with asyncio.timeout(LIMIT_S):
        await workers[2].trainings.close()
    assert not workers[2].trainings.is_running
    for plant in plants:
        plant.hold.unlink()
    for worker in workers[:2]:
        await worker.trainings.wait()
        assert isinstance(worker.results[-1], TrainingOutcome)
    assert not plants[2].journal()
    assert not workers[2].results


async def test_without_a_folder_for_temporary_files_a_training_is_one_clear_line(
    tmp_path: Path, worker_of: WorkerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose root is read-only, without a /tmp."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert_failed(await worker_of(TrainingPlant(tmp_path)).train(), "cannot start the training process: No such file")


async def test_a_process_that_holds_the_output_of_its_training_holds_up_no_result(
    tmp_path: Path, worker_of: WorkerOf
) -> None:
    """As one that a detector starts may: it inherits the training's stderr and stdin."""
    holder = (
        "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], stdout=2).pid, file=sys.stderr); sys.exit(3)"
    )
    worker = worker_of(TrainingPlant(tmp_path), command=(sys.executable, "-c", holder))
    async with asyncio.timeout(LIMIT_S):
        result = await worker.train()
    assert_failed(result, "ended with exit code 3: ")
    assert isinstance(result, TrainingFailed)
    os.kill(int(result.error.rpartition(" ")[2]), signal.SIGKILL)


async def test_cancelling_the_worker_ends_its_process(plant: TrainingPlant, worker_of: WorkerOf) -> None:
    worker, others = worker_of(plant), asyncio.all_tasks()
    await worker.start_held(plant)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    await worker.trainings.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(plant.journal()[-1]["pid"], 0)


async def test_a_trainer_ignores_ctrl_c_at_a_terminal(plant: TrainingPlant, worker_of: WorkerOf) -> None:
    worker = worker_of(plant)
    await worker.start_held(plant)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGINT)
    plant.hold.unlink()
    await worker.trainings.wait()
    assert isinstance(worker.results[-1], TrainingOutcome)


async def test_a_learner_that_is_to_end_starts_a_training_again_whose_process_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times; then the training has failed, and nothing waits any more."""
    monkeypatch.setattr("streamad.learn.trainer.trainings._RETRY_US", 10_000)
    monkeypatch.setattr("streamad.learn.trainer.child._COMMAND", COMMAND)
    plant = filled(tmp_path, options={"failure": "kill", "epochs": 50, "free_epochs": 50})
    events: list[str] = []
    learner = PlantLearner(plant.plant, lambda kind, *_, **__: events.append(kind))
    await learner.open()
    await learner.train_to_the_end()
    await learner.close()
    assert events == ["training_interrupted"] * 3 + ["training_failed"]
    assert plant.status().state == "idle"


async def test_a_learner_that_is_to_end_waits_for_the_process_of_a_killed_one(
    plant: TrainingPlant, worker_of: WorkerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamad.learn.trainer.child._COMMAND", COMMAND)
    worker = worker_of(plant)
    await worker.start_held(plant, TrainingRequest(id="a", reason="command", requested_us=SystemClock().now_us()))
    plant.post()
    learner = PlantLearner(plant.plant, lambda *_, **__: None)
    await learner.open()
    ending = asyncio.create_task(learner.train_to_the_end())
    await asyncio.sleep(0.1)
    assert not ending.done()
    plant.hold.unlink()
    await worker.trainings.wait()
    await ending
    await learner.close()
    assert plant.store().requests() == []
    assert len(plant.registry.versions("default")) == 2
