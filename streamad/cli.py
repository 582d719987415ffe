"""The command line. An error is one line; codes: 0, 1 (failed), 2 (usage, config), 3 (validate), 130 (interrupted)."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from streamad.commands.shared.groups import group_of
from streamad.errors import StalledError, StreamadError, UsageError
from streamad.safe_text import masked, text_of, visible
from streamad.system.import_name import REMEDY, name_clash
from streamad.telemetry.logs import configure_logs

COMMANDS = {
    "run": "streamad.commands.run.command",
    "replay": "streamad.commands.replay",
    "record": "streamad.commands.record",
    "train": "streamad.commands.train",
    "score": "streamad.commands.score",
    "validate": "streamad.commands.validate.command",
    "learn": "streamad.commands.learn",
    "feedback": "streamad.commands.feedback",
    "check": "streamad.commands.check.command",
    "schema": "streamad.commands.schema",
    "simulate": "streamad.commands.simulate.command",
    "init": "streamad.commands.init.command",
    "models": "streamad.commands.models.command",
    "inliers": "streamad.commands.inliers.command",
    "alerts": "streamad.commands.alerts",
    "explain": "streamad.commands.explain.command",
    "report": "streamad.commands.report.command",
    "web": "streamad.commands.web.command",
    "notify": "streamad.commands.notify",
    "bridge": "streamad.commands.bridge",
    "topics": "streamad.commands.topics",
    "audit": "streamad.commands.audit.command",
}
"""The module of each command, in which it has its own name; the order is that of the help."""

_SHOWN = 200
_OUR_PLUGINS = "(streamad_"
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
    if (clash := name_clash()) is not None:
        typer.echo(f"warning: {clash}: {REMEDY}", err=True)


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
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        error = _raised(error)
        if (text := _known(error)) is None:
            raise error from error.__cause__
        from streamad.telemetry.logs import get_logger  # noqa: PLC0415 - an error alone needs it

        get_logger().debug("failed", traceback="".join(traceback.format_exception(error)))
        typer.echo(f"error: {text}", err=True)
        sys.exit(1)


def _raised(error: BaseException) -> BaseException:
    """Return what a plug-in raised in place of the ContainedError that carried it past click."""
    plugins = sys.modules.get("streamad.plugins")
    is_contained = plugins is not None and isinstance(error, plugins.ContainedError)
    return error.__cause__ if is_contained and error.__cause__ is not None else error


def _known(error: BaseException) -> str | None:
    """Return the one line about an error that is no fault of streamad's own code; None for any other."""
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in text_of(error) for text in _NO_MEMORY)
    ):
        need = "fewer channels or sequences, a shorter window.length and smaller batches need less"
        return f"there is not enough memory: {need}"
    # A command that ends has loaded no plug-in, or takes no time to look: SystemExit comes here, too.
    plugins = sys.modules.get("streamad.plugins")
    failure: str | None = None if plugins is None else plugins.plugin_failure(error)
    if isinstance(error, OSError) and error.filename is not None and (failure is None or _OUR_PLUGINS in failure):
        return f"{visible(masked(str(error.filename)))[:_SHOWN]}: {error.strerror}"  # of a path that the user gave
    if failure is not None:
        return visible(masked(failure))
    if not isinstance(error, OSError) or _stdout_works():
        return None
    # At exit the interpreter would write the rest of the buffer, and fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"cannot write to standard output: {error.strerror}"


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
