"""Versions that wait for a person: they use operators' marks, so no training promotes them by itself."""

from __future__ import annotations

from collections.abc import Iterator

from streamad.errors import ArtifactError, RegistryError
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.registry import Registry


def waiting_version(registry: Registry, model: str, current: str | None) -> Manifest | None:
    """Return the newest version that waits for review beside ``current``, the version in service; None if none does.

    A version that was compared with another champion waits no longer. Raises RegistryError.
    """
    for manifest in _newest_first(registry, model):
        if manifest.waits_beside(current):
            return manifest
    return None


def was_declined(registry: Registry, model: str, feedback: tuple[str, ...]) -> bool:
    """Return whether a person has declined a version that the false alarms ``feedback`` (ids) have changed.

    Raises RegistryError.
    """
    for manifest in _newest_first(registry, model):
        record, decision = manifest.learning, manifest.decision
        if record is not None and decision is not None and decision.declined and record.feedback == feedback:
            return True
    return False


def _newest_first(registry: Registry, model: str) -> Iterator[Manifest]:
    """Yield the manifests that can be read."""
    for version in reversed(registry.versions(model)):
        try:
            yield registry.manifest(model, version)
        except (ArtifactError, RegistryError):
            continue
