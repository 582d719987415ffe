"""Parts of every command: options, output for people and machines, the progress bar, the stop on Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from streamad.errors import UsageError
from streamad.plugins import split_url
from streamad.safe_text import masked, visible, visible_json, visible_name

T = TypeVar("T")

_WIDEST = 10_000
_SAME_STOP_S = 2.0
_STEPS = 200
_BLANKS = re.compile(r"[ \t\r\n]+")  # no-break spaces stay: "84 %" is one word

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The plant's config.", show_default=True, metavar="FILE")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, for machines.")]


class VisibleConsole(Console):
    """Prints a string as it is: no markup, no emoji codes, controls as escapes, secrets masked (``printed``)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})

    def render_str(self, text: str, *args: Any, **how: Any) -> Text:
        """Return ``text`` rendered, as every string is that is printed, in cells of tables as well."""
        return super().render_str(printed(text), *args, **how)


def printed(text: str) -> str:
    """Return ``text`` as a person may see it."""
    return visible(masked(text))


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return one line of ``parts``: a string as it is, or a string and its style, such as "bold red"."""
    return Text.assemble(*(printed(part) if isinstance(part, str) else (printed(part[0]), part[1]) for part in parts))


class Fields:
    """A line of fields for ``print``. A terminal that is too narrow for it gets several: no field is broken that fits.

    The lines that follow are indented by ``indent`` columns. Without a terminal it is one line.
    """

    def __init__(self, indent: int) -> None:
        self._indent = indent
        self._fields: list[tuple[str, Text]] = []

    def add(self, text: str, style: str = "", *, gap: str = "  ") -> Fields:
        """Add a field after a ``gap``, which a break replaces; returns itself."""
        self._fields.append((gap if self._fields else "", Text(visible_name(masked(text)), style)))
        return self

    def add_words(self, text: str) -> Fields:
        """Add every word of ``text`` as a field; returns itself."""
        for word in _BLANKS.split(masked(text)):
            if word:
                self.add(word, gap=" ")
        return self

    def __str__(self) -> str:
        return self._lines(None)[0].plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from self._lines(options.max_width if console.is_terminal else None)

    def _lines(self, width: int | None) -> list[Text]:
        lines = [Text()]
        for gap, text in self._fields:
            line = lines[-1]
            if width is not None and line.plain.strip() and line.cell_len + len(gap) + text.cell_len > width:
                indent = self._indent if self._indent + text.cell_len <= width else 0
                lines.append(Text(" " * indent).append_text(text))
            else:
                line.append(gap).append_text(text)
        return lines


def wrapped(text: str) -> Fields:
    """Return ``text`` as a line that a narrow terminal breaks between words."""
    return Fields(0).add_words(text)


def row(name: str, text: str, width: int, style: str = "") -> Fields:
    """Return ``name`` in a column of ``width``, then ``text``, which a narrow terminal breaks between words."""
    return Fields(width).add(f"{name:<{width - 1}}", style).add_words(text)


def notice(name: str, text: str = "") -> Fields:
    """Return ``name`` in the colour of a notice, then ``text``; a narrow terminal breaks it between words."""
    first, _, others = text.partition(" ")
    return Fields(0).add(name, "yellow").add(first, gap="").add_words(others)


def note(text: str) -> Fields:
    """Return ``note: text``."""
    return notice("note", f": {text}")


out = VisibleConsole(soft_wrap=True)
err = VisibleConsole(stderr=True, soft_wrap=True)


def local_url(url: str, folder: Path | None = None) -> str:
    """Make a relative path absolute: seen from ``folder``, by default the working directory (the command line)."""
    scheme, rest, options = split_url(url)
    is_path = scheme == "file" or (scheme == "delta" and "://" not in rest)
    if not is_path or Path(rest).is_absolute():
        return url
    prefix = "" if scheme == "file" else f"{scheme}:"
    return f"{prefix}{(folder or Path()).absolute() / rest}" + (f"?{url.partition('?')[2]}" if options else "")


def parse_speed(text: str, at_most: float = float("inf")) -> float | None:
    """Return how many times real time ``--speed`` means, None for "max". Raises UsageError."""
    if text in ("max", "real"):
        return None if text == "max" else 1.0
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf") or factor > at_most:
        limit = "" if at_most == float("inf") else f", at most {at_most:.0f}"
        raise UsageError(f"--speed {text}: must be max, real or a factor above 0{limit}")
    return factor


def print_json(value: Any) -> None:
    """Print one JSON object on a line of its own."""
    typer.echo(visible_json(masked(msgspec.json.encode(value).decode())))


def print_table(table: Table, *, whole: Collection[str] = ()) -> None:
    """Print a table as wide as the terminal; without a terminal as wide as its content. Nothing is cut off.

    The columns ``whole`` (ids, dates) keep their width, as far as the terminal has it; the cells of others are folded.
    """
    console = out if out.is_terminal else VisibleConsole(width=_WIDEST)
    for column in table.columns:
        column.overflow = "fold"
        column.min_width = max(map(cell_len, str(column.header).split()), default=0)
        if column.header in whole:
            widest = max((cell_len(printed(str(cell))) for cell in column.cells), default=0)
            column.min_width = min(max(widest, column.min_width), console.width - len(table.columns) * 2)
    console.print(table)


def count(number: int, noun: str) -> str:
    """Return ``1 sequence``, ``2 sequences``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def judge_on_one_thread() -> None:
    """Let torch use one thread, unless the environment names a number; call it before torch is imported.

    Its threads wait for each other at every small operation, which takes longer than they save.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end."""
    results: list[T] = []

    async def kept() -> None:
        # asyncio.run makes a text of the finished task and its result (signal.getsignal): seconds for a large sample.
        results.append(await work)

    asyncio.run(kept())
    return results[0]


