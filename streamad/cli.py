"""The command line. An error is one line; exit codes: 0, 1 (failed), 2 (usage, config), 130 (interrupted)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from streamad.commands.groups import group_of
from streamad.errors import StalledError, StreamadError, UsageError
from streamad.safe_text import visible
from streamad.telemetry.logs import configure_logs

COMMANDS = {
    "run": "streamad.commands.run.command",
    "replay": "streamad.commands.replay",
    "record": "streamad.commands.record",
    "train": "streamad.commands.train",
    "score": "streamad.commands.score",
    "feedback": "streamad.commands.feedback",
    "check": "streamad.commands.check.command",
    "schema": "streamad.commands.schema",
    "simulate": "streamad.commands.simulate.command",
    "init": "streamad.commands.init.command",
    "models": "streamad.commands.models.command",
    "inliers": "streamad.commands.inliers.command",
    "alerts": "streamad.commands.alerts",
    "topics": "streamad.commands.topics",
}
"""The module of each command, in which it has its own name; the order is that of the help."""

_SHOWN = 200
# Of the errors that PyTorch raises if there is not enough memory; it has no class for them.
_NO_MEMORY = ("allocate memory", "out of memory", "could not create a primitive", "could not execute a primitive")

app = typer.Typer(
    name="streamad",
    cls=group_of(COMMANDS),
    help="Detect anomalies in whole sensor sequences (batches, movements): alerts with a calibrated false-alarm rate "
    "and their most likely channels.\n\n"
    "First steps with a simulated plant: `streamad simulate --out demo`, then in that folder `streamad train` and "
    "`streamad run`.\n\n"
    "First steps with your own recordings: `streamad init recording.csv`, `streamad check`, `streamad train`, "
    "`streamad run`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamad {version('streamad-monitor')}")
        raise typer.Exit


@app.callback()
def _options(
    verbosity: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            metavar="",
            help="Log the steps of the runtime to stderr; -vv: also every commit.",
        ),
    ] = 0,
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    configure_logs(verbosity)


def main() -> None:
    """Run the command line and exit; a user's mistake is one line, no traceback."""
    try:
        _check_arguments(sys.argv[1:])
        app()
    except StreamadError as error:
        from streamad.commands.shared.plants import name_config  # noqa: PLC0415 - an error alone needs it

        typer.echo(visible(f"error: {name_config(str(error))}"), err=True)
        if isinstance(error, StalledError):
            sys.stdout.flush()
            os._exit(error.exit_code)  # a hanging thread would keep the interpreter from ending
        sys.exit(error.exit_code)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(text in str(error) for text in _NO_MEMORY):
            raise
        need = "fewer channels or sequences, a shorter window.length and smaller batches need less"
        typer.echo(f"error: there is not enough memory: {need}", err=True)
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:  # of a path that the user gave, else it would be a StreamadError
            typer.echo(f"error: {visible(str(error.filename))[:_SHOWN]}: {error.strerror}", err=True)
            sys.exit(1)
        if _stdout_works():
            raise
        # At exit the interpreter would write the rest of the buffer, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        typer.echo(f"error: cannot write to standard output: {error.strerror}", err=True)
        sys.exit(1)


def _check_arguments(arguments: Sequence[str]) -> None:
    """Raise UsageError if an argument is not UTF-8: no config, message or checkpoint could hold it."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise UsageError(f"the argument {visible(argument)[:_SHOWN]} is not UTF-8 text: rename the file or folder")


def _stdout_works() -> bool:
    try:
        print(flush=True)  # after a failed large write the buffer is empty, and a flush alone succeeds
    except OSError:
        return False
    return True
