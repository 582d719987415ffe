"""A plant for tests of the training process: a filled inlier store, a detector that can be held, worker processes."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streamad.learn.parts import registry_of
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import StoredSequence
from streamad.learn.trainer.child import Child
from streamad.learn.trainer.lease import LeaseTimes
from streamad.learn.trainer.requests import (
    TrainingOutcome,
    TrainingReason,
    TrainingRequest,
    TrainingResult,
    post_request,
)
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.plant import Plant
from streamad.ports import Clock
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.types import Window
from tests.support.forks import fork_server_context
from tests.support.runtime.pipeline import CHANNELS, START_US, L, settings_of

PLUGINS = Path(__file__).parents[1] / "plugins"
MODEL = "default"
END_S = 180.0  # a training has only the time that nobody else wants
TIMES = LeaseTimes(renew_s=0.05, stopped_after_s=3.0, poll_s=0.02)
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
            learning={"min_training": 20, "first_training": 40, "reserve": 0.4, **learning},
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
        learning = self.settings.learning
        assert learning is not None
        clock = SystemClock()
        store = InlierStore(
            learning.store,
            MODEL,
            channels=self.settings.channel_specs,
            window=self.settings.window,
            settings=learning,
            clock=clock,
            base_dir=self.folder,
        )
        store.open()
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

    def post(self, reason: TrainingReason = "command") -> TrainingRequest:
        """Ask for a training as an operator does."""
        request = TrainingRequest(reason=reason, requested_us=SystemClock().now_us())
        post_request(self.registry, MODEL, request)
        return request

    def child(self, on_end: Callable[[TrainingResult], None], clock: Clock | None = None, **options: Any) -> Child:
        """A worker's Child in this process."""
        plant = Plant(self.settings, self.folder, clock or SystemClock())
        return Child(plant, MODEL, on_end, **{"times": TIMES, "command": COMMAND, **options})

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        """A worker in a process of its own, ended with the block."""
        (self.folder / "settings.pickle").write_bytes(pickle.dumps(self.settings))
        worker = WorkerProcess(self.folder)
        try:
            yield worker
        finally:
            worker.end()


class WorkerProcess:
    """A worker that starts whatever waits, again and again; ``results`` holds what it printed."""

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
    deadline = time.monotonic() + END_S
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

    plant = Plant(settings, folder, SystemClock())
    child = Child(plant, MODEL, emit, times=TIMES, retry_s=0.05, command=COMMAND)
    tests = multiprocessing.parent_process()
    assert tests is not None
    asyncio.get_running_loop().add_reader(tests.sentinel, ended.set)
    while not ended.is_set():
        request = child.waiting()
        if request is not None:
            child.start(request)
        await asyncio.sleep(0.01)
    await child.close()
