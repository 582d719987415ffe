"""A person's approval of a version; the second one, of another person, puts it into service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamad.decisions.recording import Actor
from streamad.errors import UsageError
from streamad.learn.parts import registry_of
from streamad.learn.registry.approvals import approved, checked_words, digest_of
from streamad.learn.registry.manifest import Approval, Manifest
from streamad.outputs.versions.service import Served, put_into_service
from streamad.plant import Plant
from streamad.types import from_us


class Seen(NamedTuple):
    """What a person saw who approves a version: the digest of its content, and the version in service."""

    digest: str
    beside: str | None


@dataclass(frozen=True, slots=True)
class Approved:
    """What an approval did: the version and its approvals, and, if it was the second one, that it serves now."""

    manifest: Manifest
    served: Served | None

    @property
    def words(self) -> str:
        """Return for people what was done and what is missing."""
        model = f"model {self.manifest.name} {self.manifest.version}"
        last = self.manifest.approvals[-1]
        if self.served is not None:
            return f"{self.served.words}; approved by {self.manifest.approvals[-2].by} and {last.by}"
        if approved(self.manifest) is not None:
            return f"{model}, which is in service, is approved by {self.manifest.approvals[-2].by} and {last.by}"
        return f"{model} is approved by {last.by}; a second person puts it into service with the same command"


def approve(plant: Plant, name: str, version: str, *, by: Actor, why: str, seen: Seen | None = None) -> Approved:
    """Keep that ``by`` approves a version; with the approvals of two people put it into service.

    ``seen`` is what the person saw (None: what is there now). A kill between the two writes leaves an approved version,
    which ``models promote`` puts into service. Raises UsageError if the config needs no approvals, the person has
    approved it already, or it or the version in service is not what was seen, and what ``put_into_service`` raises.
    """
    if not plant.settings.needs_approvals:
        way = "streamad models promote"
        raise UsageError(f"neither learning.promote: person nor model.locked is set, so nothing needs approvals: {way}")
    who, why = checked_words(by.who, why)
    if by.identity == "program":
        raise UsageError(f"{who} is a program: a person has to approve a version")
    registry = registry_of(plant)
    before = registry.current_or_none(name)
    if seen is not None and seen.beside != before:
        found, was = before or "nothing", seen.beside or "nothing"
        raise UsageError(f"{found} is in service now, and {was} when you looked: nothing is approved; look at it again")
    approval = Approval(
        by=who,
        why=why,
        at=from_us(plant.clock.now_us()),
        digest=digest_of(registry.manifest(name, version)) if seen is None else seen.digest,
        authenticated=by.identity == "authenticated",
        beside=before,
    )
    manifest = registry.approve(name, version, approval, by=by)
    if approved(manifest) is None or version == before:
        return Approved(manifest, None)
    return Approved(manifest, put_into_service(plant, name, version, before, repairs=True, by=by, reason=why))
