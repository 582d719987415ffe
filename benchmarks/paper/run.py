"""``python -m benchmarks.paper run``: train and score cells of the study and store their results.

A cell is one model: data set, protocol, normal classes, method, seed. Stored cells are skipped, so the same command
continues a stopped run. The most valuable cells come first. Exit code 1 if a cell failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any, Final

import yaml
from rich.console import Console

from benchmarks.paper.choosing import QUICK_METHODS, Choice, check_modules, jobs_of, together
from benchmarks.paper.data.datasets import data_path
from benchmarks.paper.data.tables import KDD_FILE
from benchmarks.paper.methods import GROUPS, METHODS, make
from benchmarks.paper.progress import Estimate, ProgressReport, duration
from benchmarks.paper.protocols import CLASSES, FIGURES, TABLES, TABULAR
from benchmarks.paper.results_table import NO_CODE, RESULTS, Cell, Code, Result
from benchmarks.paper.todo import Measured
from benchmarks.paper.workers import Failure, Job, run_jobs
from streamad.errors import UsageError

QUICK: Final = Path(__file__).resolve().parent / "quick"
_QUICK: Final = Choice(tables=(1,), datasets=("racket_sports",), normal=("0",), methods=QUICK_METHODS)
_INTERRUPTED: Final = 130
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def register(subparsers: Any) -> None:
    """Add the command to the study's command line."""
    help_line = "train and score cells of the study"
    parser = subparsers.add_parser("run", help=help_line, description=__doc__.partition(": ")[2])
    add, many = parser.add_argument, {"nargs": "+", "default": ()}
    add("--table", type=int, choices=[*TABLES], metavar="1|2|3", help="tables of the paper", **many)
    add("--figure", choices=[*FIGURES], help="beside them: sweep (n classes), ablation (K), halves (of tables)", **many)
    add("--methods", choices=[*METHODS, *GROUPS], metavar="METHOD", help=f"{', '.join([*GROUPS, *METHODS])}", **many)
    add("--datasets", choices=[*CLASSES, *TABULAR], metavar="NAME", help=", ".join([*CLASSES, *TABULAR]), **many)
    add("--normal", metavar="NAME", help="tasks by their normal classes: 0, not-0, 2to5 (default: all)", **many)
    add("--seeds", type=_positive, default=1, metavar="N", help="seeds 0 to N - 1 (default: 1)")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:0 (default: auto)")
    add("--jobs", type=_positive, default=1, metavar="N", help="cells at the same time, a process each (default: 1)")
    add(
        "--at-once",
        type=_positive,
        default=1,
        metavar="N",
        help="models trained together if the method can (default: 1)",
    )
    add("--threads", type=_positive, metavar="N", help="threads of each (default: OMP_NUM_THREADS, else cores / jobs)")
    add("--options", type=_option, metavar="KEY=VALUE", help="other settings of the methods; needs --out", **many)
    add("--out", type=Path, metavar="DIR", help="folder of the results (default: results, or quick, in the study's)")
    add("--redo", action="store_true", help="measure stored cells again")
    add("--dry-run", action="store_true", help="only list the cells to run, and the time they may take")
    add("--quick", action="store_true", help="one class of RacketSports by three methods, stored elsewhere")
    parser.set_defaults(command=run)


def _cells(jobs: list[Job]) -> list[Cell]:
    return [cell for job in jobs for cell in job.cells]


def run(arguments: argparse.Namespace) -> int:
    """Measure the cells that ``arguments`` choose; return the exit code. Raises StreamadError before it measures."""
    measured = _measured(arguments)
    jobs = _with_options(jobs_of(_choice(arguments)), dict(arguments.options))
    left = [job for job in jobs if not measured.is_done(job)]
    cells = _cells(left)
    check_modules(cells)
    if arguments.options:
        _check_options(left)
    for name in dict.fromkeys(cell.dataset for cell in cells):
        data_path(KDD_FILE if name.startswith("kdd") else f"{name}.npz")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    estimate = Estimate(measured.tables)
    console.print(_plan(jobs, left, measured, estimate, arguments.jobs))
    if arguments.dry_run:
        for cell in cells:
            print(cell)
        return 0
    report = ProgressReport(console, cells, estimate, arguments.jobs)
    code = _measure_all(together(left, arguments.at_once), arguments, measured, report)
    for line in _means(_cells(jobs), measured):
        print(line)
    return code


def _with_options(jobs: list[Job], changes: dict[str, Any]) -> list[Job]:
    """Return ``jobs`` with ``changes`` to their settings. Raises UsageError for settings that a figure varies."""
    if own := {key for job in jobs if job.cells[0].variant for key in job.settings} & changes.keys():
        raise UsageError(f"--options {', '.join(sorted(own))}: the figure varies that itself")
    return [Job(job.cells, job.settings | changes) for job in jobs]


