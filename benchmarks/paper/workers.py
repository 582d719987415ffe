"""Processes that measure cells in parallel: replaced if one dies, killed if the run is stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, Final

from benchmarks.paper.results_table import Cell, Result
from streamad.errors import StreamadError

context: SpawnContext = multiprocessing.get_context("spawn")  # a forked torch may hang
_END_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Job:
    """Cells to measure together, most often one, and their settings beside those of the method."""

    cells: tuple[Cell, ...]
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job has no results, in one line."""

    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a job, or its failure."""

    job: Job
    results: tuple[Result, ...] | Failure


Measure = Callable[[Job], tuple[Result, ...]]


def run_jobs(
    jobs: Iterable[Job], measure: Measure, *, n_workers: int, is_done: Callable[[Job], bool]
) -> Generator[Outcome, None, None]:
    """Measure ``jobs`` in their order by ``n_workers`` processes; yield outcomes as they come.

    ``measure`` runs in the workers, so it must be importable. ``is_done`` is asked again before a job starts, because
    another run may share the folder. The end of the iteration, for any reason, kills the workers.
    """
    waiting = (job for job in jobs if not is_done(job))
    workers: dict[Connection, _Worker] = {}
    try:
        while True:
            while len(workers) < n_workers and (job := next(waiting, None)):
                worker = _Worker(measure)
                workers[worker.connection] = worker
                worker.give(job)
            if not workers:
                return
            for ready in wait([*workers]):
                worker = workers[ready]  # type: ignore[index]
                yield worker.take()
                if not worker.is_dead and (job := next(waiting, None)):
                    worker.give(job)
                else:
                    workers.pop(worker.connection).end()
    finally:
        for worker in workers.values():
            worker.kill()


class _Worker:
    """One process and its job."""

    def __init__(self, measure: Measure) -> None:
        self.connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(theirs, measure), daemon=True)
        self._process.start()
        theirs.close()  # the pipe then ends with the process
        self.job: Job | None = None
        self.is_dead = False

    def give(self, job: Job) -> None:
        """Send a job; if the worker is dead, ``take`` returns the failure."""
        self.job = job
        with suppress(OSError):
            self.connection.send(job)

    def take(self) -> Outcome:
        """Return the outcome of the job: a failure if the worker died without an answer."""
        job, self.job = self.job, None
        assert job is not None
        try:
            return Outcome(job, self.connection.recv())
        except (EOFError, OSError):
            self.is_dead = True
            self._process.join(_END_S)
            return Outcome(job, Failure(f"its process ended with code {self._process.exitcode}, out of memory perhaps"))

    def end(self) -> None:
        """End an idle or dead process."""
        self.connection.close()
        self._process.join(_END_S)
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, measure: Measure) -> None:
    """Measure the jobs from ``connection`` until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C and kills this process
    with suppress(EOFError, BrokenPipeError):
        while True:
            connection.send(_answer(connection.recv(), measure))


def _answer(job: Job, measure: Measure) -> tuple[Result, ...] | Failure:
    try:
        return measure(job)
    except StreamadError as error:
        return Failure(str(error))
    except Exception as error:  # noqa: BLE001 - a failure is reported, and the other cells go on
        return Failure(f"{type(error).__name__}: {error}{_where(error)}")


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"  # noqa: PTH119
