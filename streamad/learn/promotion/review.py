"""Versions that wait for people: they use operators' marks, or the config leaves every version to two people."""

from __future__ import annotations

from collections.abc import Iterator

from streamad.errors import ArtifactError, RegistryError
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.registry import Registry


def waiting_version(registry: Registry, model: str, current: str | None) -> Manifest | None:
    """Return the newest version that waits for review beside ``current``, the version in service; None if none does.

    A version that was compared with another champion waits no longer. Raises RegistryError.
    """
    return next((each for each in _newest_first(registry, model) if each.waits_beside(current)), None)


def is_waiting_with(registry: Registry, model: str, current: str | None, feedback: tuple[str, ...]) -> bool:
    """Return whether a version that the false alarms ``feedback`` (ids) have changed waits beside ``current``.

    Raises RegistryError.
    """
    waiting = (each.learning for each in _newest_first(registry, model) if each.waits_beside(current))
    return any(each is not None and each.uses_marks and each.feedback == feedback for each in waiting)


def was_declined(registry: Registry, model: str, feedback: tuple[str, ...]) -> bool:
    """Return whether a person has declined a version that the false alarms ``feedback`` (ids) have changed.

    Raises RegistryError.
    """
    for manifest in _newest_first(registry, model):
        record, decision = manifest.learning, manifest.decision
        if record is None or decision is None or not record.uses_marks:
            continue
        if decision.declined and record.feedback == feedback:
            return True
    return False


def _newest_first(registry: Registry, model: str) -> Iterator[Manifest]:
    """Yield the manifests that can be read."""
    for version in reversed(registry.versions(model)):
        try:
            yield registry.manifest(model, version)
        except (ArtifactError, RegistryError):
            continue
