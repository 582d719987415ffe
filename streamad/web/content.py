"""What the pages show: the view, the registry's versions and the plant's config, joined for one request."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np
from markupsafe import Markup

from streamad.errors import StreamadError
from streamad.judge.calibration import Calibration
from streamad.judge.explanations.envelope import Clock
from streamad.learn.parts import registry_of
from streamad.learn.promotion.review import waiting_version
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.registry import CurrentError
from streamad.messages import (
    Running,
    WorkerStatus,
    unpacked_curve,
)
from streamad.outputs.stored import some_models
from streamad.outputs.versions.training import trainings_of
from streamad.pictures.content import NormalCourse
from streamad.pictures.drawing import drawn, has_plots
from streamad.plant import Plant
from streamad.web.access import Level
from streamad.web.attention import INBOX, LANES, Attention
from streamad.web.cases import Cases
from streamad.web.pages.compare import MOST_COMPARED, Compared, compare, distance
from streamad.web.pages.events import EventMark, event_marks
from streamad.web.pages.layout import Frame
from streamad.web.pages.models import Versions, models
from streamad.web.pages.now import budget_text, now
from streamad.web.pages.running import Usual, clock_of, model_of, running, section, silence
from streamad.web.pages.sequence import sequence
from streamad.web.pages.stream import stream
from streamad.web.pages.trust import Achieved, calibration
from streamad.web.rendering import rendered
from streamad.web.store.view import Place, SeenSequence, View
from streamad.web.workers import Workers

_BUDGET = 200
_STREAM_EVENTS = 5_000
_NORMALS, _TO_BEGIN = 40, 20
_STREAMS = 500
_P_VALUES = 2_000
_PAGE = 120
_USUAL = 30


class Content:
    """Joins what a page shows. ``troubles`` returns why roles are not read, by role."""

    def __init__(self, plant: Plant, view: View, troubles: Callable[[], Mapping[str, str]], workers: Workers) -> None:
        self._plant, self._view, self._troubles, self._workers = plant, view, troubles, workers
        self._registry = registry_of(plant)
        self._cases = Cases(plant, view)
        self._attention = Attention(plant, view, troubles, workers)

    def reading_troubles(self) -> dict[str, str]:
        """Return why roles are not read, by role."""
        return dict(self._troubles())

    # --- pages ---

    def now(self) -> Markup:
        """Return the content of the page Now, which is the same for everybody."""
        view, now_us = self._view, self._plant.clock.now_us()
        latest = self._attention.latest(now_us)
        since_us = min((one.start_us or 0 for one in latest), default=0)
        number = self._workers.number  # before what it is the number of
        workers, still_open = self._workers.seen(), self._workers.open()
        is_kept = self._plant.settings.sinks.status is not None
        return now(
            latest=latest,
            inbox=self._attention.inbox(now_us),
            events=self._attention.events(now_us, 0 if not latest else min(since_us, view.begun_us)),
            troubles=[*silence(workers), *self._attention.banner(latest, now_us)],
            budget=self._budget(latest[:_BUDGET]),
            still_open=still_open,
            now_us=now_us,
            running=section(workers, still_open, number) if is_kept else None,
            most=INBOX,
        )

    def running(self, frame: Frame, name: str) -> Markup:
        """Return the content of the page of what runs in one stream."""
        number = self._workers.number
        found, values = self._workers.running(name), None
        usual: Usual | str = ""
        if found is not None:
            with suppress(ValueError):
                values = unpacked_curve(found[0])
            usual = self._usual(*found)
        settings = self._plant.settings
        is_written = settings.display.open and settings.sinks.status is not None
        return running(name, found, values, usual, number, is_written=is_written)

    def _usual(self, message: Running, status: WorkerStatus) -> Usual | str:
        """Return the band of the model in service on the clock of an open sequence, or why there is none."""
        if not status.models:
            return "there is no model yet"
        model = model_of(message, status)
        if isinstance(model, str):
            return model
        normal = self._cases.normals.of_model(model, self._plant.settings.alerts.false_alarm_rate)
        if normal.envelope is None:
            return normal.missing or "the model has none"
        if list(normal.channels) != message.channels:
            return "the model has other channels"
        size = self._view.usual_size(message.stream, _USUAL)
        placed = clock_of(message, self._plant.settings.window, size)
        if isinstance(placed, str):
            return placed
        band = normal.envelope.clock_band()
        courses = tuple(NormalCourse.of(band, index) for index in range(len(message.channels)))
        step_s, note = placed
        return Usual(np.arange(band.low.shape[1], dtype=np.float64) * step_s, courses, note)

    def _budget(self, latest: Sequence[SeenSequence]) -> str:
        judged = [one for one in latest if one.p_value is not None]
        rate = self._plant.settings.alerts.false_alarm_rate
        n_calibration = None
        if judged and judged[0].model and judged[0].version:
            with suppress(StreamadError):
                manifest = self._registry.manifest(judged[0].model, judged[0].version)
                n_calibration = manifest.metrics.n_calibration
        return budget_text(len(judged), sum(one.is_alert for one in judged), rate, n_calibration)

    def streams(self, frame: Frame) -> Markup:
        """Return the content of the page of all streams."""
        rows = []
        names = self._view.streams(_STREAMS + 1)
        for name in names[:_STREAMS]:
            last = self._view.of_stream(name, 1)
            rows.append((name, next(iter(last), None), self._view.n_alerts(name, 50)))
        return rendered("streams.html", rows=rows, are_all=len(names) <= _STREAMS)

    def stream(self, frame: Frame, name: str, behind: Place | None) -> Markup:
        """Return the content of the page of one stream."""
        found = self._view.of_stream(name, _PAGE + 1, behind=behind)
        rows = found[:_PAGE]
        limits = {}
        for key in {(one.model, one.version) for one in rows if one.model and one.version}:
            if (limit := self._alerts_from(*key)) is not None:
                limits[key] = limit
        older = Place.behind(rows[-1]) if len(found) > _PAGE else None
        moments = self._view.moments([one.id for one in rows])
        channels = self._plant.settings.channel_specs
        events = self._events_of(name, rows, is_newest=behind is None)
        return stream(name, rows, limits, moments, channels, events=events, older=older)

    def _events_of(self, name: str, rows: Sequence[SeenSequence], *, is_newest: bool) -> list[EventMark]:
        """Return the marks of the time in which ``rows``, the newest first, were judged; of the newest: until now."""
        judged_us = [one.created_us or one.end_us or 0 for one in rows]
        if not judged_us:
            return []
        models = {one.model for one in rows}
        found = self._view.events(_STREAM_EVENTS, since_us=min(judged_us))
        return event_marks(
            one
            for one in found
            if one.stream in (None, name)
            and (one.model is None or one.model in models)
            and (is_newest or one.created_us <= max(judged_us))
        )

    def _alerts_from(self, model: str, version: str) -> float | None:
        rate = self._plant.settings.alerts.false_alarm_rate
        with suppress(StreamadError):
            return Calibration.from_terms(self._registry.calibration_terms(model, version), rate).alert_score(rate)
        return None

    def compare(self, frame: Frame, ids: Sequence[str]) -> Markup:
        """Return the content of the page that lays sequences over each other."""
        found = []
        for name in dict.fromkeys(ids):
            one = self._view.sequence(name)
            if one is not None:
                case, normal = self._cases.of(one)
                found.append(Compared(one, case.picture(normal), case.courses))
        if not found:
            return compare(found, [one for one in self._view.inbox(_PAGE) if one.has_window][:_TO_BEGIN])
        others = self._view.of_stream(found[0].one.stream, _PAGE)
        nearest = None if len(found) >= MOST_COMPARED else self._nearest(found, others)
        return compare(found, others, nearest)

    def _nearest(self, found: Sequence[Compared], others: Sequence[SeenSequence]) -> SeenSequence | None:
        """Return of the latest normal sequences with a window the one nearest to the first of ``found``."""
        first, ids = found[0].courses, {each.one.id for each in found}
        if first is None:
            return None
        for place in (others, self._view.latest(LANES)):
            normals = [one for one in place if one.decision == "normal" and not one.is_alert and one.has_window]
            apart = {
                one.id: distance(first, courses)
                for one in normals[:_NORMALS]
                if one.id not in ids and (courses := self._cases.of(one)[0].courses) is not None
            }
            if apart and math.isfinite(apart[best := min(apart, key=lambda name: apart[name])]):
                return next(one for one in normals if one.id == best)
        return None

    def alerts(self, frame: Frame, unjudged: bool, behind: Place | None) -> Markup:
        """Return the content of the page of all alerts, a portion of it."""
        found = self._view.inbox(_PAGE + 1, behind=behind, unjudged=unjudged)
        rows = found[:_PAGE]
        older = Place.behind(rows[-1]) if len(found) > _PAGE else None
        return rendered("alerts.html", alerts=rows, unjudged=unjudged, behind=behind, older=older)

    def calibration(self, frame: Frame) -> Markup:
        """Return the content of the page Calibration."""
        rows = [one for one in self._view.latest(_P_VALUES) if one.p_value is not None]
        by_version: dict[tuple[str, str], list[SeenSequence]] = {}
        for one in rows:
            by_version.setdefault((one.model or "", one.version or ""), []).append(one)
        achieved = []
        for (model, version), ours in by_version.items():
            n_calibration = None
            with suppress(StreamadError):
                n_calibration = self._registry.manifest(model, version).metrics.n_calibration
            rate = next((one.rate for one in ours if one.rate is not None), None)
            configured = self._plant.settings.alerts.false_alarm_rate if rate is None else rate
            n_alerts = sum(one.is_alert for one in ours)
            achieved.append(Achieved(model, version, len(ours), n_alerts, configured, n_calibration))
        marks = Counter(one.judgement for one in self._view.inbox(_P_VALUES) if one.judgement is not None)
        return calibration([one.p_value for one in rows if one.p_value is not None], achieved, marks)

    def models(self, frame: Frame, said: str, model: str) -> Markup:
        """Return the content of the page Models."""
        found = []
        for name in some_models(self._plant, None) or [self._plant.settings.model.name]:
            found.append(self._versions(name))
        allowed = self._plant.settings.web.allow == "models"
        may_act = allowed and frame.person.level >= Level.ENGINEER
        what = "Putting versions into service, rolling back and relearning"
        why = f"{what} are off (web.allow: models), because they run the code of a model."
        if allowed and not may_act:
            why = f"{what} need the level engineer."
        learns = self._plant.settings.learning is not None
        return models(found, may_act=may_act, learns=learns, why_not=why, said=said, acted_on=model)

    def _versions(self, name: str) -> Versions:
        manifests: list[Manifest] = []
        problems = []
        current = waiting = None
        trainings: dict[str, str] = {}
        try:
            try:
                current = self._registry.current(name)
            except CurrentError as error:
                problems.append(str(error))
            for version in reversed(self._registry.versions(name)):
                try:
                    manifests.append(self._registry.manifest(name, version))
                except StreamadError as error:
                    problems.append(str(error))
            found = waiting_version(self._registry, name, current)
            waiting = None if found is None else found.version
            if self._plant.settings.learning is not None:
                trainings = trainings_of(self._plant, name)
        except StreamadError as error:
            problems.append(str(error))
        return Versions(name, current, tuple(manifests), tuple(problems), waiting, trainings)

    def sequence(self, frame: Frame, one: SeenSequence, said: str, clock: Clock | None) -> Markup:
        """Return the content of the page of one sequence, the normal band on ``clock``."""
        case, normal = self._cases.of(one)
        alike: list[SeenSequence] = []
        if case.attribution is not None and case.attribution.channels:
            alike = self._view.alike(one, case.attribution.channels[0].channel, 8)
        why_not = None
        if not frame.may_judge:
            why_not = "You may look; judging needs the level operator."
        elif self._plant.settings.learning is None:
            why_not = "This plant does not learn, so there is no place for marks: set a section learning with feedback."
        return sequence(
            one, case, normal,
            alike=alike, neighbours=self._view.neighbours(one), why_not_judged=why_not, said=said,
            clock=clock, learning=self._plant.settings.learning, is_drawn=has_plots(),
        )  # fmt: skip

    def png(self, one: SeenSequence, clock: Clock | None) -> bytes | None:
        """Return the picture of a sequence as PNG; None without a window. Raises PluginError without matplotlib."""
        case, normal = self._cases.of(one)
        picture = case.picture(normal, clock)
        return None if picture is None else drawn(picture)

    def csv(self, one: SeenSequence) -> str | None:
        """Return the judged window as CSV, a row for each point; None if it was not kept."""
        case, _ = self._cases.of(one)
        if case.courses is None:
            return None
        courses = case.courses
        points = np.arange(courses.values.shape[1]) * courses.step
        seconds = points * (case.facts.span_s * courses.shown / max(1, courses.length - 1))
        text = io.StringIO()
        names = [f"{channel.name} [{channel.unit}]" if channel.unit else channel.name for channel in courses.channels]
        text.write(",".join(["seconds", *(_cell(name) for name in names)]) + "\r\n")
        for at, row in zip(seconds, courses.values.T, strict=True):
            text.write(",".join([f"{at:.6g}", *(f"{value:.7g}" for value in row)]) + "\r\n")
        return text.getvalue()


def _cell(text: str) -> str:
    """Return a cell of CSV that no spreadsheet takes for a formula."""
    safe = f"'{text}" if text[:1] in "=+-@\t\r" else text
    return '"' + safe.replace('"', '""') + '"' if any(mark in safe for mark in ',"\r\n') else safe
