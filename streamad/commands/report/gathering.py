"""Gathers what a report shows from a plant's outputs, registry and store: all messages made in a span of time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappush, heappushpop
from typing import TypeVar

from streamad.errors import StreamadError
from streamad.ingest.windowing import Unscorable
from streamad.learn.parts import registry_of
from streamad.learn.registry.manifest import Manifest
from streamad.messages import (
    Alert,
    Attribution,
    EarlyWarning,
    Event,
    Feedback,
    Message,
    ModelRef,
    Role,
    Verdict,
    Window,
)
from streamad.outputs.cases import Normals
from streamad.outputs.reader import Skipped
from streamad.outputs.reading import is_there, place_of, present
from streamad.outputs.stored import known_models, open_store, stored_models
from streamad.pictures.content import scores_of
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.ranges import Span
from streamad.types import from_us

MOST_ALERTS = 500
MOST_EVENTS = MOST_WARNINGS = 100
_JUDGED = ("normal", "anomalous")
K = TypeVar("K", Alert, Verdict, Event)
Begun = tuple[str, str, datetime]
"""Stream, name and start of a sequence: its warning has them, and its verdict."""
M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Judged:
    """The verdicts of one version: how many sequences it judged, and how many of these raised an alert."""

    n: int = 0
    n_alerts: int = 0


@dataclass(slots=True)
class Version:
    """A version of a model; ``problem`` says why its manifest cannot be read."""

    model: ModelRef
    is_in_service: bool
    manifest: Manifest | None = None
    problem: str | None = None


@dataclass(slots=True)
class Gathered:
    """The figures of a report; ``notes`` say what could not be read, and what to do.

    ``alerts`` are the latest ones, the newest first, of ``n_alerts``, ``warnings`` of ``n_warnings``; ``foremost`` are
    those of them that lie farthest above their threshold, with ``times``: how many times it; ``marks`` are the
    latest mark of each id. ``warned`` counts the judged sequences that were warned of, by decision. ``warning_of`` has
    the warnings of sequences that alert, ``judged_as`` the verdicts of sequences that were warned of.
    """

    since: datetime
    until: datetime
    decisions: Counter[str] = field(default_factory=Counter)
    judged: dict[ModelRef, Judged] = field(default_factory=dict)
    unscorable: Counter[str] = field(default_factory=Counter)
    alerts: list[Alert] = field(default_factory=list)
    n_alerts: int = 0
    foremost: list[Alert] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    warnings: list[EarlyWarning] = field(default_factory=list)
    n_warnings: int = 0
    warned: Counter[str] = field(default_factory=Counter)
    warning_of: dict[Begun, EarlyWarning] = field(default_factory=dict)
    judged_as: dict[str, Verdict] = field(default_factory=dict)
    rates: Counter[float] = field(default_factory=Counter)
    attributions: dict[str, Attribution] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    versions: list[Version] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def has_warnings(self) -> bool:
        """Return whether there is a warning to tell of."""
        return bool(self.n_warnings or self.warning_of or self.warned.total())

    def covers(self, at: datetime) -> bool:
        """Return whether a time lies in the span."""
        return self.since <= at < self.until


async def gather(plant: Plant, normals: Normals, span: Span, most_pictures: int) -> Gathered:
    """Return all that was said in ``span``, by the time at which it was said. Raises SourceError.

    ``normals`` tell the thresholds; at most ``most_pictures`` alerts are foremost.
    """
    now_us = plant.clock.now_us()
    found = Gathered(from_us(span.since_us or 0), from_us(now_us if span.until_us is None else span.until_us))
    await _alerts(plant, found)
    _rank(normals, found, most_pictures)
    await _warnings(plant, found)
    await _verdicts(plant, found)
    await _reasons(plant, found)
    await _windows(plant, found, {alert.alert_id for alert in found.foremost})
    await _events(plant, found)
    _models(plant, found)
    await _marks(plant, found)
    return found


async def _read(
    plant: Plant, found: Gathered, role: Role, kind: type[M], is_wanted: Callable[[str], bool] | None = None
) -> AsyncIterator[M]:
    """Yield the messages of ``kind``; note how many lines of the place are unreadable."""
    skipped = Skipped()
    async for message in present(plant, role, (kind,), is_wanted=is_wanted, on_unreadable=skipped.add):
        yield message
    if skipped.n:
        found.notes.append(f"of the {role} {skipped.text}")


async def _of_span(plant: Plant, found: Gathered, role: Role, kind: type[K]) -> AsyncIterator[K]:
    """Yield the messages of ``kind`` that were made in the span."""
    async for message in _read(plant, found, role, kind):
        if found.covers(message.created_at):
            yield message


def _can_read(plant: Plant, found: Gathered, role: Role, lacking: str) -> bool:
    """Return whether the sink of ``role`` is there; else note what the report lacks."""
    if place_of(plant, role) is None:
        found.notes.append(f"{lacking}: sinks.{role} is not set to a file or topic")
        return False
    if not is_there(plant, role):
        found.notes.append(f"{lacking}: {place_of(plant, role)} is not there yet")
        return False
    return True


async def _verdicts(plant: Plant, found: Gathered) -> None:
    if not _can_read(plant, found, "verdicts", "no rates, as there are no verdicts to count"):
        return
    listed = {warning.warning_id for warning in found.warnings}
    async for verdict in _read(plant, found, "verdicts", Verdict):
        if verdict.warning is not None and verdict.warning.warning_id in listed:
            found.judged_as[verdict.warning.warning_id] = verdict
        if not found.covers(verdict.created_at):
            continue
        found.decisions[verdict.decision] += 1
        found.warned[verdict.decision] += verdict.warning is not None
        if verdict.decision in _JUDGED and verdict.model is not None:
            of = found.judged.setdefault(verdict.model, Judged())
            of.n += 1
            of.n_alerts += verdict.decision == "anomalous"
        elif verdict.decision == "unscorable":
            found.unscorable[Unscorable(verdict.detail or "no reason is given").reason] += 1


async def _alerts(plant: Plant, found: Gathered) -> None:
    if not _can_read(plant, found, "alerts", "no alerts"):
        return
    latest: deque[Alert] = deque(maxlen=MOST_ALERTS)
    async for alert in _of_span(plant, found, "alerts", Alert):
        found.n_alerts += 1
        found.rates[alert.false_alarm_rate] += 1
        latest.append(alert)
    found.alerts = sorted(latest, key=lambda each: each.created_at)[::-1]


def _rank(normals: Normals, found: Gathered, most: int) -> None:
    for alert in found.alerts:
        facts = Facts.of(alert)
        scores = scores_of(facts, normals.of(facts).calibration)
        if scores is not None and scores.times is not None:
            found.times[alert.alert_id] = scores.times
    found.foremost = sorted(found.alerts, key=lambda each: -found.times.get(each.alert_id, 0.0))[:most]


async def _warnings(plant: Plant, found: Gathered) -> None:
    """Note the warnings of the span, and those of its alerts, which may lie before it."""
    has_own = plant.settings.sinks.warnings is not None
    if plant.settings.alerts.early is None and not has_own:
        return
    role: Role = "warnings" if has_own else "alerts"
    if not _can_read(plant, found, role, "no warnings"):
        return
    alerting = {(alert.stream, alert.sequence, alert.start_time) for alert in found.alerts}
    latest: deque[EarlyWarning] = deque(maxlen=MOST_WARNINGS)
    async for warning in _read(plant, found, role, EarlyWarning):
        if (begun := (warning.stream, warning.sequence, warning.start_time)) in alerting:
            found.warning_of[begun] = warning
        if found.covers(warning.created_at):
            found.n_warnings += 1
            latest.append(warning)
    found.warnings = sorted(latest, key=lambda each: each.created_at)[::-1]


async def _reasons(plant: Plant, found: Gathered) -> None:
    wanted = {alert.alert_id for alert in found.alerts} | {warning.warning_id for warning in found.warnings}
    if not wanted or not _can_read(plant, found, "attributions", "no reasons"):
        return
    async for message in _read(plant, found, "attributions", Attribution, wanted.__contains__):
        found.attributions[message.alert_id] = message


async def _windows(plant: Plant, found: Gathered, wanted: Collection[str]) -> None:
    if not wanted or not _can_read(plant, found, "windows", "no pictures, as no readings were kept"):
        return
    async for message in _read(plant, found, "windows", Window, wanted.__contains__):
        found.windows[message.verdict_id] = message


async def _events(plant: Plant, found: Gathered) -> None:
    if not _can_read(plant, found, "events", "no drift and no other events"):
        return
    latest: list[tuple[datetime, int, Event]] = []  # two places, one after the other: not in the order of time
    async for event in _of_span(plant, found, "events", Event):
        found.kinds[event.kind] += 1
        add = heappush if len(latest) < MOST_EVENTS else heappushpop
        add(latest, (event.created_at, found.kinds.total(), event))
    found.events = [event for _, _, event in sorted(latest, reverse=True)]


def _models(plant: Plant, found: Gathered) -> None:
    """Note the versions that are in service, judged, or were made in the span, the newest first."""
    registry = registry_of(plant)
    refs = dict.fromkeys(found.judged)
    try:
        names = known_models(plant)
    except StreamadError as error:
        found.notes.append(f"no versions of models: {error}")
        names = ()
    current: dict[str, str | None] = {}
    for name in names:
        try:
            current[name] = registry.current_or_none(name)
            refs |= dict.fromkeys(ModelRef(name, version) for version in registry.versions(name))
        except StreamadError as error:
            found.notes.append(str(error))
    for ref in refs:
        version = Version(ref, current.get(ref.name) == ref.version)
        try:
            version.manifest = registry.manifest(ref.name, ref.version)
        except StreamadError as error:
            version.problem = str(error)
        is_new = version.manifest is not None and found.since <= version.manifest.created_at < found.until
        if is_new or version.is_in_service or ref in found.judged:
            found.versions.append(version)
    found.versions.sort(key=lambda each: (each.model.name, len(each.model.version), each.model.version), reverse=True)


async def _marks(plant: Plant, found: Gathered) -> None:
    """Note the latest mark of each sequence that was made in the span, by their place or the stores."""
    latest: dict[str, tuple[datetime, str]] = {}

    def take(name: str, at: datetime, judgement: str) -> None:
        if name not in latest or latest[name][0] <= at:
            latest[name] = at, judgement

    try:
        async for message in _read(plant, found, "feedback", Feedback):
            take(message.alert_id, message.created_at, message.judgement)
        for model in stored_models(plant):
            for mark in open_store(plant, model).marks().values():
                take(mark.id, from_us(mark.at_us), mark.judgement)
    except StreamadError as error:
        found.notes.append(f"marks cannot be read: {error}")
    of_alerts = {alert.alert_id for alert in found.alerts}
    found.marks = {
        name: judgement
        for name, (at, judgement) in latest.items()
        if judgement != "withdrawn" and (name in of_alerts or found.since <= at < found.until)
    }
