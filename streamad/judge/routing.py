"""Chooses the model of a sequence by its route, as ``models`` in the config says. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamad.ingest.windowing import Unscorable
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.learning import RoutingSettings
from streamad.settings.plant_yaml import Settings

_NAME = re.compile(NAME_PATTERN)
_LONGEST = 64
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Router:
    """``model`` is the default model, ``routing`` the config's ``models``; without it ``model`` is the only one."""

    model: str
    routing: RoutingSettings | None

    @classmethod
    def of(cls, settings: Settings) -> Router:
        """Return the router of a config."""
        return cls(settings.model.name, settings.models)

    def name_for(self, routes: tuple[str, ...]) -> str | Unscorable:
        """Return the name of the model for a sequence with these routes, or why it has none.

        The name is ``model`` or ``model.value``, which are distinct: a value is not empty and begins with no dot.
        """
        routing = self.routing
        if routing is None:
            return self.model
        if len(routes) > 1:
            return Unscorable(f"two values of {routing.field}: {_shown(routes[0])} and {_shown(routes[1])}")
        if not routes:
            missing = Unscorable(f"no {routing.field} in its messages (models.missing is unscorable)")
            return self.model if routing.missing == "default" else missing
        (value,) = routes
        if value in routing.values or routing.unknown == "own":
            return self._own(value, routing)
        if routing.unknown == "default":
            return self.model
        return Unscorable(f"{routing.field} {_shown(value)} is not among models.values (models.unknown is unscorable)")

    def known_names(self) -> tuple[str, ...]:
        """Return the models that the config names: the only one, or those of ``models.values``."""
        if self.routing is None:
            return (self.model,)
        return tuple(f"{self.model}.{value}" for value in self.routing.values)

    def _own(self, value: str, routing: RoutingSettings) -> str | Unscorable:
        name = f"{self.model}.{value}"
        if _NAME.fullmatch(value) and _NAME.fullmatch(name):
            return name
        return Unscorable(
            f"{routing.field} {_shown(value)} cannot name a model: letters, digits, '.', '_' and '-' can, with no dot "
            f"first and at most {_LONGEST - len(self.model) - 1} of them"
        )


def settings_for(settings: Settings, model: str) -> Settings:
    """Return ``settings`` with ``model`` as the name of the model."""
    return settings.model_copy(update={"model": settings.model.model_copy(update={"name": model})})


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
