"""The models that score in a run, and what explains their alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from streamad.judge.bank import Batchers, ModelBank
from streamad.judge.early.looking import Looking
from streamad.judge.explainer import Explainer
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.learn.parts import registry_of, versions_of
from streamad.learn.registry.backends import tell_backend
from streamad.learn.registry.hot_swap import RegistryVersions, emit_without_looks
from streamad.learn.registry.places.place import RegistryAwayError
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.telemetry.events import Emit
from streamad.telemetry.logs import get_logger


async def models_at_work(
    plant: Plant,
    *,
    versions: Mapping[str, str] | None = None,
    may_learn: bool = False,
    on_new: Callable[[str, MicroBatcher], None] | None = None,
    emit: Emit | None = None,
    measured: bool = True,
) -> Batchers:
    """Return the batchers that score: of the one model, or of several. ``on_new`` is called with each.

    ``versions`` names those to load by model; of other models it is the one in service. ``may_learn``: a model without
    a version begins with a cold start. ``emit`` gets the events of refused backends. ``measured``: see
    ``RegistryVersions``. Raises NoModelError, RegistryError, ArtifactError.
    """
    pinned = versions or {}
    settings, name = plant.settings, plant.settings.model.name
    away: dict[str, str] = {}

    def in_service(name: str, may_learn: bool) -> ModelInService | None:
        versions = versions_of(plant, name, measured=measured)
        return _in_service(plant, versions, pinned.get(name), may_learn=may_learn, away=away)

    def taken(name: str, batcher: MicroBatcher) -> None:
        if on_new is not None:
            on_new(name, batcher)
        if (text := away.pop(name, None)) is not None and batcher.model is not None:
            if emit is None:
                get_logger().warning("registry_away", reason=text)
            else:
                emit("registry_away", text, model=batcher.model.ref)
        if emit is not None and batcher.model is not None:
            tell_backend(batcher.model, emit)

    if settings.models is None:
        model = in_service(name, may_learn)
        batcher = MicroBatcher(model, plant.clock, settings.run, name=name)
        taken(name, batcher)
        return batcher
    bank = ModelBank(
        settings,
        plant.clock,
        lambda name: in_service(name, settings.learning is not None),
        taken,
        existing=[model for model in _known_names(plant) if model.startswith(f"{name}.")],
    )
    await bank.open()
    return bank


def explainer_for(plant: Plant) -> Explainer:
    """Return what explains the alerts of the plant, with scorers of its own by version."""
    return Explainer(plant.settings, plant.clock, partial(_version, plant))


def looking_for(plant: Plant, batchers: Batchers, explainer: Explainer | None, emit: Emit) -> Looking | None:
    """Return what looks at running sequences; None if the config wants no warnings of them.

    A version in service without looks is an event.
    """
    if plant.settings.alerts.early is None:
        return None
    for model in batchers.models:
        emit_without_looks(model, plant.settings, emit)
    load = partial(_version, plant)
    return Looking(plant.settings, batchers, plant.clock, load=load, explainer=explainer, emit=emit)


def _version(plant: Plant, ref: ModelRef) -> ModelInService:
    return versions_of(plant, ref.name).load(ref.version)


def _in_service(
    plant: Plant, versions: RegistryVersions, version: str | None, *, may_learn: bool, away: dict[str, str]
) -> ModelInService | None:
    """Return the version in service, None if there is none and ``may_learn``.

    While the store of the registry is away that is the last one which this machine has seen in service; ``away`` gets
    the text of the event that says so.
    """
    name = versions.name
    try:
        if may_learn and version is None and versions.current() is None:
            return None
        return versions.load(version)
    except RegistryAwayError as error:
        copies = versions.registry.copies
        last = None if copies is None or version is not None else copies.current_or_none(name)
        if copies is None or last is None or plant.settings.model.locked:  # the last one may be another than is wanted
            raise
        model = replace(versions, registry=copies).load()
        away[name] = f"{error}; {name} {last} judges, the version in service when this machine last read the registry"
        return model


def _known_names(plant: Plant) -> tuple[str, ...]:
    """Return the models that have versions; while the store is away, those of which this machine has copies."""
    registry = registry_of(plant)
    try:
        return registry.names()
    except RegistryAwayError:
        assert registry.copies is not None
        return registry.copies.names()
