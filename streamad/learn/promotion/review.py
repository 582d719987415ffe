"""Versions that wait for a person: they use operators' marks, so no training promotes them by itself."""

from __future__ import annotations

from streamad.errors import ArtifactError, RegistryError
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.registry import Registry


def waiting_version(registry: Registry, model: str, current: str | None) -> Manifest | None:
    """Return the newest version that waits for review beside ``current``, the version in service; None if none does.

    A version that was compared with another champion waits no longer. Raises RegistryError.
    """
    for version in reversed(registry.versions(model)):
        if version == current:
            return None
        try:
            manifest = registry.manifest(model, version)
        except (ArtifactError, RegistryError):
            continue
        decision = manifest.decision
        if decision is not None and decision.waits_for_review and decision.champion == current:
            return manifest
    return None
