"""Train and score cells in a worker of the study, with their time and memory."""

from __future__ import annotations

import platform
import resource
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.models.together import Member, fit_ensemble
from benchmarks.paper.data.datasets import Task, class_task, read_sequences
from benchmarks.paper.data.tables import table_task
from benchmarks.paper.methods import METHODS, make
from benchmarks.paper.metrics import average_precision, f1_at_true_fraction
from benchmarks.paper.protocols import TABULAR
from benchmarks.paper.results_table import NO_CODE, Cell, Code, Result
from streamad.errors import DetectorError
from streamad.judge.evaluation import auc
from streamad.ports import FittedDetector

_PACKAGES: Final = ("streamad-monitor", "torch", "numpy", "scipy", "scikit-learn", "aeon")
_PROC: Final = Path("/proc/self")


def task_of(cell: Cell) -> Task:
    """Return the training and test windows of the cell. Raises SourceError."""
    if cell.dataset in TABULAR:
        return table_task(cell.dataset, cell.seed, drawn=cell.protocol == "tabular_drawn")
    return class_task(read_sequences(cell.dataset), cell.normal)


def measure(cells: tuple[Cell, ...], settings: dict[str, Any], device: str, code: Code = NO_CODE) -> tuple[Result, ...]:
    """Train the cells' models with ``settings`` beside the method's own, score their test sets, return the results.

    Several cells must be of one method and data set; their models are trained at once and share the time evenly.
    Raises StreamadError if the data or a model fail.
    """
    tasks = [task_of(cells[0])] if len(cells) == 1 else _shared_tasks(cells)
    detector = make(cells[0].method, cells[0].dataset, settings)
    _forget_peak_memory()
    training = _Stopwatch()
    fitted = _fit(detector, tasks, [cell.seed for cell in cells], device)
    training.stop()
    return tuple(
        _judge(cell, task, model, training.shared(len(cells)), code)
        for cell, task, model in zip(cells, tasks, fitted, strict=True)
    )


def _fit(detector: Any, tasks: list[Task], seeds: list[int], device: str) -> list[FittedDetector]:
    if len(tasks) == 1:
        return [detector.fit(tasks[0].train, seed=seeds[0], device=device)]
    members = [Member(task.train, seed) for task, seed in zip(tasks, seeds, strict=True)]
    return [*fit_ensemble(members, detector.options, device=device)]


def _shared_tasks(cells: tuple[Cell, ...]) -> list[Task]:
    """Return the tasks of cells of sequences; those of the same normal classes are one, whatever their seeds."""
    tasks = {cell.normal: task_of(cell) for cell in cells}
    return [tasks[cell.normal] for cell in cells]


class _Stopwatch:
    """Wall and CPU seconds (all threads) from its creation until ``stop``."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._began = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Take the time."""
        self.wall_s, self.cpu_s = time.perf_counter() - self._began[0], time.process_time() - self._began[1]

    def shared(self, n: int) -> tuple[float, float, int]:
        """Return the share of one in ``n``: wall time, CPU time, and ``n``."""
        return self.wall_s / n, self.cpu_s / n, n


def _judge(cell: Cell, task: Task, model: FittedDetector, training: tuple[float, float, int], code: Code) -> Result:
    scoring = _Stopwatch()
    scores = model.score(task.test.values, task.test.lengths).sum(axis=1, dtype=np.float64)
    scoring.stop()
    if not np.isfinite(scores).all():
        raise DetectorError(f"{cell}: {int((~np.isfinite(scores)).sum())} of {len(scores)} scores are not finite")
    fit_s, fit_cpu_s, n_models = training
    used = model.summary.device
    return Result(
        **asdict(cell),
        auc=auc(scores, task.is_anomaly),
        ap=average_precision(scores, task.is_anomaly),
        f1=f1_at_true_fraction(scores, task.is_anomaly),
        fit_s=round(fit_s, 3),
        score_s=round(scoring.wall_s, 3),
        cpu_s=round(fit_cpu_s + scoring.cpu_s, 3),
        peak_memory_mb=round(_peak_memory_bytes() / 1e6, 1),
        peak_gpu_memory_mb=round(torch.cuda.max_memory_allocated() / 1e6, 1) if used.startswith("cuda") else None,
        models_at_once=n_models,
        device=used,
        machine=_machine(used),
        threads=torch.get_num_threads(),
        n_train=len(task.train),
        n_test=len(task.test),
        n_anomalies=int(task.is_anomaly.sum()),
        options={key: value for key, value in model.summary.settings.items() if key != "seed"},
        best_epoch=model.summary.best_epoch,
        best_loss=model.summary.best_loss,
        revision=METHODS[cell.method].revision_on(cell.dataset),
        versions={"python": platform.python_version(), **_versions()},
        git_commit=code.commit,
        detectors_tree=code.detectors_tree,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _forget_peak_memory() -> None:
    """Reset the peak if the system can: otherwise a worker's peak is that of all its cells so far."""
    with suppress(OSError):
        (_PROC / "clear_refs").write_text("5")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak_memory_bytes() -> int:
    with suppress(OSError):
        for line in (_PROC / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _machine(device: str) -> str:
    """Return the name of the CPU or GPU."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
