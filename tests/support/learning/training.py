"""A plant for tests of the training process: a filled inlier store, a detector that can be held, worker processes."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np

from streamad.learn.parts import registry_of, store_for
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import StoredSequence, TrainingReason, TrainingRequest
from streamad.learn.trainer import trainings as trainings_module
from streamad.learn.trainer.child import Child
from streamad.learn.trainer.results import TrainingOutcome, TrainingResult
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.learn.trainer.trainings import Need, Trainings
from streamad.plant import Plant
from streamad.ports import Clock
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import LearningCounters
from streamad.types import Window
from tests.support.forks import fork_server_context
from tests.support.kafka.child import PLUGINS  # importing it makes the detector known, also to a learner of its own
from tests.support.runtime.pipeline import CHANNELS, START_US, L, settings_of
from tests.support.waiting import LIMIT_S

MODEL = "default"
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "7"}
COMMAND = (sys.executable, "-c", "from streamad.learn.trainer.__main__ import serve; serve()")
"""The trainer at the priority of the tests: at the lowest, tests on a busy machine would wait for minutes."""


class TrainingPlant:
    """A folder with a filled store, an empty registry, and the journal of the detector's fits."""

    def __init__(self, folder: Path, *, options: dict[str, Any] | None = None, **learning: Any) -> None:
        self.folder = folder
        self.hold = folder / "hold"
        self.hold_export = folder / "hold_export"
        self.journal_file = folder / "journal"
        given = {"journal": self.journal_file, "hold": self.hold, "hold_export": self.hold_export, **(options or {})}
        paced = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
        self.settings: Settings = settings_of(
            model={"detector": "paced", "options": paced, "device": "cpu", "references": []},
            alerts={"false_alarm_rate": 0.1},
            learning={
                "min_training": 20,
                "first_training": 40,
                "reserve": 0.4,
                "schedule": None,
                "on_drift": False,
                **learning,
            },
        )

    @property
    def plant(self) -> Plant:
        return Plant(self.settings, self.folder, SystemClock())

    @property
    def registry(self) -> Registry:
        return registry_of(self.plant)

    @property
    def training(self) -> Path:
        return self.registry.training_folder(MODEL)

    def status(self) -> TrainingStatus:
        return read_status(self.registry, MODEL)

    def fill(self, accepted: int = 80, reserve: int = 80) -> None:
        """Put sequences into the store that no model has judged, all of them normal."""
        clock, store = SystemClock(), self.store()
        rng = np.random.default_rng(0)
        for number in range(accepted + reserve):
            values = rng.normal(1.0, 0.2, (len(CHANNELS), L)).astype(np.float32)
            name = f"B-{number}"
            time_us = START_US + number * 1_000_000
            window = Window(values, L)
            sequence = StoredSequence(name, "r1", name, time_us, clock.now_us(), window, "learning")
            assert store.offer(sequence, "accepted" if number < accepted else "reserve")
        store.flush()

    def journal(self, what: str | None = None) -> list[dict[str, Any]]:
        """The entries of the detector's fits, all or those of one kind."""
        lines = self.journal_file.read_text().splitlines() if self.journal_file.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if what in (None, entry["what"])]

    def store(self) -> InlierStore:
        """The opened store."""
        store = store_for(self.plant, MODEL)
        store.open()
        return store

    def post(self, reason: TrainingReason = "command") -> TrainingRequest:
        """Ask for a training as an operator does."""
        request = TrainingRequest(id=uuid4().hex, reason=reason, requested_us=SystemClock().now_us())
        self.store().ask(request)
        return request

    def trainings(
        self,
        on_end: Callable[[TrainingResult], None],
        thread: Executor,
        *,
        clock: Clock | None = None,
        turns: asyncio.Semaphore | None = None,
        command: Sequence[str] = COMMAND,
        grace_s: float = 10.0,
    ) -> Trainings:
        """The trainings of a learner in this process; ``on_end`` gets their results."""
        plant = Plant(self.settings, self.folder, clock or SystemClock())
        trainings = Trainings(
            MODEL,
            plant,
            self.registry,
            store=store_for(plant, MODEL),
            thread=thread,
            emit=lambda *_, **__: None,
            counters=LearningCounters(),
            turns=turns or asyncio.Semaphore(1),
        )
        trainings._child = Child(plant, MODEL, command=command)  # noqa: SLF001 - at the tests' priority
        trainings._grace_s = grace_s  # noqa: SLF001
        record = trainings.ended

        def ended(result: TrainingResult) -> None:
            record(result)
            on_end(result)

        trainings.ended = ended  # type: ignore[method-assign]
        return trainings

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        """A learner's trainings in a process of their own, ended with the block."""
        (self.folder / "settings.pickle").write_bytes(pickle.dumps(self.settings))
        worker = WorkerProcess(self.folder)
        try:
            yield worker
        finally:
            worker.end()


class WorkerProcess:
    """Trainings that start whatever waits, again and again; ``results`` holds what they printed."""

    def __init__(self, folder: Path) -> None:
        self._out = folder / f"worker-{time.monotonic_ns()}"
        self._out.touch()
        context = fork_server_context("tests.support.learning.training")
        self.process = context.Process(target=_worker, args=(folder, self._out))
        self.process.start()

    def said(self) -> str:
        return self._out.read_text()

    @property
    def results(self) -> list[TrainingResult]:
        return [msgspec.json.decode(line, type=TrainingResult) for line in self.said().splitlines() if line[-1:] == "}"]

    @property
    def outcomes(self) -> list[TrainingOutcome]:
        return [result for result in self.results if isinstance(result, TrainingOutcome)]

    def until(self, is_so: Callable[[], bool]) -> None:
        until(is_so, lambda: self.said()[-2000:])

    def end(self) -> None:
        """End it for good, if it still runs."""
        self.process.kill()
        self.process.join()


def until(is_so: Callable[[], bool], said: Callable[[], str] = str) -> None:
    """Return once ``is_so``; raises AssertionError after three minutes, with what was said."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, said()
        time.sleep(0.002)


def _worker(folder: Path, out: Path) -> None:
    descriptor = os.open(out, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(ENVIRONMENT)
    asyncio.run(_work(folder))


async def _work(folder: Path) -> None:
    settings = pickle.loads((folder / "settings.pickle").read_bytes())  # noqa: S301 - written by the test
    ended = asyncio.Event()

    def emit(result: TrainingResult) -> None:
        print(msgspec.json.encode(result).decode(), flush=True)

    trainings_module._RETRY_US = 50_000  # noqa: SLF001 - the tests' patience
    plant = TrainingPlant(folder)
    plant.settings = settings
    with ThreadPoolExecutor(1) as thread:
        trainings = plant.trainings(emit, thread)
        tests = multiprocessing.parent_process()
        assert tests is not None
        asyncio.get_running_loop().add_reader(tests.sentinel, ended.set)
        while not ended.is_set():
            await trainings.start_due(Need(0, has_model=True))
            await asyncio.sleep(0.01)
        await trainings.close()
