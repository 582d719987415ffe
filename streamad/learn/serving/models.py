"""The models that score in a run, and what explains their alerts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from streamad.errors import UsageError
from streamad.judge.bank import Batchers, ModelBank
from streamad.judge.early.looking import Looking
from streamad.judge.explainer import Explainer
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.learn.parts import registry_of, versions_of
from streamad.learn.registry.backends import emit_refused
from streamad.learn.registry.hot_swap import emit_without_looks
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.telemetry.events import Emit


async def models_at_work(
    plant: Plant,
    *,
    version: str | None = None,
    may_learn: bool = False,
    on_new: Callable[[str, MicroBatcher], None] | None = None,
    emit: Emit | None = None,
) -> Batchers:
    """Return the batchers that score: of the one model, or of several. ``on_new`` is called with each.

    ``may_learn``: a model without a version begins with a cold start. ``emit`` gets the events of refused backends.
    Raises NoModelError, RegistryError, ArtifactError, UsageError.
    """
    settings, name = plant.settings, plant.settings.model.name

    def taken(name: str, batcher: MicroBatcher) -> None:
        if on_new is not None:
            on_new(name, batcher)
        if emit is not None and batcher.model is not None:
            emit_refused(batcher.model, emit)

    if settings.models is None:
        model = _in_service(plant, name, version, may_learn=may_learn)
        batcher = MicroBatcher(model, plant.clock, settings.run, name=name)
        taken(name, batcher)
        return batcher
    if version is not None:
        raise UsageError("--version names a version of one model, but the config routes to several (models:)")
    bank = ModelBank(
        settings,
        plant.clock,
        lambda name: _in_service(plant, name, may_learn=settings.learning is not None),
        taken,
        existing=[model for model in registry_of(plant).names() if model.startswith(f"{name}.")],
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
    plant: Plant, name: str, version: str | None = None, *, may_learn: bool = False
) -> ModelInService | None:
    versions = versions_of(plant, name)
    if may_learn and version is None and versions.current() is None:
        return None
    return versions.load(version)
