"""Options that several commands have: input and its range of time, which model, which stored sequence, who marks it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import local_url
from streamad.errors import ConfigError, Problem, UsageError
from streamad.plant import Plant
from streamad.ports import Source
from streamad.ranges import EVERYTHING, Span, span_of
from streamad.runtime.recordings import cut
from streamad.runtime.wiring import source_for
from streamad.settings.plant_yaml import Settings

ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="One of several models (models in the config): its name or value."),
]
StreamOption = Annotated[
    str | None,
    typer.Option("--stream", metavar="NAME", help="With --sequence: a stored sequence by its stream and name."),
]
SequenceOption = Annotated[str | None, typer.Option("--sequence", metavar="NAME", help="See --stream.")]
NoteOption = Annotated[str, typer.Option("--note", metavar="TEXT", help="The reason, as free text.")]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who says so; default: you. Another name is a claim.")
]

VersionOption = Annotated[str | None, typer.Option(help="Model version, if not the one in service.")]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def versions_asked(version: str | None, settings: Settings) -> dict[str, str]:
    """Return which version ``--version`` names of which model. Raises UsageError where there are several models."""
    if version is None:
        return {}
    if settings.models is not None:
        raise UsageError("--version names a version of one model, and this config has several models: leave it out")
    return {settings.model.name: version}


def local_path(path: Path | None, option: typer.CallbackParam) -> Path | None:
    """Return ``path``, the value of an option that names a place to write to. Raises UsageError for a URL."""
    if path is not None and _URL.match(str(path)):  # Path has made one slash of two
        raise UsageError(
            f"{option.opts[0]} {path}: is a URL, and results are written to this machine alone: write the path of a "
            "file or folder, then copy it"
        )
    return path


def check_names(stream: str | None, sequence: str | None) -> None:
    """Raise UsageError if only one of both is given, or one is empty: no stream or sequence has an empty name."""
    if (stream is None) != (sequence is None):
        raise UsageError("--stream and --sequence go together: an id alone may occur on several streams")
    for option, name in (("--stream", stream), ("--sequence", sequence)):
        if name is not None and not name:
            raise UsageError(f"{option} is empty: give the name that streamad inliers list --each shows")


FromOption = Annotated[
    str | None, typer.Option("--from", metavar="URL", help="The same as RECORDINGS, such as kafka://HOST:PORT/TOPIC.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="From this record time on: 2026-11-01T08:00:00Z, 2026-11-01 (UTC), or 2h (ago), 30m, 7d."
    ),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Up to this record time, written as for --since.")
]


def input_url(recordings: str | None, from_url: str | None) -> str | None:
    """Return the URL given on the command line, None if there is none. Raises UsageError for two."""
    if recordings is not None and from_url is not None:
        raise UsageError(f"{recordings} and --from {from_url} both name the input: leave one out")
    named = recordings if recordings is not None else from_url
    return None if named is None else local_url(named)


def span_now(plant: Plant, since: str | None, until: str | None) -> Span:
    """Return the range that ``--since`` and ``--until`` mean now. Raises UsageError."""
    return span_of(since, until, plant.clock.now_us())


def open_input(plant: Plant, url: str | None, span: Span = EVERYTHING) -> Source:
    """Return a finite source of the records of ``url`` (None: the config's source) in ``span``.

    Raises UsageError if its records have no times, and as ``source_for``; errors of ``url`` name --from.
    """
    try:
        source = source_for(plant, url)
    except ConfigError as error:
        if url is None:
            raise
        raise ConfigError([_of_command_line(problem) for problem in error.problems]) from error
    return cut(source, span, url or plant.settings.source.url)


def _of_command_line(problem: Problem) -> Problem:
    """Return the problem with the key --from instead of source.url."""
    return replace(problem, path="--from") if problem.path in ("source", "source.url") else problem
