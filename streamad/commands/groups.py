"""Groups of commands whose modules are imported when a command is called: none waits for the imports of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from streamad.safe_text import masked, visible_name

_UsageError: Any = typer.BadParameter.__base__
"""Click's errors of usage; typer has its own copy of click, or not, by its version."""


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
            with _printable_errors():
                return super().make_context(*args, **options)

        def invoke(self, ctx: Any) -> Any:
            with _printable_errors():
                return super().invoke(ctx)

    return Group


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Make what errors of usage quote from the command line safe to print: no secrets, no controls."""
    try:
        yield
    except _UsageError as error:
        error.message = visible_name(masked(error.message or ""))
        raise


@cache
def _imported(name: str, module: str) -> Any:
    found = getattr(import_module(module), name)
    parent = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown")
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    return typer.main.get_group(parent).commands[name]
