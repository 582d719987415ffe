"""What the commands share: options, the loaded plant, output for people and for machines, the stop on Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from streamad.plugins import split_url

T = TypeVar("T")

_WIDEST = 10_000

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The plant's config.", show_default=True, metavar="FILE")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, for machines.")]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def local_url(url: str) -> str:
    """Make a path given on the command line absolute, so that it means the working directory."""
    scheme, rest, options = split_url(url)
    if scheme != "file" or Path(rest).is_absolute():
        return url
    return str(Path(rest).absolute()) + (f"?{url.partition('?')[2]}" if options else "")


def print_json(value: Any) -> None:
    """Print one JSON object on a line of its own."""
    typer.echo(msgspec.json.encode(value).decode())


def print_table(table: Table) -> None:
    """Print a table: as wide as the terminal, and where there is none as wide as it is, nothing cut off."""
    (out if out.is_terminal else Console(highlight=False, width=_WIDEST)).print(table)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end."""
    return asyncio.run(work)


@contextmanager
def stop_on_signals(
    stop: Callable[[], None], last: str = "finishing what is being scored", *, repeats_s: float = 0.0
) -> Iterator[None]:
    """Call ``stop`` on the first Ctrl-C or SIGTERM; a second one ends the process at once.

    One that comes less than ``repeats_s`` after the first means the same stop, said twice; so does any that comes when
    the event loop has ended by then.
    """
    loop = asyncio.get_running_loop()

    def first() -> None:
        if not repeats_s:  # else the supervisor says so, once for all
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
