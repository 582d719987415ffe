"""Which models a plant has, as config, registry and inlier store say together."""

from __future__ import annotations

import re
from collections.abc import Collection

from streamad.judge.routing import Router
from streamad.judge.scoring import ModelInService
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.storage import open_storage
from streamad.plant import Plant
from streamad.plugins import make_detector
from streamad.ports import Detector
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import Settings

_NAME = re.compile(NAME_PATTERN)


def known_models(plant: Plant, stored: Collection[str]) -> tuple[str, ...]:
    """Return the models that the config names, that have versions, or that are among ``stored``; theirs first.

    Raises RegistryError.
    """
    settings = plant.settings
    names = dict.fromkeys(Router.of(settings).known_names())
    if settings.models is not None:
        there = {*registry_of(plant).names(), *stored}
        names |= dict.fromkeys(name for name in sorted(there) if _is_of(settings, name))
    return tuple(names)


def stored_names(plant: Plant) -> set[str]:
    """Return the models that have anything in the inlier store, of whatever plant. Raises StoreError."""
    learning = plant.settings.learning
    if learning is None:
        return set()
    return {name.partition("/")[0] for name in open_storage(learning.store, plant.base_dir).names()}


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


def registry_of(plant: Plant) -> Registry:
    """Return the registry of the config."""
    return Registry(plant.base_dir / plant.settings.model.registry)


def detector_for(plant: Plant) -> Detector:
    """Make the detector of the config. Raises PluginError, ConfigError."""
    return make_detector(plant.settings.model.detector, plant.settings.model.options)


def versions_of(plant: Plant, name: str | None = None) -> RegistryVersions:
    """Return the versions of a model of the config (None: ``model.name``). Raises PluginError, ConfigError."""
    return RegistryVersions(registry_of(plant), name or plant.settings.model.name, plant.settings, detector_for(plant))


def store_for(plant: Plant, name: str | None = None) -> InlierStore:
    """Return the inlier store of a model of a config with ``learning`` (None: ``model.name``), not open yet.

    Raises StoreError for a URL that cannot be.
    """
    settings = plant.settings
    assert settings.learning is not None
    return InlierStore(
        settings.learning.store,
        name or settings.model.name,
        channels=settings.channel_specs,
        window=settings.window,
        settings=settings.learning,
        clock=plant.clock,
        base_dir=plant.base_dir,
    )


def model_in_service(plant: Plant, version: str | None = None) -> ModelInService:
    """Load and verify the model that judges. Raises NoModelError, RegistryError, ArtifactError."""
    return versions_of(plant).load(version)
