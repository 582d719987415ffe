"""What the commands share: options, the loaded plant, output for people and for machines, the stop on Ctrl-C."""

from __future__ import annotations

__all__ = [
    "ConfigOption",
    "JsonOption",
    "Plant",
    "err",
    "load_plant",
    "load_whole_plant",
    "local_url",
    "located",
    "name_config",
    "out",
    "print_json",
    "print_table",
    "run_async",
    "stop_on_signals",
]

import asyncio
import shlex
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from streamad.errors import ConfigError, Problem
from streamad.plugins import ConnectorContext, split_url
from streamad.ports import Clock
from streamad.runtime.wiring import check_parts, context_for
from streamad.settings.plant_yaml import Settings, load_settings, located_problems
from streamad.system.clock import SystemClock

T = TypeVar("T")

_WIDEST = 10_000
_CONFIG_HINT = "--config FILE"
_configs_in_use: list[Path] = []

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The plant's config.", show_default=True, metavar="FILE")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, for machines.")]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Plant:
    """A validated config, the folder that its relative paths mean, and the clock."""

    settings: Settings
    base_dir: Path
    clock: Clock

    @property
    def context(self) -> ConnectorContext:
        """Return what connectors are told."""
        return context_for(self.settings, self.base_dir, self.clock)


def load_plant(config: Path) -> Plant:
    """Load the config; relative paths in it mean its own folder. Raises ConfigError."""
    _configs_in_use[:] = [config]
    return Plant(load_settings(config), config.absolute().parent, SystemClock())


def load_whole_plant(config: Path) -> Plant:
    """Load the config and try its decoder, plug-ins and their options; raises ConfigError with all that is wrong."""
    plant = load_plant(config)
    if problems := check_parts(plant.settings, plant.context):
        raise ConfigError(located(problems), source=str(config))
    return plant


def name_config(text: str) -> str:
    """Return a hint with the file that the command was given (the one last loaded) in place of ``--config FILE``."""
    if not _configs_in_use:
        return text
    return text.replace(_CONFIG_HINT, f"--config {shlex.quote(str(_configs_in_use[0]))}")


def located(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems with the lines of their keys in the config that was loaded last, where they stand in it."""
    try:
        return [problem for config in _configs_in_use for problem in located_problems(problems, config)]
    except ConfigError:  # the file was changed in between
        return list(problems)


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
