"""Reads an inlier store whole, as a training or a comparison sees it."""

from __future__ import annotations

__all__ = ["judges_of", "learned_since_us", "read_stored"]

from streamad.errors import ArtifactError, RegistryError
from streamad.learn.inliers import InlierStore
from streamad.learn.registry import Registry
from streamad.learn.selection import Stored


def read_stored(store: InlierStore, *, since_us: int | None, stored_before_us: int | None = None) -> Stored:
    """Return what ended since ``since_us`` and was stored before ``stored_before_us``. Raises StoreError."""
    accepted, reserve, aside = (
        store.read(share, since_us=since_us, stored_before_us=stored_before_us)
        for share in ("accepted", "reserve", "aside")
    )
    return Stored(accepted, reserve, aside, store.marks())


def learned_since_us(registry: Registry, model: str, version: str) -> int | None:
    """Return since when the plant is what ``version`` knows, None: always. Raises RegistryError, ArtifactError."""
    record = registry.manifest(model, version).learning
    return None if record is None else record.since_us


def judges_of(stored: Stored, registry: Registry, model: str, since_us: int | None) -> frozenset[str]:
    """Return the versions named in ``stored`` that know the plant as it is since ``since_us``: their decisions count.

    A version whose manifest is gone or damaged counts where the plant has never changed for good.
    """

    def knows(version: str) -> bool:
        try:
            return learned_since_us(registry, model, version) == since_us
        except (ArtifactError, RegistryError):
            return since_us is None

    named = {each.model_version for share in (stored.accepted, stored.reserve, stored.aside) for each in share}
    return frozenset(version for version in named if version is not None and knows(version))
