"""Options that several commands have: which model, which stored sequence, who marks it."""

from __future__ import annotations

from typing import Annotated

import typer

from streamad.errors import UsageError

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
    str | None, typer.Option("--by", metavar="NAME", help="Who marks it; default: you. Another name is a claim.")
]


def check_names(stream: str | None, sequence: str | None) -> None:
    """Raise UsageError if only one of both is given, or one is empty: no stream or sequence has an empty name."""
    if (stream is None) != (sequence is None):
        raise UsageError("--stream and --sequence go together: an id alone may occur on several streams")
    for option, name in (("--stream", stream), ("--sequence", sequence)):
        if name is not None and not name:
            raise UsageError(f"{option} is empty: give the name that streamad inliers list --each shows")
