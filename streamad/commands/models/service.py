"""``streamad models promote``, ``decline`` and ``rollback``: what a person decides about a version."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.announcement import announce_promotion
from streamad.commands.shared.console import ConfigOption, JsonOption, err, note, out, print_json
from streamad.commands.shared.plants import load_plant
from streamad.commands.shared.stored import ModelOption, one_model
from streamad.errors import ArtifactError, UsageError
from streamad.learn.parts import registry_of
from streamad.learn.registry.registry import NoModelError, Registry
from streamad.messages import ModelRef
from streamad.plant import Plant


def promote(
    version: Annotated[str, typer.Argument(help="The version, also an earlier one.")],
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
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
    _put_into_service(plant, registry, name, version, before, repairs=True, as_json=as_json)


def decline(
    version: Annotated[str, typer.Argument(help="A version that waits for a review.")],
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Leave a version that waits for a review out of service; the same marks make no other one.

    Example: streamad models decline 0004
    """
    plant = load_plant(config)
    name = one_model(plant, model)
    registry = registry_of(plant)
    version = registry.named(name, version)
    if version == registry.current(name):
        raise UsageError(f"{version} is in service: streamad models rollback")
    if not registry.decline(name, version):
        raise UsageError(f"model {name} {version} does not wait for a review: there is nothing to decline")
    if as_json:
        print_json({"model": name, "declined": version})
        return
    out.print(f"model {name} {version} is declined: the same marks make no other version")


def rollback(
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="The version to return to; default: the parent.")
    ] = None,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
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
    _put_into_service(plant, registry, name, to or _parent(registry, name, current), current, as_json=as_json)
    with suppress(ArtifactError):  # a damaged version is left as it is
        registry.decline(name, current)


def _parent(registry: Registry, name: str, current: str) -> str:
    parent = registry.manifest(name, current).parent
    others = ", ".join(version for version in registry.versions(name) if version != current)
    way = f"name a version with --to (versions: {others})" if others else "there is no other version"
    if parent is None:
        raise UsageError(f"model {name} {current} replaced no other: {way}")
    if parent not in registry.versions(name):
        raise UsageError(f"{parent}, which {current} replaced, is gone: {way}")
    return parent


def _put_into_service(
    plant: Plant,
    registry: Registry,
    name: str,
    version: str,
    before: str | None,
    *,
    repairs: bool = False,
    as_json: bool,
) -> None:
    silences = _silences(registry, name, version)
    registry.promote(name, version, expected=before, repairs=repairs)
    announced = announce_promotion(plant, ModelRef(name, version))
    if as_json:
        print_json({"model": name, "current": version, "before": before})
        return
    if silences:
        err.print(note(silences))
    was = f" (before: {before})" if before and before != version else ""
    out.print(f"model {name} {version} is now in service{was}; {announced}")


def _silences(registry: Registry, name: str, version: str) -> str:
    """Return which alerts a version that operators' marks have changed silenced when it was compared, "" if none."""
    decision = registry.manifest(name, version).decision
    if decision is None or not (decision.waits_for_review or decision.declined):
        return ""
    n, of = (decision.figures.get(f"silenced.{each}", 0) for each in ("alerts", "of_alerts"))
    confirmed = decision.figures.get("silenced.confirmed", 0)
    if not n:
        return ""
    return f"{version} silences {n:.0f} of {of:.0f} stored alerts, {confirmed:.0f} of them confirmed anomalies"
