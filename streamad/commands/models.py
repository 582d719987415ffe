"""``streamad models``: what the registry holds."""

from __future__ import annotations

__all__ = ["models"]

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from streamad.commands._common import ConfigOption, JsonOption, load_plant, out, print_json
from streamad.learn.manifest import Manifest
from streamad.learn.registry import NoModelError
from streamad.wiring import registry_of

models = typer.Typer(help="List and show the versions in the model registry.", no_args_is_help=True)


def _row(manifest: Manifest, current: str | None) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "in_service": manifest.version == current,
        "created_at": manifest.created_at.isoformat(timespec="seconds"),
        "detector": manifest.detector.kind,
        "n_training": manifest.metrics.n_training,
        "n_calibration": manifest.metrics.n_calibration,
        "parent": manifest.parent,
    }


@models.command("list")
def list_versions(config: ConfigOption = Path("plant.yaml"), as_json: JsonOption = False) -> None:
    """List the versions of the config's model; the one in service is marked."""
    plant = load_plant(config)
    name = plant.settings.model.name
    registry = registry_of(plant.settings, plant.base_dir)
    current = registry.current(name)
    rows = [_row(registry.manifest(name, version), current) for version in registry.versions(name)]
    if as_json:
        print_json({"model": name, "current": current, "versions": rows})
        return
    if not rows:
        out.print(f"no version of model {name!r} yet; train one with: streamad train --config {config}")
        return
    table = Table("version", "", "created", "detector", "trained on", "calibrated on", "parent", box=None)
    for row in rows:
        table.add_row(
            row["version"],
            "in service" if row["in_service"] else "",
            row["created_at"],
            row["detector"],
            f"{row['n_training']} sequences",
            f"{row['n_calibration']}",
            row["parent"] or "",
        )
    out.print(table)


@models.command("promote")
def promote(
    version: Annotated[str, typer.Argument(help="Version to put into service; an older one rolls back.")],
    config: ConfigOption = Path("plant.yaml"),
) -> None:
    """Put a version into service, after its files were verified. Running monitors take it at their next start."""
    plant = load_plant(config)
    name = plant.settings.model.name
    registry = registry_of(plant.settings, plant.base_dir)
    before = registry.current(name)
    registry.promote(name, version, expected=before)
    out.print(f"model {name} {version} is now in service" + (f" (before: {before})" if before else ""))


@models.command("show")
def show(
    version: Annotated[str | None, typer.Argument(help="Version; the one in service if left out.")] = None,
    config: ConfigOption = Path("plant.yaml"),
    as_json: JsonOption = False,
) -> None:
    """Show the manifest of a version: data, settings, training, calibration, files, decision."""
    plant = load_plant(config)
    name = plant.settings.model.name
    registry = registry_of(plant.settings, plant.base_dir)
    chosen = version or registry.current(name)
    if chosen is None:
        raise NoModelError(
            f"model {name!r} has no version in service; train one with: streamad train --config {config}"
        )
    manifest = registry.manifest(name, chosen)
    if as_json:
        print_json(manifest)
        return
    out.print_json(data=msgspec.to_builtins(manifest))
