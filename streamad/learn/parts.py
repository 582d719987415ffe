"""The models of a plant, by config, registry and inlier store, and the parts that each of them needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from streamad.errors import ConfigError, PluginError, Problem, StoreError
from streamad.judge.routing import Router
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry
from streamad.learn.store.database import InlierDatabase, models_in
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Inliers
from streamad.learn.store.storage import open_storage
from streamad.plant import Plant
from streamad.plugins import check_known, load, make_detector, split_url
from streamad.ports import Detector
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import Effort, ModelSettings, Settings

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
    if learning.process != "worker":
        return models_in(database_path(plant))
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


def detector_for(plant: Plant, *, effort: Effort | None = None) -> Detector:
    """Make the detector of the config; ``effort`` replaces the config's if the kind has one.

    Raises PluginError, ConfigError.
    """
    model = plant.settings.model
    options = {**model.options, **_training_options(model)}
    if effort is not None and effort_of(model) is not None:
        options["effort"] = effort
    try:
        return make_detector(model.detector, options)
    except ConfigError as error:
        if "detector" in model.model_fields_set:
            raise
        hint = f" of the default detector, {model.detector}: name the kind that it belongs to in model.detector"
        raise ConfigError(
            [
                Problem(each.path, each.message + hint * each.message.startswith("unknown key"))
                for each in error.problems
            ]
        ) from error


def check_references(model: ModelSettings) -> None:
    """Raise ConfigError for each of ``model.references`` that is no kind of detector that is installed."""
    problems = []
    for index, kind in enumerate(model.references):
        try:
            check_known("detectors", kind)
        except PluginError as error:
            problems.append(Problem(f"model.references.{index}", str(error)))
    if problems:
        raise ConfigError(problems)


def effort_of(model: ModelSettings) -> str | None:
    """Return the effort of a training, None of a kind that knows no more or less of it. Raises PluginError."""
    field = _option_fields(model).get("effort")
    if field is None:
        return None
    return model.effort or model.options.get("effort") or field.default


def _option_fields(model: ModelSettings) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = load("detectors", model.detector).options_model.model_fields
    return fields


def _training_options(model: ModelSettings) -> Mapping[str, Any]:
    """Return ``model.effort`` and ``model.time_limit`` as options. Raises ConfigError for a kind without the option."""
    limit_s = None if model.time_limit is None else model.time_limit / 1e6
    wanted = {"effort": ("effort", model.effort), "time_limit_s": ("time_limit", limit_s)}
    found = {}
    for option, (key, value) in wanted.items():
        if value is None:
            continue
        if option not in _option_fields(model):
            text = f"the detector {model.detector} has none: remove the key, or name another kind in model.detector"
            raise ConfigError([Problem(f"model.{key}", text)])
        if option in model.options:
            text = f"model.options.{option} says the same: remove one of them"
            raise ConfigError([Problem(f"model.{key}", text)])
        found[option] = value
    return found


def versions_of(plant: Plant, name: str | None = None) -> RegistryVersions:
    """Return the versions of a model of the config (None: ``model.name``). Raises PluginError, ConfigError."""
    return RegistryVersions(registry_of(plant), name or plant.settings.model.name, plant.settings, detector_for(plant))


def store_for(plant: Plant, name: str | None = None) -> Inliers:
    """Return the unopened inlier store of a model (None: ``model.name``). Raises StoreError for an invalid URL."""
    settings = plant.settings
    assert settings.learning is not None
    model = name or settings.model.name
    if settings.learning.process != "worker":
        return InlierDatabase(
            database_path(plant),
            model,
            channels=settings.channel_specs,
            window=settings.window,
            settings=settings.learning,
            clock=plant.clock,
        )
    return _shards(plant, model)


def _shards(plant: Plant, model: str) -> InlierStore:
    settings = plant.settings
    assert settings.learning is not None
    return InlierStore(
        settings.learning.store,
        model,
        channels=settings.channel_specs,
        window=settings.window,
        settings=settings.learning,
        clock=plant.clock,
        base_dir=plant.base_dir,
    )


def shards_of(plant: Plant) -> dict[str, InlierStore]:
    """Return the stores in shards that workers wrote to ``learning.store``, by model. Raises StoreError."""
    settings = plant.settings
    assert settings.learning is not None
    storage = open_storage(settings.learning.store, plant.base_dir)
    names = {name.partition("/")[0] for name in storage.names() if "/" in name}
    return {name: _shards(plant, name) for name in sorted(names) if _is_of(settings, name)}


def status_path(plant: Plant) -> Path | None:
    """Return the file in which a learner on this machine says how far it is, None if it runs elsewhere."""
    learning = plant.settings.learning
    return None if learning is None or learning.process != "here" else database_path(plant).with_name("learner.json")


def database_path(plant: Plant) -> Path:
    """Return the file of a learner's store. Raises StoreError if ``learning.store`` is no folder of this machine."""
    assert plant.settings.learning is not None
    scheme, path, _ = split_url(plant.settings.learning.store)
    if scheme != "file":
        raise StoreError(
            f"learning.store {plant.settings.learning.store}: with learning.process the store is a file of the "
            "learner's machine: name a folder there"
        )
    return plant.base_dir / path / "inliers.sqlite3"
