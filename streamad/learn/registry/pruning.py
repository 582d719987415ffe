"""Removes old versions of a model: never one that serves, a rollback returns to, a person or an alert still needs."""

from __future__ import annotations

from collections.abc import Collection

from streamad.errors import ArtifactError, RegistryError
from streamad.learn.registry.approvals import counted
from streamad.learn.registry.registry import Registry


def _protected(
    registry: Registry, name: str, open_requests: Collection[int], owed: Collection[str]
) -> tuple[set[str], set[str]]:
    """Return the versions that stay whatever their age, and those of them that count for no others.

    These are the one in service, its parent, the newest of those that wait for a review beside it, with operators'
    marks and without, those that a person has approved, and, of the trainings requested at
    the times ``open_requests`` (Unix microseconds), which have not ended, every version and its parent, and the
    versions ``owed``. A version whose manifest cannot be read and a link stay too, for a person, and are not counted.
    Raises RegistryError.
    """
    current = registry.current(name)
    stay = {*owed, *(() if current is None else (current,))}
    uncounted = set()
    waiting: dict[bool, str] = {}
    for version in registry.versions(name):
        if registry.is_link(name, version):
            uncounted.add(version)
        try:
            manifest = registry.manifest(name, version)
        except (ArtifactError, RegistryError):
            uncounted.add(version)
            continue
        learning = manifest.learning
        if version == current and manifest.parent is not None:
            stay.add(manifest.parent)
        if manifest.waits_beside(current):
            waiting[learning is not None and learning.uses_marks] = version
        if counted(manifest):
            stay.add(version)
        if learning is not None and learning.requested_us in open_requests:
            stay |= {version, manifest.parent or version}
    return stay | {*waiting.values()} | uncounted, uncounted


def prune(
    registry: Registry,
    name: str,
    *,
    keep: int,
    owed: Collection[str],
    open_requests: Collection[int] = (),
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Remove all but the newest ``keep`` versions and the protected ones; return those removed, oldest first.

    ``owed`` are the versions that alerts still need for their attribution (``owed_versions``), read just before.
    A killed process leaves no half version. With ``dry_run`` nothing is removed. Raises RegistryError, OutputError.
    """
    if keep < 1:
        raise RegistryError(f"{keep} versions cannot be kept: keep 1 at least")
    if not registry.versions(name):
        return ()
    with registry.pruning(name):
        stay, uncounted = _protected(registry, name, open_requests, owed)
        counted = [version for version in registry.versions(name) if version not in uncounted]
        old = tuple(version for version in counted[:-keep] if version not in stay)
        if dry_run:
            return old
        removed = tuple(version for version in old if registry.remove(name, version))
        registry.clear(name)
        return removed
