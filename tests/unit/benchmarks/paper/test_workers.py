"""Processes that measure: outcomes of good, bad, fatal and endless jobs, and no process outlives its run."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import closing

from benchmarks.paper.workers import Failure, Job, run_jobs
from tests.unit.benchmarks.paper.measures import job, measured


def never(job: Job) -> bool:
    return False


def test_each_job_has_its_outcome_and_a_bad_one_does_not_stop_the_others() -> None:
    behaviours = ["work", "refuse", "break", "die", "work", "work"]
    jobs = [job(behaviour, seed) for seed, behaviour in enumerate(behaviours)]
    outcomes = {outcome.job.cells[0].seed: outcome for outcome in run_jobs(jobs, measured, n_workers=2, is_done=never)}
    assert sorted(outcomes) == list(range(6))
    results = {seed: outcome.results for seed, outcome in outcomes.items()}
    assert results[1] == Failure("too few sequences")
    assert isinstance(results[2], Failure)
    assert results[2].text.startswith("ZeroDivisionError: a bug (measures.py:")
    assert results[3] == Failure("its process ended with code 3, out of memory perhaps")
    for seed in (0, 4, 5):
        one = results[seed]
        assert not isinstance(one, Failure)
        assert [result.seed for result in one] == [seed]
        assert one[0].fit_s != os.getpid()
    assert multiprocessing.active_children() == []


def test_one_worker_takes_the_jobs_in_order_and_skips_those_that_another_run_has_done_meanwhile() -> None:
    jobs = [job("work", seed) for seed in range(4)]
    seen: list[int] = []

    def done(job: Job) -> bool:
        return job.cells[0].seed == 2 and seen == [0, 1]

    for outcome in run_jobs(jobs, measured, n_workers=1, is_done=done):
        seen.append(outcome.job.cells[0].seed)
    assert seen == [0, 1, 3]


def test_no_jobs_are_no_outcomes() -> None:
    assert list(run_jobs([], measured, n_workers=2, is_done=never)) == []
    assert list(run_jobs([job("work")], measured, n_workers=2, is_done=lambda job: True)) == []


def test_a_stopped_run_ends_its_processes_whatever_they_do() -> None:
    jobs: list[Job] = [job("work", 0), job("hang", 1), job("hang", 2)]
    with closing(run_jobs(jobs, measured, n_workers=2, is_done=never)) as outcomes:
        assert next(outcomes).job.cells[0].seed == 0
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []
