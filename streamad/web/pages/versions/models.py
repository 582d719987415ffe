"""The page Models: which version judges and why, how it came about, trainings, and what a person may do about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from streamad.errors import StreamadError
from streamad.language import gettext, moment
from streamad.learn.promotion.review import waiting_version
from streamad.learn.registry.approvals import approved, counted, digest_of, identity_of
from streamad.learn.registry.manifest import UNCOMPARED, WAITS, Approval, Manifest
from streamad.learn.registry.registry import CurrentError
from streamad.outputs.stored import some_models
from streamad.outputs.versions.figures import figure_rows
from streamad.outputs.versions.training import trainings_of
from streamad.web.access import Level, Person
from streamad.web.pages.versions.trained import Trained, trained
from streamad.web.rendering import count, rendered, when
from streamad.web.site import Site

_MOST_OPEN = 10  # versions with a form and a comparison: older ones are in the table
_MOST_TOLD = 4  # versions with all their figures: that in service, then the newest


class Candidate(NamedTuple):
    """A version where two people approve each: who has, and whether ``person`` may.

    ``digest`` is that of the content that the page shows. ``may_approve``: ``person`` has not approved it.
    """

    version: str
    digest: str
    given: tuple[Approval, ...]
    is_approved: bool
    may_approve: bool


class Comparison(NamedTuple):
    """Champion against challenger, as the decision on a version has it."""

    version: str
    caption: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of one model, the newest first, its trainings in words, and what may be done with them."""

    name: str
    current: str | None
    manifests: tuple[Manifest, ...]
    problems: tuple[str, ...]
    waiting: Manifest | None
    trainings: Mapping[str, str]
    trained: tuple[Trained, ...]

    @property
    def lineage(self) -> str | None:
        """Return from which versions the one in service descends, the first one first; None if it has no parent."""
        parents = {each.version: each.parent for each in self.manifests}
        line: list[str] = []
        version = self.current
        while version is not None and version not in line:
            line.append(version)
            version = parents.get(version)
        if len(line) < 2:
            return None
        gone = gettext("gone")
        before = ", ".join(v if v in parents else f"{v} ({gone})" for v in line[1:])
        return gettext("%(version)s descends from %(before)s.", version=line[0], before=before)

    @property
    def rows(self) -> list[tuple[str | Markup, ...]]:
        """Return the cells of each version."""
        return [
            (
                " ".join((each.version, "● " + gettext("in service") if each.version == self.current else "○")),
                when(each.created_at, "minute"),
                each.parent or "",
                count(each.metrics.n_training, "sequence"),
                count(each.metrics.n_calibration, "score"),
                _decision(each),
            )
            for each in self.manifests
        ]

    @property
    def comparisons(self) -> list[Comparison]:
        """Return the comparisons of the newest versions that have one."""
        return [found for each in self.manifests[:_MOST_OPEN] if (found := _compared(each)) is not None]

    @property
    def others(self) -> list[str]:
        """Return the newest versions that are not in service."""
        return [each.version for each in self.manifests[:_MOST_OPEN] if each.version != self.current]

    def candidates(self, person: Person) -> list[Candidate]:
        """Return the newest versions, with who has approved them."""
        return [_candidate(each, self.current, person) for each in self.manifests[:_MOST_OPEN]]

    @property
    def parent(self) -> str | None:
        """Return the version to return to; None if there is none."""
        versions = {each.version: each.parent for each in self.manifests}
        parent = versions.get(self.current or "")
        return parent if parent in versions else None

    @property
    def is_parent_approved(self) -> bool:
        """Return whether two people have approved the version to return to."""
        return any(each.version == self.parent and approved(each) is not None for each in self.manifests)


def models(site: Site, person: Person, said: str, acted_on: str) -> Markup:
    """Return the content: each model's versions with their decisions, and the forms if ``person`` may act.

    ``said`` is a code of what was just done about the model ``acted_on``; any other text is not shown.
    """
    found = [_versions(site, name) for name in some_models(site.plant, None) or [site.plant.settings.model.name]]
    allowed = site.plant.settings.web.allow == "models"
    may_act = allowed and person.level >= Level.ENGINEER
    why_not = gettext(
        "Putting versions into service, rolling back and relearning are off (web.allow: models), because they run the "
        "code of a model."
    )
    if allowed and not may_act:
        why_not = gettext("Putting versions into service, rolling back and relearning need the level engineer.")
    done = _done(found, said, acted_on, learns=site.learns)
    by_two = site.plant.settings.needs_approvals
    candidates = {one.name: one.candidates(person) for one in found} if by_two else {}
    to_promote = {
        one.name: [each.version for each in candidates[one.name] if each.is_approved and each.version != one.current]
        if by_two
        else one.others
        for one in found
    }
    given = {"by_two": by_two, "candidates": candidates, "to_promote": to_promote}
    return rendered(
        "models.html", models=found, may_act=may_act, learns=site.learns, why_not=why_not, done=done, **given
    )


