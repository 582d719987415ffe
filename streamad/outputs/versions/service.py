"""Puts a version into service, returns to an earlier one, or declines one: what a person decides about a version."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from streamad.decisions.recording import Actor
from streamad.errors import ArtifactError, UsageError
from streamad.learn.parts import registry_of
from streamad.learn.registry.registry import Registry
from streamad.plant import Plant


@dataclass(frozen=True, slots=True)
class Served:
    """A version that was put into service.

    ``loads``: how soon running monitors load it. ``silences``: which alerts it silenced when it was compared, "" if
    none.
    """

    model: str
    version: str
    before: str | None
    loads: str
    silences: str

    @property
    def words(self) -> str:
        """Return for people what is in service now."""
        was = f" (before: {self.before})" if self.before and self.before != self.version else ""
        return f"model {self.model} {self.version} is now in service{was}; {self.loads}"


def loads_text(plant: Plant) -> str:
    """Return how soon running monitors load a version that has come into service, for people."""
    if plant.settings.learning is None:
        return "running monitors load it at their next start (with a section learning: at once)"
    return "running monitors load it within 2 s"


def put_into_service(
    plant: Plant,
    name: str,
    version: str,
    before: str | None,
    *,
    repairs: bool = False,
    by: Actor | None = None,
    kind: str = "promote",
    reason: str = "",
) -> Served:
    """Put ``version`` into service in place of ``before``, after verifying its files; ``by`` whom, for what ``reason``.

    With ``repairs`` a damaged CURRENT counts as none. Raises OvertakenError if another version than ``before`` is in
    service, RegistryError, ArtifactError, OutputError.
    """
    registry = registry_of(plant)
    silences = _silences(registry, name, version)
    registry.promote(name, version, expected=before, repairs=repairs, by=by, kind=kind, reason=reason)
    return Served(name, version, before, loads_text(plant), silences)


def roll_back(
    plant: Plant, name: str, current: str, to: str | None = None, *, by: Actor | None = None, reason: str = ""
) -> Served:
    """Return from ``current``, the version in service, to ``to`` (None: its parent).

    If operators' false alarms had changed the version that leaves, it counts as declined. Raises UsageError if there is
    no parent, and what ``put_into_service`` raises.
    """
    registry = registry_of(plant)
    to = to or _parent(registry, name, current)
    served = put_into_service(plant, name, to, current, by=by, kind="rollback", reason=reason)
    with suppress(ArtifactError):  # a damaged version is left as it is
        registry.decline(name, current, by=by, reason=f"rolled back to {to}")
    return served


def decline(plant: Plant, name: str, version: str, *, by: Actor | None = None, reason: str = "") -> str:
    """Leave a version that waits for a review out of service; return what became of it, for people.

    Raises UsageError if it is in service or does not wait, RegistryError, ArtifactError, OutputError.
    """
    registry = registry_of(plant)
    if version == registry.current(name):
        raise UsageError(f"{version} is in service: streamad models rollback")
    if not registry.decline(name, version, by=by, reason=reason):
        raise UsageError(f"model {name} {version} does not wait for a review: there is nothing to decline")
    return f"model {name} {version} is declined: the same marks make no other version"


def _parent(registry: Registry, name: str, current: str) -> str:
    parent = registry.manifest(name, current).parent
    others = ", ".join(version for version in registry.versions(name) if version != current)
    way = f"name a version with --to (versions: {others})" if others else "there is no other version"
    if parent is None:
        raise UsageError(f"model {name} {current} replaced no other: {way}")
    if parent not in registry.versions(name):
        raise UsageError(f"{parent}, which {current} replaced, is gone: {way}")
    return parent


def _silences(registry: Registry, name: str, version: str) -> str:
    """Return which alerts a version that operators' marks have changed silenced when it was compared, "" if none."""
    decision = registry.manifest(name, version).decision
    if decision is None or not (decision.waits_for_review or decision.declined):
        return ""
    n, of = (decision.figures.get(f"silenced.{each}", 0) for each in ("alerts", "of_alerts"))
    confirmed = decision.figures.get("silenced.confirmed", 0)
    if not n:
        return ""
    return f"{version} silences {n:.0f} of {of:.0f} stored alerts, {confirmed:.0f} of them confirmed anomalies"
