"""``streamad models promote`` and ``rollback``: which version serves, and how running monitors hear of it."""

from __future__ import annotations

__all__ = ["promote", "rollback", "tell_workers"]

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from streamad.commands.shared.console import ConfigOption, JsonOption, Plant, err, load_plant, out, print_json
from streamad.commands.shared.stored import ModelOption, one_model
from streamad.errors import StreamadError, UsageError
from streamad.learn.feedback.control import announce
from streamad.learn.registry.registry import NoModelError, Registry
from streamad.runtime.wiring import registry_of
from streamad.types import ModelRef


def promote(
    version: Annotated[str, typer.Argument(help="Version to put into service; an older one rolls back.")],
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a version into service, after its files were verified.

    Example: streamad models promote 0004
    """
    plant = load_plant(config)
    name = one_model(plant, model)
    registry = registry_of(plant.settings, plant.base_dir)
    _put_into_service(plant, registry, name, version, registry.current(name), as_json=as_json)


def rollback(
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="Version to go back to; default: the parent.")
    ] = None,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go back to the version that the one in service was trained to replace (its parent).

    Example: streamad models rollback
    """
    plant = load_plant(config)
    name = one_model(plant, model)
    registry = registry_of(plant.settings, plant.base_dir)
    current = registry.current(name)
    if current is None:
        raise NoModelError(f"model {name!r} has no version in service: there is nothing to go back from")
    if to == current:
        raise UsageError(f"--to {to}: that is the version in service")
    _put_into_service(plant, registry, name, to or _parent(registry, name, current), current, as_json=as_json)


def _parent(registry: Registry, name: str, current: str) -> str:
    parent = registry.manifest(name, current).parent
    others = ", ".join(version for version in registry.versions(name) if version != current)
    way = f"name a version with --to (there are: {others})" if others else "there is no other version"
    if parent is None:
        raise UsageError(f"model {name} {current} replaced no other: {way}")
    if parent not in registry.versions(name):
        raise UsageError(f"{parent}, which {current} replaced, is gone: {way}")
    return parent


def _put_into_service(
    plant: Plant, registry: Registry, name: str, version: str, before: str | None, *, as_json: bool
) -> None:
    registry.promote(name, version, expected=before)
    told = tell_workers(plant, ModelRef(name, version))
    if as_json:
        print_json({"model": name, "current": version, "before": before})
        return
    was = f" (before: {before})" if before and before != version else ""
    out.print(escape(f"model {name} {version} is now in service{was}; {told}"))


def tell_workers(plant: Plant, model: ModelRef) -> str:
    """Tell running monitors of a promotion where the plant has a place for that; return when they take it."""
    if plant.settings.learning is None:
        return "running monitors take it at their next start (with a section learning: at once)"
    try:
        asyncio.run(announce(plant.settings, plant.context, model))
    except StreamadError as error:
        err.print(
            f"[yellow]note[/]: running monitors could not be told, they will see it by themselves: {escape(str(error))}"
        )
    return "running monitors take it within 2 s"
