"""Which models a plant has, as config, registry and inlier store say together."""

from __future__ import annotations

__all__ = ["known_models", "may_be_added", "stored_names"]

import re
from collections.abc import Collection
from pathlib import Path

from streamad.judge.routing import Router
from streamad.learn.store.storage import open_storage
from streamad.runtime.wiring import registry_of
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import Settings

_NAME = re.compile(NAME_PATTERN)


def known_models(settings: Settings, base_dir: Path, stored: Collection[str]) -> tuple[str, ...]:
    """Return the models that the config names, that have versions, or that are among ``stored``; theirs first.

    Raises RegistryError.
    """
    names = dict.fromkeys(Router.of(settings).known_names())
    if settings.models is not None:
        there = {*registry_of(settings, base_dir).names(), *stored}
        names |= dict.fromkeys(name for name in sorted(there) if _is_of(settings, name))
    return tuple(names)


def stored_names(settings: Settings, base_dir: Path) -> set[str]:
    """Return the models that have anything in the inlier store, of whatever plant. Raises StoreError."""
    if settings.learning is None:
        return set()
    return {name.partition("/")[0] for name in open_storage(settings.learning.store, base_dir).names()}


def may_be_added(settings: Settings, model: str, known: Collection[str]) -> bool:
    """Say whether ``model`` may come to the ``known`` ones: it is named after the plant's, and there is a place."""
    if not _is_of(settings, model):
        return False
    return settings.models is None or len({*known, settings.model.name}) <= settings.models.max_models


def _is_of(settings: Settings, name: str) -> bool:
    """Say whether ``name`` may be a model of this plant: registry and store may be shared with others."""
    own = settings.model.name
    is_value = settings.models is not None and name.startswith(f"{own}.")
    return (name == own or is_value) and _NAME.fullmatch(name) is not None
