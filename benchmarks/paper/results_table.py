"""The results of the study: one table for each data set and protocol, one line for each cell.

``natops__sweep.jsonl`` holds the cells of NATOPS under the protocol "sweep", sorted, so that git merges two tables and
shows what changed. Options and versions, the same in many cells, are in ``settings.json`` under their hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from streamad.errors import SourceError
from streamad.system.files import write_atomically, writing
from streamad.system.locks import locked

RESULTS: Final = Path(__file__).resolve().parent / "results"
_SETTINGS: Final = "settings.json"
_HASHED: Final = ("options", "versions")
LOCK_TIMEOUT_S: Final = 60.0

Protocol = Literal["one_vs_rest", "n_vs_rest", "sweep", "tabular", "tabular_drawn", "ablation"]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One model to train: ``normal`` are the numbers of the normal classes, empty for a table.

    ``variant`` names settings that differ from the method's own ("residual-k04" in the ablation).
    """

    dataset: str
    protocol: Protocol
    method: str
    seed: int
    normal: tuple[int, ...] = ()
    normal_name: str = "inliers"
    variant: str = ""

    @property
    def table(self) -> str:
        """Return the file name of the table that holds the cell's result."""
        return f"{self.dataset}__{self.protocol}.jsonl"

    def __str__(self) -> str:
        method = f"{self.method} {self.variant}".rstrip()
        return f"{self.dataset} {self.protocol} {method}, normal {self.normal_name}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Code:
    """The code that measures, in git's names: the checkout's commit and the tree of models/; None outside of git."""

    commit: str | None = None
    detectors_tree: str | None = None


NO_CODE: Final = Code()


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The measured cell: figures as shares (not x100), times in seconds, memory in megabytes (1e6 bytes).

    ``cpu_s`` is the CPU time of fit and score over all threads; other load on the machine does not add to it.
    ``peak_memory_mb`` is the process's, 200 to 500 MB of libraries included; ``peak_gpu_memory_mb`` the device's.
    ``models_at_once`` models shared that memory and time; the times are this one's share. The weights are those of
    ``best_epoch``, whose loss is ``best_loss``. ``options`` leave out the seed. ``revision`` is the method's,
    ``git_commit`` the checkout's, ``detectors_tree`` git's name of models/ there, which survives a squash of commits.
    """

    dataset: str
    protocol: Protocol
    method: str
    variant: str = ""
    normal: tuple[int, ...] = ()
    normal_name: str
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
        """Return the time of training and scoring: CPU time if the device is a CPU and it was measured, else wall."""
        return self.fit_s + self.score_s if self.cpu_s is None or self.device != "cpu" else self.cpu_s

    @property
    def cell(self) -> Cell:
        """Return the cell of this result."""
        return Cell(self.dataset, self.protocol, self.method, self.seed, self.normal, self.normal_name, self.variant)


class Tables:
    """The tables of a folder in memory; ``add`` writes through. Raises SourceError for rows without their settings.

    A line that cannot be read is counted in ``n_damaged`` and goes when its table is next written. Of two rows of
    one cell, as a merge may leave them, the one measured later counts.
    """

    def __init__(self, folder: Path = RESULTS) -> None:
        self._folder = folder
        self._settings: dict[str, dict[str, Any]] = {}
        self._results: dict[str, dict[Cell, Result]] = {}
        self._damaged: dict[str, int] = {}
        contents = {path.name: self._read(path.name) for path in folder.glob("*__*.jsonl")}
        self._read_settings()  # after the rows: another run may write both at this moment, settings first
        for name, content in contents.items():
            self._take_table(name, content)

    @property
    def n_damaged(self) -> int:
        """Return the number of lines that cannot be read."""
        return sum(self._damaged.values())

    def __iter__(self) -> Iterator[Result]:
        """Yield all results, table by table, each in the order of its rows."""
        for name in sorted(self._results):
            yield from _sorted(self._results[name])

    def get(self, cell: Cell) -> Result | None:
        """Return the result of ``cell``, None if there is none."""
        return self._results.get(cell.table, {}).get(cell)

    def add(self, results: Iterable[Result]) -> None:
        """Store ``results`` in place of those of the same cells: all of a table or none. Raises OutputError.

        Another process may add to the same folder meanwhile: its rows stay, and are known here from then on.
        """
        by_table: dict[str, list[Result]] = {}
        for result in results:
            by_table.setdefault(result.cell.table, []).append(result)
        with self._locked():
            self._read_settings()
            for name, added in by_table.items():
                self._take_table(name, self._read(name))
                self._results[name].update((one.cell, one) for one in added)
                self._write_table(name)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        busy = f"another run keeps {self._folder} locked: wait for it, or choose another folder by --out"
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(self._folder / ".lock", busy=busy, timeout_s=LOCK_TIMEOUT_S):
                yield

    def _read(self, name: str) -> bytes:
        path = self._folder / name
        try:
            return path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror or error}") from error

    def _read_settings(self) -> None:
        try:
            self._settings = msgspec.json.decode(self._read(_SETTINGS) or b"{}", type=dict[str, dict[str, Any]])
        except msgspec.DecodeError as error:
            raise SourceError(f"cannot read {self._folder / _SETTINGS}: {error}; restore it from git") from error

    def _take_table(self, name: str, content: bytes) -> None:
        found, damaged = self._results.setdefault(name, {}), 0
        for line in content.splitlines():
            result = self._result_of(name, line)
            if result is None:
                damaged += 1
            elif (known := found.get(result.cell)) is None or known.finished_at <= result.finished_at:
                found[result.cell] = result
        self._damaged[name] = damaged

    def _result_of(self, name: str, line: bytes) -> Result | None:
        dataset, _, protocol = name.removesuffix(".jsonl").partition("__")
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
            hashes = {key: str(row.get(key)) for key in _HASHED}
            known = {key: self._settings.get(value, {}) for key, value in hashes.items()}
            result = msgspec.convert({**row, **known, "dataset": dataset, "protocol": protocol}, Result)
        except msgspec.MsgspecError:
            return None
        if lacking := set(hashes.values()) - self._settings.keys():
            raise SourceError(f"{self._folder / name} needs {', '.join(lacking)} of {_SETTINGS}: restore it from git")
        return result

    def _write_table(self, name: str) -> None:
        rows = []
        for one in _sorted(self._results[name]):
            row = msgspec.to_builtins(one, enc_hook=str)
            del row["dataset"], row["protocol"]
            rows.append(row | {key: self._hashed(row[key]) for key in _HASHED})
        settings = (msgspec.json.encode({key: value})[1:-1] for key, value in sorted(self._settings.items()))
        self._write(_SETTINGS, b"{\n" + b",\n".join(settings) + b"\n}\n")  # before the rows that need it
        self._write(name, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        self._damaged[name] = 0

    def _hashed(self, settings: dict[str, Any]) -> str:
        content = msgspec.json.encode(settings, order="sorted")
        key = hashlib.sha256(content).hexdigest()[:12]
        self._settings[key] = msgspec.json.decode(content)
        return key

    def _write(self, name: str, content: bytes) -> None:
        write_atomically(self._folder / name, content)  # one writer at a time: it has the lock


def _sorted(results: dict[Cell, Result]) -> list[Result]:
    def key(one: Result) -> tuple[Any, ...]:
        return one.method, one.variant, one.normal, one.normal_name, one.seed

    return sorted(results.values(), key=key)


def read_results(folder: Path = RESULTS) -> list[Result]:
    """Return all results under ``folder``, table by table. Raises SourceError."""
    return list(Tables(folder))
