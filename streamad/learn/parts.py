"""The models of a plant, by config, registry and inlier store, and the parts that each of them needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from streamad.decisions.recording import DecisionLog
from streamad.errors import ConfigError, PluginError, Problem
from streamad.judge.bank import Router
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry, registry_at
from streamad.learn.store.bounds import bounds_of
from streamad.learn.store.database import models_in
from streamad.learn.store.inliers import InlierStore
from streamad.plant import Plant
from streamad.plugins import check_known, load, make_detector
from streamad.ports import Detector
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.learning import Effort, ModelSettings
from streamad.settings.places import is_stored
from streamad.settings.plant_yaml import Settings

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
    """Return the models with sequences or marks in the inlier store, of any plant. Raises StoreError."""
    return set() if plant.settings.learning is None else models_in(store_path(plant))


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
    model = plant.settings.model
    place = model.registry if is_stored(model.registry) else plant.base_dir / model.registry
    needs_approvals = plant.settings.needs_approvals
    cache, log = plant.base_dir / model.cache, DecisionLog(plant)
    return registry_at(place, cache, needs_approvals=needs_approvals, log=log)


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
        raise ConfigError([_of_default_detector(problem, model.detector) for problem in error.problems]) from error


def _of_default_detector(problem: Problem, kind: str) -> Problem:
    unknown, semicolon, near = problem.message.partition(";")
    if not unknown.startswith("unknown key"):
        return problem
    hint = f" of the default detector, {kind}: name the kind that it belongs to in model.detector"
    return Problem(problem.path, f"{unknown}{hint}{semicolon}{near}")


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


def versions_of(plant: Plant, name: str | None = None, *, measured: bool = False) -> RegistryVersions:
    """Return the versions of a model of the config (None: ``model.name``). Raises PluginError, ConfigError."""
    chosen = name or plant.settings.model.name
    return RegistryVersions(registry_of(plant), chosen, plant.settings, detector_for(plant), measured)


def store_for(plant: Plant, name: str | None = None) -> InlierStore:
    """Return the unopened inlier store of a model (None: ``model.name``)."""
    settings = plant.settings
    assert settings.learning is not None
    return InlierStore(
        store_path(plant),
        name or settings.model.name,
        channels=settings.channel_specs,
        window=settings.window,
        bounds=bounds_of(settings.learning),
        clock=plant.clock,
    )


def store_path(plant: Plant) -> Path:
    """Return the file of the inlier store, on the learner's machine; the learner's other files lie beside it."""
    assert plant.settings.learning is not None
    return plant.base_dir / plant.settings.learning.store / "inliers.sqlite3"
