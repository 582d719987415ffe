"""The models of a plant, by config, registry and inlier store, and the parts that each of them needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from streamad.errors import ConfigError, Problem
from streamad.judge.routing import Router
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.storage import open_storage
from streamad.plant import Plant
from streamad.plugins import load, make_detector
from streamad.ports import Detector
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import ModelSettings, Settings

_NAME = re.compile(NAME_PATTERN)


def known_models(plant: Plant, stored: Collection[str]) -> tuple[str, ...]:
    """Return the models that the config names, then those with versions or among ``stored``. Raises RegistryError."""
    settings = plant.settings
    names = dict.fromkeys(Router.of(settings).known_names())
    if settings.models is not None:
        there = {*registry_of(plant).names(), *stored}
        names |= dict.fromkeys(name for name in sorted(there) if _is_of(settings, name))
    return tuple(names)


def stored_names(plant: Plant) -> set[str]:
    """Return the models with a file in the inlier store, of any plant. Raises StoreError."""
    learning = plant.settings.learning
    if learning is None:
        return set()
    return {name.partition("/")[0] for name in open_storage(learning.store, plant.base_dir).names()}


def may_be_added(settings: Settings, model: str, known: Collection[str]) -> bool:
    """Return whether ``model`` may join the ``known`` ones: its name is of this plant and ``max_models`` allows it."""
    if not _is_of(settings, model):
        return False
    return settings.models is None or len({*known, settings.model.name}) <= settings.models.max_models


def _is_of(settings: Settings, name: str) -> bool:
    """Return whether ``name`` may be a model of this plant: plants may share registry and store."""
    own = settings.model.name
    is_value = settings.models is not None and name.startswith(f"{own}.")
    return (name == own or is_value) and _NAME.fullmatch(name) is not None


def registry_of(plant: Plant) -> Registry:
    """Return the registry of the config."""
    return Registry(plant.base_dir / plant.settings.model.registry)


def detector_for(plant: Plant) -> Detector:
    """Make the detector of the config. Raises PluginError, ConfigError."""
    model = plant.settings.model
    limit = _time_limit(model)
    try:
        return make_detector(model.detector, {**model.options, **limit})
    except ConfigError as error:
        if "detector" in model.model_fields_set:
            raise
        hint = f"of the default detector, {model.detector}: name the kind that it belongs to in model.detector"
        raise ConfigError([Problem(each.path, f"{each.message} {hint}") for each in error.problems]) from error


def _time_limit(model: ModelSettings) -> Mapping[str, Any]:
    """Return ``model.time_limit`` as the option of the detector. Raises ConfigError for a kind without that option."""
    if model.time_limit is None:
        return {}
    if "time_limit_s" not in load("detectors", model.detector).options_model.model_fields:
        text = f"detector {model.detector} has no limit of training time (ensemble trains in seconds): remove the key"
        raise ConfigError([Problem("model.time_limit", text)])
    if "time_limit_s" in model.options:
        raise ConfigError([Problem("model.time_limit", "model.options.time_limit_s says the same: remove one of them")])
    return {"time_limit_s": model.time_limit / 1e6}


def versions_of(plant: Plant, name: str | None = None) -> RegistryVersions:
    """Return the versions of a model of the config (None: ``model.name``). Raises PluginError, ConfigError."""
    return RegistryVersions(registry_of(plant), name or plant.settings.model.name, plant.settings, detector_for(plant))


def store_for(plant: Plant, name: str | None = None) -> InlierStore:
    """Return the unopened inlier store of a model (None: ``model.name``). Raises StoreError for an invalid URL."""
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
