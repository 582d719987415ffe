"""A measure for workers in tests, in a module of its own that their processes can import."""

from __future__ import annotations

import os
import time

from benchmarks.paper.results_table import Cell, Result
from benchmarks.paper.workers import Job
from streamad.errors import TrainingDataError
from tests.unit.benchmarks.paper.results import result


def job(behaviour: str, seed: int = 0) -> Job:
    """Return a job whose measuring ends as ``behaviour`` says."""
    return Job((Cell("racket_sports", "one_vs_rest", "lof", seed, (0,), "0"),), {"behaviour": behaviour})


def measured(job: Job) -> tuple[Result, ...]:
    """Return results that hold the process's id as their time, or end as the job says."""
    behaviour = job.settings["behaviour"]
    if behaviour == "refuse":
        raise TrainingDataError("too few sequences")
    if behaviour == "break":
        raise ZeroDivisionError("a bug")
    if behaviour == "die":
        os._exit(3)
    if behaviour == "hang":
        time.sleep(600)
    return tuple(result(seed=cell.seed, fit_s=float(os.getpid())) for cell in job.cells)
