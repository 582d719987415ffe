"""The progress bar of long work."""

from __future__ import annotations

import time

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from streamad.commands.shared.console import err


class Bar:
    """A line on stderr with a text, the share done and the time left; use it in a ``with`` statement.

    ``is_endless``: work without a known end has a spinner instead. ``is_kept``: the line stays after the work.
    ``quiet``: nothing is printed. If stderr is no terminal, only the ``line`` of ``show`` is printed.
    """

    def __init__(self, text: str, *, quiet: bool = False, is_endless: bool = False, is_kept: bool = False) -> None:
        share: tuple[ProgressColumn, ...] = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        description = TextColumn("{task.description}", markup=False)
        self._progress = Progress(
            *((SpinnerColumn(), description) if is_endless else (description, *share)),
            console=err,
            transient=not is_kept,
            disable=quiet or not err.is_terminal,
        )
        self._prints_lines = not quiet and not err.is_terminal
        self._line = ""
        self._task = self._progress.add_task(text, total=None)
        self._started_s = time.perf_counter()

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the bar was made."""
        return time.perf_counter() - self._started_s

    def rate(self, n: int) -> float:
        """Return ``n`` per second since the bar was made."""
        return n / max(self.elapsed_s, 1e-9)

    def show(self, text: str, done: float = 0.0, total: float | None = None, *, line: str = "") -> None:
        """Show ``text`` and the share ``done`` of ``total`` (None: unknown); print a new ``line`` if no terminal."""
        self._progress.update(self._task, description=text, completed=done, total=total)
        if self._prints_lines and line not in ("", self._line):
            self._line = line
            err.print(line)
