"""Parts of every command: options, output for people and machines, the progress bar, the stop on Ctrl-C."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamad.errors import UsageError
from streamad.plugins import split_url

T = TypeVar("T")

_WIDEST = 10_000

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The plant's config.", show_default=True, metavar="FILE")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, for machines.")]

# What acts on a terminal or its reader and shows nothing: controls but tab and line feed, and changes of direction;
# and halves of characters (a file name that is not UTF-8), which no output can hold.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Return ``text`` with escapes in place of controls: names and notes come from others, and may carry any."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return ``text`` on one line, without runs of spaces: it cannot pass for a line of streamad's own."""
    return " ".join(text.split())


class VisibleConsole(Console):
    """Prints no control that is part of a text (of a string: whoever makes a ``Text`` uses ``visible``)."""

    def render_str(self, text: str, *args: Any, **how: Any) -> Text:
        """Return ``text`` rendered, as every string is that is printed."""
        return super().render_str(visible(text), *args, **how)


out = VisibleConsole(highlight=False, soft_wrap=True)
err = VisibleConsole(stderr=True, highlight=False, soft_wrap=True)


def local_url(url: str) -> str:
    """Make a path given on the command line absolute, so that it means the working directory."""
    scheme, rest, options = split_url(url)
    if scheme != "file" or Path(rest).is_absolute():
        return url
    return str(Path(rest).absolute()) + (f"?{url.partition('?')[2]}" if options else "")


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
    text = msgspec.json.encode(value).decode()
    typer.echo(_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal; without a terminal as wide as its content."""
    (out if out.is_terminal else VisibleConsole(highlight=False, width=_WIDEST)).print(table)


def count(number: int, noun: str) -> str:
    """Return ``1 sequence``, ``2 sequences``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end."""
    return asyncio.run(work)


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
