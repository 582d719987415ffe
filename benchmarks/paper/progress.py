"""The progress of a run on standard error: each cell with its result, the count, and the time left."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchmarks.paper.methods import length_of_training
from benchmarks.paper.results_table import Cell, Result
from benchmarks.paper.workers import Failure, Outcome


def duration(seconds: float) -> str:
    """Return ``seconds`` for people.

    >>> duration(7.3), duration(200), duration(5400)
    ('7 s', '3 min', '1.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Estimate:
    """The time of a cell, estimated from measured ones: from the most similar if there are any, else from all.

    n normal classes are assumed to take n times as long as one, a shortened training its share of the full one.
    """

    def __init__(self, known: Iterable[Result]) -> None:
        self._times_s: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for result in known:
            self.learn(result)

    def learn(self, result: Result) -> None:
        """Take a measured cell into account."""
        for kind in _kinds(result.cell):
            self._times_s[kind].append((result.fit_s + result.score_s) / _size(result.cell))

    def of(self, cell: Cell, *, guess: bool = True) -> float | None:
        """Return the seconds that ``cell`` may take, None if nothing was measured yet.

        Without ``guess`` also None if its method was never measured on its data set.
        """
        for kind in _kinds(cell) if guess else _kinds(cell)[:2]:
            if kind in self._times_s:
                return statistics.fmean(self._times_s[kind]) * _size(cell)
        return None

    def left_s(self, cells: Iterable[Cell], n_workers: int) -> float | None:
        """Return the seconds until ``cells`` are done, None if nothing was measured yet."""
        times = [self.of(cell) for cell in cells]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) / n_workers if len(known) == len(times) else None


def _size(cell: Cell) -> float:
    return max(len(cell.normal), 1) * length_of_training(cell)


def _kinds(cell: Cell) -> list[tuple[str, ...]]:
    """Return the kinds that a cell belongs to, the narrowest first."""
    return [(cell.dataset, cell.protocol, cell.method), (cell.dataset, cell.method), (cell.dataset,), ()]


class ProgressReport:
    """The lines and the bar of a run; the bar is shown on a terminal only."""

    def __init__(self, console: Console, cells: list[Cell], estimate: Estimate, n_workers: int) -> None:
        self._console = console
        self._left = dict.fromkeys(cells)
        self._estimate = estimate
        self._n_workers = n_workers
        self._n_cells = len(cells)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(self._time_left(), total=len(cells))

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, outcome: Outcome) -> None:
        """Print the result of each cell of a job, and the time that the other cells may take."""
        if isinstance(outcome.results, Failure):
            for cell in outcome.job.cells:
                self._print(cell, f"[red]failed[/red] {escape(str(cell))}: {escape(outcome.results.text)}")
            return
        for result in outcome.results:
            self._estimate.learn(result)
            took_s = result.fit_s + result.score_s
            figures = f"AUC {result.auc:.3f}, F1 {result.f1:.3f}, {took_s:.1f} s"
            self._print(result.cell, f"{escape(str(result.cell))}: {figures}")

    def _print(self, cell: Cell, text: str) -> None:
        self._left.pop(cell, None)
        count, left = self._n_cells - len(self._left), self._time_left()
        self._bar.update(self._task, completed=count, description=left)
        tail = f"; {left}" if self._left and not self._console.is_terminal else ""
        self._console.print(f"{count}/{self._n_cells} {text}{tail}")

    def _time_left(self) -> str:
        seconds = self._estimate.left_s(self._left, self._n_workers)
        return "time left not known yet" if seconds is None else f"about {duration(seconds)} left"
