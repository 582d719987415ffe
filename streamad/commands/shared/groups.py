"""Groups of commands whose modules are imported when a command is called: none waits for the imports of another."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from streamad.errors import StreamadError, UsageError
from streamad.safe_text import one_line, visible_name

_ClickUsageError: Any = typer.BadParameter.__base__
"""Click's errors of usage; typer has its own copy of click, or not, by its version."""
_AsksForHelp: Any = getattr(sys.modules[_ClickUsageError.__module__], "NoArgsIsHelpError", ())
"""Click's way to print the help of a group that is called without a command."""


class Commands(Mapping[str, Any]):
    """Those of ``known``, then those of ``modules``, in which each has its own name; imported when it is looked up."""

    def __init__(self, known: Mapping[str, Any], modules: Mapping[str, str]) -> None:
        self._known, self._modules = known, modules

    def __getitem__(self, name: str) -> Any:
        return self._known[name] if name in self._known else _imported(name, self._modules[name])

    def __iter__(self) -> Iterator[str]:
        return iter((*self._known, *self._modules))

    def __len__(self) -> int:
        return len(self._known) + len(self._modules)


def group_of(modules: Mapping[str, str]) -> type[TyperGroup]:
    """Return the class (``typer.Typer(cls=...)``) of a group that also has the commands in ``modules``, by name."""

    class Group(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = Commands(self.commands, modules)  # type: ignore[assignment]  # nothing adds to it

        def make_context(self, *args: Any, **options: Any) -> Any:
            with _errors_of_usage():
                return super().make_context(*args, **options)

        def invoke(self, ctx: Any) -> Any:
            with _errors_of_usage(ctx), _errors_of_plugins():
                return super().invoke(ctx)

    return Group


@contextmanager
def _errors_of_usage(group: Any = None) -> Iterator[None]:
    """Turn click's errors of usage, which it would print in a frame, into UsageError: one line, as every other error.

    Ctrl-C becomes one line, too: typer ends the process without any.
    ``group`` is the context in which a command was called, for those that do not name theirs. Their quotes of the
    command line cannot begin a line of their own.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if group is None or group.parent is None:  # that of a group in a group comes here once more
            typer.echo("interrupted" + (f": {stop}" if str(stop) else ""), err=True)
        raise
    except _AsksForHelp:
        raise
    except _ClickUsageError as error:
        said = visible_name(one_line(error.format_message())).rstrip(".").replace(": Value error, ", ": ", 1)
        command = _command_of(error.ctx) or _command_of(group, getattr(group, "invoked_subcommand", None))
        raise UsageError(f"{said}: see {' '.join(['streamad', *command])} --help") from error


@contextmanager
def _errors_of_plugins() -> Iterator[None]:
    """Turn an error that a plug-in raised into ContainedError: click ends silently at an EOFError or a broken pipe."""
    try:
        yield
    except StreamadError:
        raise
    except Exception as error:
        plugins = sys.modules.get("streamad.plugins")  # without it no plug-in was loaded
        if plugins is None or plugins.plugin_failure(error) is None:
            raise
        raise plugins.ContainedError(type(error).__name__) from error


def _command_of(context: Any, called: str | None = None) -> list[str]:
    names = [] if called is None else [called]
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return names


@cache
def _imported(name: str, module: str) -> Any:
    found = getattr(import_module(module), name)
    parent = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown")
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    return typer.main.get_group(parent).commands[name]
