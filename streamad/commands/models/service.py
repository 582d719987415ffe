"""``streamad models promote``, ``approve``, ``decline`` and ``rollback``: what a person decides about a version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import ConfigOption, JsonOption, err, out, print_json
from streamad.commands.shared.console import note as noted
from streamad.commands.shared.options import ByOption, ModelOption, NoteOption
from streamad.commands.shared.plants import load_plant
from streamad.decisions.recording import of_command
from streamad.errors import UsageError
from streamad.learn.parts import registry_of
from streamad.learn.registry.registry import NoModelError
from streamad.outputs.stored import one_model
from streamad.outputs.versions import approving, service
from streamad.outputs.versions.service import Served


def promote(
    version: Annotated[str, typer.Argument(help="The version, also an earlier one.")],
    *,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a version into service, after verifying its files.

    If CURRENT, which names the one in service, is damaged, it is written anew.

    Example: streamad models promote 0004
    """
    plant = load_plant(config)
    name = one_model(plant, model)
    registry = registry_of(plant)
    version = registry.named(name, version)
    before = registry.current_or_none(name)
    served = service.put_into_service(plant, name, version, before, repairs=True, by=of_command(by), reason=note)
    _say(served, as_json=as_json)


def approve(
    version: Annotated[str, typer.Argument(help="A version that waits for two people.")],
    *,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why it should judge; it is kept with the name.")],
    by: ByOption = None,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a version; the approval of a second person puts it into service.

    For a config with learning.promote: person or model.locked: true. Nobody checks the name here; the page knows who
    has logged in.

    Example: streamad models approve 0004 --by "Anna Berg" --note "fewer false alarms on line 2"
    """
    if by is not None and not by.strip():  # of an unset variable: the machine's user would count as a second person
        raise UsageError("--by '' names nobody: give the name of the person who approves, or leave it out for yourself")
    plant = load_plant(config)
    name = one_model(plant, model)
    version = registry_of(plant).named(name, version)
    done = approving.approve(plant, name, version, by=of_command(by), why=note)
    if as_json:
        is_served = done.served is not None
        print_json({"model": name, "version": version, "approvals": done.manifest.approvals, "promoted": is_served})
        return
    if done.served is not None and done.served.silences:
        err.print(noted(done.served.silences))
    out.print(done.words)


def decline(
    version: Annotated[str, typer.Argument(help="A version that waits for a review.")],
    *,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Leave a version that waits for a review out of service; the same marks make no other one.

    Example: streamad models decline 0004
    """
    plant = load_plant(config)
    name = one_model(plant, model)
    version = registry_of(plant).named(name, version)
    said = service.decline(plant, name, version, by=of_command(by), reason=note)
    if as_json:
        print_json({"model": name, "declined": version})
        return
    out.print(said)


def rollback(
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="The version to return to; default: the parent.")
    ] = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return to the version that the one in service replaced (its parent).

    If operators' false alarms had changed the version that leaves, it counts as declined.

    Example: streamad models rollback
    """
    plant = load_plant(config)
    name = one_model(plant, model)
    registry = registry_of(plant)
    current = registry.current(name)
    if current is None:
        raise NoModelError(f"model {name!r} has no version in service: there is nothing to roll back")
    to = None if to is None else registry.named(name, to)
    if to == current:
        raise UsageError(f"--to {to}: this is the version in service")
    _say(service.roll_back(plant, name, current, to, by=of_command(by), reason=note), as_json=as_json)


def _say(served: Served, *, as_json: bool) -> None:
    if as_json:
        print_json({"model": served.model, "current": served.version, "before": served.before})
        return
    if served.silences:
        err.print(noted(served.silences))
    out.print(served.words)
