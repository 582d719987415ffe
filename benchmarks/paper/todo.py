"""Which cells of the study are missing or out of date, and which stored results count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.paper.choosing import Choice, jobs_of
from benchmarks.paper.methods import METHODS
from benchmarks.paper.protocols import FIGURES, TABLES
from benchmarks.paper.results_table import RESULTS, Cell, Result, Tables, read_results
from benchmarks.paper.workers import Job
from streamad.errors import UsageError


def is_current(result: Result) -> bool:
    """Return whether ``result`` is of its method's revision of today, or of a method outside of the study."""
    return result.method not in METHODS or result.revision >= METHODS[result.method].revision_on(result.dataset)


def read_current(folder: Path = RESULTS) -> tuple[list[Result], int]:
    """Return the current results under ``folder``, table by table, and the number of outdated ones."""
    stored = read_results(folder)
    current = [one for one in stored if is_current(one)]
    return current, len(stored) - len(current)


def has_setting(result: Result, key: str, wanted: Any) -> bool:
    """Return whether ``result`` was measured with ``wanted``; its options hold the value that the training resolved.

    "auto" leaves the value to the method, so any value fits. A batch is never larger than the training set.
    """
    had = result.options.get(key)
    if key == "batch_size" and wanted == "quarter":
        return bool(had == max(result.n_train // 4, 1))
    if key == "batch_size" and isinstance(wanted, int):
        return bool(had == min(wanted, result.n_train))
    return wanted in ("auto", had)


class Measured:
    """The results of a folder, and the cells that they make superfluous: none with ``redo``."""

    def __init__(self, folder: Path, *, redo: bool = False) -> None:
        self.folder = folder
        self.tables = Tables(folder)
        self._redo = redo

    def current(self, cell: Cell) -> Result | None:
        """Return the result of ``cell``, None if it is missing or outdated."""
        result = self.tables.get(cell)
        return result if result is not None and is_current(result) else None

    def is_done(self, job: Job) -> bool:
        """Return whether all cells of ``job`` are measured. Raises UsageError if one was measured with other settings.

        With ``redo`` it returns False.
        """
        if self._redo:
            return False
        found = [self.current(cell) for cell in job.cells]
        for result in found:
            for key, wanted in job.settings.items():
                if result is not None and not has_setting(result, key, wanted):
                    held = f"{self.folder} holds {result.cell} with {key}={result.options.get(key)}, not {wanted}"
                    raise UsageError(f"{held}: give another folder by --out, or --redo")
        return all(result is not None for result in found)

    def n_unusable(self, jobs: Iterable[Job]) -> int:
        """Return the number of damaged lines, and of outdated results of ``jobs``: 0 with ``redo``."""
        outdated = (self.tables.get(cell) and not self.current(cell) for job in jobs for cell in job.cells)
        return 0 if self._redo else self.tables.n_damaged + sum(map(bool, outdated))


_PARTS = {
    **{f"table {number}": Choice(tables=(number,)) for number in TABLES},
    **{name: Choice(figures=(name,)) for name in FIGURES},
}


def missing(results: Iterable[Result]) -> Iterator[tuple[str, str, list[Cell]]]:
    """Yield each part of the study and data set with the cells of seed 0 that have no result."""
    stored = {one.cell for one in results}
    for part, choice in _PARTS.items():
        by_dataset: dict[str, list[Cell]] = {}
        for cell in (cell for job in jobs_of(choice) for cell in job.cells if cell not in stored):
            by_dataset.setdefault(cell.dataset, []).append(cell)
        for dataset, cells in by_dataset.items():
            yield part, dataset, cells
