"""The command lines of deployments, as streamad's own parser reads them."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from streamad.cli import app


def parsed(arguments: list[str]) -> str | None:
    """Return the command that the arguments of ``streamad`` name; fails if they do not parse."""
    command: Any = get_command(app)
    rest = list(arguments)
    while hasattr(command, "commands"):  # a group takes its own options (all of them flags), then a command
        command.make_context(command.name, list(rest))
        first = next((index for index, argument in enumerate(rest) if not argument.startswith("-")), None)
        if first is None:  # a group that is a command, too, such as web
            return str(command.name)
        if rest[first] not in command.commands:
            break
        command, rest = command.commands[rest[first]], rest[first + 1 :]
    context = command.make_context(command.name, rest)
    assert not context.args, context.args
    return str(command.name)
