"""The models that judge recordings: each is loaded once, in the version that a run began with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from streamad.errors import StreamadError
from streamad.judge.scoring import ModelInService
from streamad.learn.parts import known_models, registry_of, versions_of
from streamad.learn.registry.approvals import digest_of
from streamad.messages import ModelRef
from streamad.plant import Plant


class Models:
    """The models of a plant by name. ``versions`` names those to load; of other models it is the one in service.

    ``on_loaded`` is called with each model once.
    """

    def __init__(
        self,
        plant: Plant,
        versions: Mapping[str, str],
        on_loaded: Callable[[ModelInService], None] | None = None,
    ) -> None:
        self._plant = plant
        self._versions = versions
        self._on_loaded = on_loaded
        self._found: dict[str, ModelInService | StreamadError] = {}

    def get(self, name: str) -> ModelInService:
        """Return the model ``name``. Raises StreamadError if it cannot be used."""
        if name not in self._found:
            try:
                model = versions_of(self._plant, name).load(self._versions.get(name))
                if self._on_loaded is not None:
                    self._on_loaded(model)
                self._found[name] = model
            except StreamadError as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, StreamadError):
            raise found
        return found

    def ref_of(self, name: str | None) -> ModelRef | None:
        """Return the version of the model ``name``, None if there is none or it is unusable."""
        try:
            return None if name is None else self.get(name).ref
        except StreamadError:
            return None


def versions_in_service(plant: Plant) -> dict[str, str]:
    """Return the version in service of each model of the plant that has one. Raises RegistryError."""
    registry = registry_of(plant)
    found = {name: registry.current_or_none(name) for name in known_models(plant, ())}
    return {name: version for name, version in found.items() if version is not None}


def digest_in_registry(plant: Plant, name: str, version: str | None) -> str:
    """Return the digest of a version, "" if there is none or its manifest cannot be read."""
    if version is None:
        return ""
    try:
        return digest_of(registry_of(plant).manifest(name, version))
    except StreamadError:
        return ""


ANY = ""
"""Stands for every model of the plant: a sequence had none, and may have one once there are others."""


def digest_of_all(versions: Mapping[str, str]) -> str:
    """Return a digest of which models there are."""
    return hashlib.sha256(msgspec.json.encode(sorted(versions.items()))).hexdigest()
