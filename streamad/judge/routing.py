"""Which model judges a sequence: the one named after its route, by the rules of ``models`` in the config. Pure."""

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
    """``model`` is the model for all others, ``routing`` the config's ``models``; without it there is but one."""

    model: str
    routing: RoutingSettings | None

    @classmethod
    def of(cls, settings: Settings) -> Router:
        """Return the router of a config."""
        return cls(settings.model.name, settings.models)

    def name_for(self, routes: tuple[str, ...]) -> str | Unscorable:
        """Return the name of the model for a sequence with these routes, or why it has none.

        The value that chose it is everything behind ``model`` and a dot: ``model.name`` and ``model.name.value`` can be
        told apart, because a value begins with no dot and is never empty.
        """
        routing = self.routing
        if routing is None:
            return self.model
        if len(routes) > 1:
            return Unscorable(f"two values of {routing.field}: {_shown(routes[0])} and {_shown(routes[1])}")
        if not routes:
            return self._name_of_missing(routing)
        (value,) = routes
        if value in routing.values or routing.unknown == "own":
            return self._own(value, routing)
        if routing.unknown == "default":
            return self.model
        return Unscorable(f"{routing.field} {_shown(value)} is not among models.values (models.unknown is unscorable)")

    def known_names(self) -> tuple[str, ...]:
        """Return the names of the models wanted for certain: the one for all, or those of ``models.values``."""
        if self.routing is None:
            return (self.model,)
        return tuple(f"{self.model}.{value}" for value in self.routing.values)

    def _name_of_missing(self, routing: RoutingSettings) -> str | Unscorable:
        if routing.missing == "default":
            return self.model
        return Unscorable(f"no {routing.field} in its messages (models.missing is unscorable)")

    def _own(self, value: str, routing: RoutingSettings) -> str | Unscorable:
        name = f"{self.model}.{value}"
        if _NAME.fullmatch(value) and _NAME.fullmatch(name):
            return name
        return Unscorable(
            f"{routing.field} {_shown(value)} cannot name a model: letters, digits, '.', '_' and '-' can, with no dot "
            f"first and at most {_LONGEST - len(self.model) - 1} of them"
        )


def settings_for(settings: Settings, model: str) -> Settings:
    """Return ``settings`` with ``model`` as the name of the model: those of one of several models."""
    return settings.model_copy(update={"model": settings.model.model_copy(update={"name": model})})


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