def _check_options(jobs: list[Job]) -> None:
    """Raise DetectorError if a method refuses its settings: before anything is trained."""
    kinds = {(job.cells[0].method, job.cells[0].dataset): job.settings for job in jobs}
    for (method, dataset), settings in kinds.items():
        make(method, dataset, settings)


def _measured(arguments: argparse.Namespace) -> Measured:
    folder = (arguments.out or (QUICK if arguments.quick else RESULTS)).resolve()
    other = "--quick" if arguments.quick else "--options" if arguments.options else ""
    if other and (folder == RESULTS or RESULTS in folder.parents):
        raise UsageError(f"{other} is no part of the study: give --out another folder")
    return Measured(folder, redo=arguments.redo or arguments.quick)


def _choice(arguments: argparse.Namespace) -> Choice:
    choice = Choice(
        tables=tuple(arguments.table),
        figures=tuple(arguments.figure),
        methods=tuple(arguments.methods),
        datasets=tuple(arguments.datasets),
        normal=tuple(arguments.normal),
        n_seeds=arguments.seeds,
    )
    if not arguments.quick:
        return choice
    if choice != Choice():
        raise UsageError("--quick chooses the cells itself: leave the other choices out")
    return _QUICK


def _plan(jobs: list[Job], left: list[Job], measured: Measured, estimate: Estimate, n_workers: int) -> str:
    unusable = measured.n_unusable(left)
    seconds = estimate.left_s(_cells(left), n_workers)
    parts = [f"{len(left)} of {len(jobs)} cells to measure"]
    parts += [f"{len(jobs) - len(left)} are stored in {measured.folder}"] if len(left) < len(jobs) else []
    parts += [f"{unusable} stored ones are damaged or outdated"] if unusable else []
    parts += [f"about {duration(seconds)}"] if left and seconds is not None else []
    return ", ".join(parts)


def _measure_all(jobs: list[Job], arguments: argparse.Namespace, measured: Measured, report: ProgressReport) -> int:
    _set_threads(arguments.threads, arguments.jobs)
    measure = partial(_measure, device=arguments.device, code=_code())
    n_workers, failed, n_done = min(arguments.jobs, len(jobs)), 0, 0
    try:
        with (
            _interrupted_by_sigterm(),
            report,
            closing(run_jobs(jobs, measure, n_workers=n_workers, is_done=measured.is_done)) as outcomes,
        ):
            for outcome in outcomes:
                if isinstance(outcome.results, Failure):
                    failed += len(outcome.job.cells)
                else:
                    measured.tables.add(outcome.results)
                    n_done += len(outcome.results)
                report.show(outcome)
    except KeyboardInterrupt:
        print(f"stopped: {n_done} more cells are stored; the same command resumes from here", file=sys.stderr)
        return _INTERRUPTED
    if failed:
        failures = f"{failed} of {len(_cells(jobs))} cells failed, see above"
        print(f"error: {failures}; the same command tries them again", file=sys.stderr)
    return 1 if failed else 0


def _measure(job: Job, device: str, code: Code) -> tuple[Result, ...]:
    from benchmarks.paper.measure import (  # noqa: PLC0415 - in the workers: the run itself needs no torch
        measure,
    )

    return measure(job.cells, job.settings, device, code)


def _set_threads(wanted: int | None, n_jobs: int) -> None:
    """Set the number of threads for the libraries of workers that start from now on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    preset = os.environ.get("OMP_NUM_THREADS", "")
    threads = wanted or (int(preset) if preset.isdecimal() and int(preset) else max(1, cores // n_jobs))
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))


def _code() -> Code:
    """Return git's names of the code, with "+changes" if files but the results differ; NO_CODE outside of git."""

    def git(*words: str) -> str:
        folder = Path(__file__).resolve().parent
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", f":(exclude){RESULTS}")
        changes = "+changes" if changed else ""
        return Code(git("rev-parse", "HEAD") + changes, git("rev-parse", "HEAD:models") + changes)
    except (OSError, subprocess.CalledProcessError):
        return NO_CODE


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _means(cells: list[Cell], measured: Measured) -> Iterator[str]:
    """Yield the means over the cells of each data set, protocol and method, in percent."""
    groups: dict[str, list[Result]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for cell in cells:
        group = f"{cell.dataset} {cell.protocol} {cell.method} {cell.variant}".rstrip()
        counts[group] += 1
        if (result := measured.current(cell)) is not None:
            groups[group].append(result)
    for group, count in counts.items():
        results = groups[group]
        means = [100 * fmean(getattr(one, name) for one in results) for name in ("auc", "ap", "f1") if results]
        figures = "AUC {:.1f}, AP {:.1f}, F1 {:.1f}".format(*means) if means else "nothing"
        yield f"{group}: {figures} ({len(results)} of {count} cells)"


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, as in epochs=250")
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"{key}: {value!r} is not a value in YAML, as 3, true or [12, 4]") from None
    with suppress(ValueError, TypeError):
        return key, float(read) if isinstance(read, str) else read  # 1e-3 is text to YAML 1.1
    return key, read


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)
