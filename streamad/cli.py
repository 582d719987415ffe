"""The command line, ``streamad --help``; errors are one line, exit codes 0, 1 (failed), 2 (usage, config)."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from streamad.commands.alerts import alerts
from streamad.commands.check.command import check
from streamad.commands.feedback import feedback
from streamad.commands.init.command import init
from streamad.commands.inliers.command import inliers
from streamad.commands.models.command import models
from streamad.commands.record import record
from streamad.commands.replay import replay
from streamad.commands.run.command import run
from streamad.commands.schema import schema
from streamad.commands.score import score
from streamad.commands.shared.plants import name_config
from streamad.commands.simulate.command import simulate
from streamad.commands.topics import topics
from streamad.commands.train import train
from streamad.errors import StalledError, StreamadError
from streamad.telemetry.logs import configure_logs

app = typer.Typer(
    name="streamad",
    help="Monitor whole sensor sequences (batches, movements): calibrated alerts that say why.\n\n"
    "First steps: streamad simulate --out demo, then streamad train and streamad run in that folder; or with your own "
    "recordings: streamad init recording.csv, streamad check, streamad train, streamad run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, replay, record, train, score, feedback, check, schema, simulate, init):
    app.command()(command)
app.add_typer(models, name="models")
app.add_typer(inliers, name="inliers")
app.add_typer(alerts, name="alerts")
app.add_typer(topics, name="topics")


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
            help="Log to stderr what the runtime does; -vv: every commit too.",
        ),
    ] = 0,
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    configure_logs(verbosity)


def main() -> None:
    """Run the command line and exit; a user's mistake never ends in a traceback."""
    try:
        app()
    except StreamadError as error:
        typer.echo(f"error: {name_config(str(error))}", err=True)
        if isinstance(error, StalledError):
            sys.stdout.flush()
            os._exit(error.exit_code)  # a thread that hangs would keep the interpreter from ending
        sys.exit(error.exit_code)
    except OSError as error:
        if _stdout_works():
            raise
        # What stdout still buffers would fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        typer.echo(f"error: cannot write to standard output: {error.strerror}", err=True)
        sys.exit(1)


def _stdout_works() -> bool:
    try:
        print(flush=True)  # a large write that failed leaves nothing behind for a flush to fail on
    except OSError:
        return False
    return True