def _candidate(manifest: Manifest, current: str | None, person: Person) -> Candidate:
    given = counted(manifest)
    by_person = {identity_of(each.by) for each in given if each.beside == current}
    may = person.identity != "program" and identity_of(person.name) not in by_person
    return Candidate(manifest.version, digest_of(manifest), given, approved(manifest) is not None, may)


def _versions(site: Site, name: str) -> Versions:
    registry = site.registry
    manifests: list[Manifest] = []
    problems = []
    current: str | None = None
    waiting: Manifest | None = None
    trainings: dict[str, str] = {}
    try:
        try:
            current = registry.current(name)
        except CurrentError as error:
            problems.append(str(error))
        for version in reversed(registry.versions(name)):
            try:
                manifests.append(registry.manifest(name, version))
            except StreamadError as error:
                problems.append(str(error))
        waiting = waiting_version(registry, name, current)
        if site.learns:
            trainings = trainings_of(site.plant, name)
    except StreamadError as error:
        problems.append(str(error))
    wanted = sorted(manifests, key=lambda each: each.version != current)[:_MOST_TOLD]
    told = tuple(trained(site, each) for each in wanted)
    return Versions(name, current, tuple(manifests), tuple(problems), waiting, trainings, told)


def _done(found: Sequence[Versions], said: str, acted_on: str, *, learns: bool) -> str | None:
    """Return what was done about a model, as the registry has it now; None if nothing was."""
    if acted_on not in {one.name for one in found}:
        return None
    current = next((one.current for one in found if one.name == acted_on), None) or ""
    loaded = gettext("running monitors load it within 2 s")
    if not learns:
        loaded = gettext("running monitors load it at their next start")
    return {
        "in_service": gettext(
            "Model %(model)s %(version)s is now in service; %(loaded)s.", model=acted_on, version=current, loaded=loaded
        ),
        "approved": gettext("The approval of a version of %(model)s is kept.", model=acted_on),
        "declined": gettext("The version of %(model)s is declined: the same marks make no other one.", model=acted_on),
        "asked": gettext("The training of %(model)s is asked for; the learner takes it on.", model=acted_on),
    }.get(said)


def overdue_text(newest: Manifest, schedule: str) -> str:
    """Return that no training has made a version although the ``schedule`` came twice."""
    return gettext(
        "its newest version, %(version)s, was made on %(time)s, and retraining is scheduled (%(schedule)s): the page "
        "Models says what became of the last training",
        version=newest.version, time=moment(newest.created_at, "minute"), schedule=schedule,
    )  # fmt: skip


def _decision(manifest: Manifest) -> str:
    """Return what became of a version, and why."""
    decision = manifest.decision
    if decision is None:
        return "" if manifest.learning is None else manifest.learning.reason
    why = gettext(decision.reason) if decision.reason in {UNCOMPARED, WAITS} else decision.reason
    return gettext("declined by a person; %(why)s", why=why) if decision.declined else why


def _compared(manifest: Manifest) -> Comparison | None:
    """Return champion against challenger, as the decision on the version has it; None without figures."""
    decision = manifest.decision
    if decision is None:
        return None
    versions = {"challenger": manifest.version}
    if decision.champion is not None:
        versions = {"champion": decision.champion} | versions
    rows = figure_rows(decision.figures, tuple(versions))
    if not rows:
        return None
    against = decision.champion
    pair = (
        manifest.version
        if against is None
        else gettext("%(one)s against %(other)s", one=manifest.version, other=against)
    )
    caption = gettext("%(versions)s: false alarms and injected faults found", versions=pair)
    heads = ("", *(f"{version} ({who})" for who, version in versions.items()))
    return Comparison(manifest.version, caption, heads, rows)