@contextmanager
def stop_on_signals(
    stop: Callable[[], object], last: str = "finishing what is being scored", *, repeats_s: float = 0.0
) -> Iterator[None]:
    """Call ``stop`` on the first Ctrl-C or SIGTERM and print that ``last`` follows (""); a second one ends the process.

    A signal less than ``repeats_s`` after the first, or after the end of the event loop, is a repetition of the first.
    """
    loop = asyncio.get_running_loop()

    def first() -> None:
        if last:
            err.print(f"stopping: {last} (again to stop at once)")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            if repeats_s > 0:
                at_once = signal.signal(number, signal.SIG_IGN)
                loop.call_later(repeats_s, signal.signal, number, at_once)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def stop_with_parent(stop: Callable[[], None], on_word: Callable[[], None] | None = None) -> float:
    """Call ``stop`` when standard input ends, which means that the parent process has died.

    ``on_word`` is called when the parent writes something. Returns for how many seconds further signals are repetitions
    of the first: systemd signals supervisor and workers, and the supervisor then signals the workers again.
    """
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def on_input() -> None:
        if os.read(descriptor, 4096):
            if on_word is not None:
                on_word()
        else:
            loop.remove_reader(descriptor)
            stop()

    loop.add_reader(descriptor, on_input)
    return _SAME_STOP_S


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
        self._has_share = False
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

    def show(self, text: str, done: float | None = None, total: float | None = 1.0, *, line: str = "") -> None:
        """Show ``text`` and the share ``done`` of ``total`` (None: unknown); print a new ``line`` if no terminal."""
        if done is None and self._has_share:  # a task forgets its total only by its end
            self._progress.remove_task(self._task)
            self._task = self._progress.add_task(text, total=None)
        self._has_share = done is not None
        of = total if self._has_share else None
        self._progress.update(self._task, description=text, completed=done or 0.0, total=of)
        if self._prints_lines and line not in ("", self._line):
            self._line = line
            err.print(line)

    def each(self, items: Collection[T]) -> Iterator[T]:
        """Yield ``items``; show which share of them was taken, with the text that stands there."""
        step = max(1, len(items) // _STEPS)
        self._has_share = True
        for number, item in enumerate(items):
            if number % step == 0:
                self._progress.update(self._task, completed=number, total=len(items))
            yield item
