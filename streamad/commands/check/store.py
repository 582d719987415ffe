"""Checks that the inlier store can be read and written."""

from __future__ import annotations

import os
from pathlib import Path

from fsspec.core import split_protocol

from streamad.commands.check.findings import Finding, failed, failure, ok, warning
from streamad.commands.check.places import makeable, misplaced_folder
from streamad.errors import StreamadError
from streamad.outputs.stored import open_store, stored_models
from streamad.plant import Plant
from streamad.system.rights import missing_right

_CHECK = "learning.store"
_LOCAL = (None, "file", "local")


def check_store(plant: Plant) -> list[Finding]:
    """Return the counts of the inlier store, or why it cannot be used; no finding without learning."""
    if plant.settings.learning is None:
        return []
    if found := misplaced_folder(plant, _CHECK):
        return found
    url = plant.settings.learning.store
    protocol, path = split_protocol(url)
    problem = _unusable_folder(plant.base_dir / path) if protocol in _LOCAL else None
    if problem is not None:
        return [problem]
    try:
        stores = {name: open_store(plant, name) for name in stored_models(plant)}
    except StreamadError as error:
        return failure(_CHECK, error)
    damaged = [problem for store in stores.values() for problem in store.problems]
    if damaged:
        advice = "such a file is left as it is and not used: see docs/learning/inliers.md"
        return [warning(_CHECK, f"{url}: {len(damaged)} unusable, first: {damaged[0]}", advice)]
    counts = ", ".join(f"{name} {sum(store.counts().values())}" for name, store in stores.items())
    return [ok(_CHECK, f"{url} ({f'sequences: {counts}' if counts else 'nothing stored yet'})")]


def _unusable_folder(folder: Path) -> Finding | None:
    if not folder.exists():
        return makeable(_CHECK, folder)
    if not folder.is_dir():
        return failed(_CHECK, f"{folder} is a file", "name a folder: learning.store")
    if not os.access(folder, os.W_OK | os.X_OK):
        return failed(_CHECK, f"{folder} cannot be written", missing_right(folder, "write"))
    return None
