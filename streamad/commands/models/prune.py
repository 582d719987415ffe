"""``streamad models prune``: remove old versions of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import ConfigOption, JsonOption, count, out, print_json, run_async
from streamad.commands.shared.options import ModelOption
from streamad.commands.shared.plants import load_plant
from streamad.errors import RegistryError, StreamadError, UsageError
from streamad.learn.parts import registry_of
from streamad.learn.registry.owed import owed_versions
from streamad.learn.registry.pruning import prune as removed_by_pruning
from streamad.learn.trainer.status import read_status
from streamad.outputs.stored import one_model
from streamad.plant import Plant


def prune(
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, metavar="N", help="Newest versions to keep; default: model.keep.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove all but the newest versions of a model.

    The version in service, the one that a rollback returns to, those that wait for a review, those of a training that
    has not ended, and those that alerts still need for their attribution stay in any case.

    Example: streamad models prune --keep 10
    """
    plant = load_plant(config)
    name, registry = one_model(plant, model), registry_of(plant)
    n_kept = keep if keep is not None else plant.settings.model.keep
    if n_kept is None:
        raise UsageError("how many versions to keep? Give --keep N, or set model.keep in the config")
    training = read_status(registry, name)
    is_open = training.state != "idle" and training.request is not None
    open_requests = {training.request.requested_us} if is_open and training.request is not None else set()
    removed = removed_by_pruning(
        registry, name, keep=n_kept, owed=_owed(plant, name), open_requests=open_requests, dry_run=dry_run
    )
    left = registry.versions(name)
    if as_json:
        print_json({"model": name, "removed": removed, "dry_run": dry_run, "versions": left})
        return
    if not removed:
        out.print(f"model {name}: nothing to remove, {count(len(left), 'version')}")
        return
    done = "would remove" if dry_run else "removed"
    out.print(f"model {name}: {done} {count(len(removed), 'version')}: {', '.join(removed)}")


def _owed(plant: Plant, name: str) -> frozenset[str]:
    try:
        return run_async(owed_versions(plant, name))
    except StreamadError as error:
        why = "the versions that alerts still need for their attribution cannot be read"
        raise RegistryError(f"nothing was removed, because {why}: {error}") from error
