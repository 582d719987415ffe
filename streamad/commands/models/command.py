"""``streamad models``: the versions in the registry, the version in service, and trainings."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from streamad.commands.models.show import show_page
from streamad.commands.shared.console import ConfigOption, JsonOption, err, note, out, print_json, print_table, styled
from streamad.commands.shared.figures.certification import line_below_certified
from streamad.commands.shared.figures.faults import found_faults
from streamad.commands.shared.groups import group_of
from streamad.commands.shared.options import ModelOption
from streamad.commands.shared.plants import load_plant, name_config
from streamad.errors import ArtifactError, RegistryError
from streamad.learn.parts import registry_of
from streamad.learn.registry.approvals import counted
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.registry import NoModelError, Registry
from streamad.outputs.stored import one_model, some_models
from streamad.plant import Plant

_OTHERS = {
    "status": "streamad.commands.models.status",
    "compare": "streamad.commands.models.compare",
    "promote": "streamad.commands.models.service",
    "approve": "streamad.commands.models.service",
    "decline": "streamad.commands.models.service",
    "rollback": "streamad.commands.models.service",
    "retrain": "streamad.commands.models.training",
    "relearn": "streamad.commands.models.training",
    "prune": "streamad.commands.models.prune",
    "export": "streamad.commands.models.export",
}
models = typer.Typer(
    cls=group_of(_OTHERS),
    help="List, show, compare, promote, retrain and export the versions of a model.",
    no_args_is_help=True,
)


def _row(manifest: Manifest, current: str | None) -> dict[str, Any]:
    decision = manifest.decision
    return {
        "version": manifest.version,
        "in_service": manifest.version == current,
        "created_at": manifest.created_at.isoformat(timespec="seconds"),
        "detector": manifest.detector.kind,
        "n_training": manifest.metrics.n_training,
        "n_calibration": manifest.metrics.n_calibration,
        "parent": manifest.parent,
        "trained_because_of": manifest.learning.reason if manifest.learning is not None else None,
        "promoted": None if decision is None else decision.promoted,
        "waits_for_review": manifest.waits_beside(current),
        "waited": decision is not None and decision.waits_for_review,
        "declined": decision is not None and decision.declined,
        "approved_by": [each.by for each in counted(manifest)],
    }


@models.command("list")
def list_versions(
    config: ConfigOption = Path("plant.yaml"), model: ModelOption = None, as_json: JsonOption = False
) -> None:
    """List the versions of the config's model or models; the one in service is marked.

    A version that cannot be read, and anything else in the folder, is a note; with notes alone the exit code is 1.

    Example: streamad models list
    """
    plant = load_plant(config)
    registry = registry_of(plant)
    found = [_listed(registry, name) for name in some_models(plant, model)]
    problems = [problem for one in found for problem in one["problems"]]
    if as_json:
        print_json(found[0] if plant.settings.models is None else {"models": found})
    else:
        for one in found:
            if plant.settings.models is not None:
                out.print(styled("model ", (one["model"], "bold")))
            if one["versions"]:
                print_table(_table(one["versions"]), whole=("version", "created (UTC)", "parent"))
            elif not one["problems"]:
                out.print(f"no version of model {one['model']!r} yet; train one with: streamad train --config {config}")
        if not found:
            out.print(f"no model yet; train with: streamad train --config {config}")
        for problem in problems:
            err.print(note(name_config(problem)))
    if problems and not any(one["versions"] for one in found):
        raise RegistryError("no version can be listed; the notes and the problems of --json say why")


def _listed(registry: Registry, name: str) -> dict[str, Any]:
    problems, rows, current = [], [], None
    try:
        current = registry.current(name)
    except RegistryError as error:
        problems.append(str(error))
    for version in registry.versions(name):
        try:
            rows.append(_row(registry.manifest(name, version), current))
        except (ArtifactError, RegistryError) as error:
            problems.append(str(error))
    problems += registry.other_folders(name).values()
    return {"model": name, "current": current, "versions": rows, "problems": problems}


def _standing(row: dict[str, Any]) -> str:
    """Return in two words what became of a version."""
    if row["in_service"]:
        return "in service"
    if row["waits_for_review"]:
        return "waits for 2nd approval" if row["approved_by"] else "waits for review"
    if row["declined"]:
        return "declined"
    return "refused" if row["promoted"] is False and not row["waited"] else ""


def _table(rows: list[dict[str, Any]]) -> Table:
    heads = ("version", "", "created (UTC)", "detector", "trained", "calibrated", "why", "parent")
    table = Table(*heads, box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(
            row["version"],
            _standing(row),
            f"{datetime.fromisoformat(row['created_at']).astimezone(UTC):%Y-%m-%d %H:%M}",
            row["detector"],
            f"{row['n_training']}",
            f"{row['n_calibration']}",
            row["trained_because_of"] or "train",
            row["parent"] or "",
        )
    return table


@models.command("show")
def show(
    version: Annotated[str | None, typer.Argument(help="A version; default: the one in service.")] = None,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a version: date, training data, calibration, promotion decision and files.

    --json prints the whole manifest.

    Example: streamad models show 0003
    """
    plant = load_plant(config)
    name = one_model(plant, model)
    registry = registry_of(plant)
    current = registry.current(name)
    chosen = current if version is None else registry.named(name, version)
    if chosen is None:
        raise NoModelError(
            f"model {name!r} has no version in service; train one with: streamad train --config {config}"
        )
    manifest = registry.manifest(name, chosen)
    if as_json:
        print_json(manifest)
    else:
        found = found_faults(manifest.references, plant.settings)
        show_page(manifest, current, _below_certified(plant, manifest), found)


def _below_certified(plant: Plant, manifest: Manifest) -> str | None:
    """Return the line about a configured rate below what the version's calibration reaches."""
    try:
        terms = registry_of(plant).calibration_terms(manifest.name, manifest.version)
        return line_below_certified(terms, manifest.metrics.method, plant.settings)
    except ArtifactError as error:
        return str(error)
