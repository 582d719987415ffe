"""One cell of the study: which model on which task, what came out, and its file among the results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from streamad.system.files import write_atomically, writing

RESULTS: Final = Path(__file__).resolve().parent / "results"

Protocol = Literal["one_vs_rest", "n_vs_rest", "sweep", "tabular", "tabular_drawn", "ablation"]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One model to train: ``normal`` are the class numbers taken for normal, none of them for a table.

    ``variant`` names settings other than the method's own ("residual-k04" in the ablation).
    """

    dataset: str
    protocol: Protocol
    method: str
    seed: int
    normal: tuple[int, ...] = ()
    normal_name: str = "inliers"
    variant: str = ""

    @property
    def path(self) -> Path:
        """Return where its result lies, relative to the folder of the results."""
        method = f"{self.method}-{self.variant}" if self.variant else self.method
        return Path(self.dataset, self.protocol, method, f"{self.normal_name}-{self.seed}.json")

    def __str__(self) -> str:
        method = f"{self.method} {self.variant}".rstrip()
        return f"{self.dataset} {self.protocol} {method}, normal {self.normal_name}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Code:
    """What git calls the code that measures: the checkout's commit, and the tree of models/; None outside of one."""

    commit: str | None = None
    detectors_tree: str | None = None


NO_CODE: Final = Code()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell: figures as shares (not x100), times in seconds, memory in megabytes (1e6 bytes).

    ``cpu_s`` is the processor's time of fit and score, all threads: unlike the other times, no busy machine adds to it.
    ``peak_memory_mb`` is the process's, the libraries' 200 to 500 MB in it; ``peak_gpu_memory_mb`` the device's.
    ``models_at_once``: how many models shared that time and memory; the times are this one's share.
    ``best_epoch`` of ``best_loss`` is the one whose weights were kept. ``revision`` is the method's, ``git_commit`` the
    checkout's, ``detectors_tree`` git's name of what models/ held there: it lasts when commits are folded into one.
    """

    dataset: str
    protocol: Protocol
    normal: tuple[int, ...]
    normal_name: str
    method: str
    variant: str
    seed: int
    auc: float
    ap: float
    f1: float
    fit_s: float
    score_s: float
    cpu_s: float | None = None
    peak_memory_mb: float
    peak_gpu_memory_mb: float | None = None
    models_at_once: int = 1
    device: str
    machine: str
    threads: int
    n_train: int
    n_test: int
    n_anomalies: int
    options: dict[str, Any]
    best_epoch: int | None = None
    best_loss: float | None = None
    revision: int = 1
    versions: dict[str, str]
    git_commit: str | None
    detectors_tree: str | None = None
    finished_at: str

    @property
    def seconds(self) -> float:
        """Return what training and scoring take: CPU time where that is the device's, so that no other load adds to it.

        Where it was not taken, and on a GPU, it is the time by the clock.
        """
        return self.fit_s + self.score_s if self.cpu_s is None or self.device != "cpu" else self.cpu_s

    @property
    def cell(self) -> Cell:
        """Return the cell that it is of."""
        return Cell(self.dataset, self.protocol, self.method, self.seed, self.normal, self.normal_name, self.variant)


def read_result(path: Path) -> Result | None:
    """Return what ``path`` holds; None where it is absent or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        return None


def read_results(folder: Path = RESULTS) -> Iterator[Result]:
    """Yield all results under ``folder`` in the order of their paths; a damaged or misplaced file is left out."""
    for path in sorted(folder.glob("*/*/*/*.json")):
        result = read_result(path)
        if result is not None and folder / result.cell.path == path:
            yield result


def write_result(result: Result, folder: Path = RESULTS) -> Path:
    """Store ``result`` under ``folder``, whole or not at all, and return its path. Raises OutputError."""
    path = folder / result.cell.path
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(result, enc_hook=str), indent=1) + b"\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # two runs may share the folder
    write_atomically(path, content, temporary=temporary)
    return path
