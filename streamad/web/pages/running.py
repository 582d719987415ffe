"""What runs: the workers, what they have open, what looks have found, and the readings so far of
one open sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from streamad.language import gettext
from streamad.messages import Looked, ModelRef, OpenSequence, Running, WorkerStatus, unpacked_curve
from streamad.pictures.content import Course, NormalCourse
from streamad.pictures.warned import warned_finding
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import to_us
from streamad.web.charts import curves, looks
from streamad.web.pages.departures import Departure, departure_of
from streamad.web.pages.warned import reasons_of
from streamad.web.rendering import digits, duration, rendered
from streamad.web.site import Site
from streamad.web.store.view import SeenWarning
from streamad.web.workers import Worker

MOST_CHANNELS = 24
_MOST_OPEN = 40
_MOST_COMPARED = 100  # with the band: each takes a millisecond or two
_USUAL = 30
_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Outside:
    """The channels of an open sequence that lie outside the band now, the furthest first, as names with their sign.

    ``said``: the first in words; ``size`` is its, in half widths of the band.
    """

    names: tuple[str, ...] = ()
    said: str = ""
    size: float = 0.0

    @property
    def n_more(self) -> int:
        """Return how many more there are than can be named."""
        return max(0, len(self.names) - _NAMED)

    @property
    def others(self) -> tuple[str, ...]:
        """Return those behind the first that can be named."""
        return self.names[1:_NAMED]


@dataclass(frozen=True, slots=True)
class _Row:
    """An open sequence: its looks as a line, the channels that lie outside the band now, its warning."""

    one: OpenSequence
    line: Markup | None
    outside: _Outside | None
    warning: SeenWarning | None

    @property
    def is_warned(self) -> bool:
        """Return whether it was warned of; of others a channel lies outside the band now and then."""
        return self.warning is not None or (self.one.looked is not None and bool(self.one.looked.warning_id))


def section(site: Site, workers: Sequence[Worker], still_open: Sequence[OpenSequence], number: int) -> Markup:
    """Return the section Running of the page Now. ``number``: of the workers' state."""
    looked = [one for one in still_open if one.looked is not None][:_MOST_OPEN]
    n_open = sum(each.status.n_open for each in workers if each.is_live)
    newest = [one for one in still_open if one.looked is None][:_MOST_COMPARED]
    others = [_row(site, one) for one in newest]
    others.sort(
        key=lambda each: 0.0 if each.outside is None else -each.outside.size
    )  # equals: those that began last first
    return rendered(
        "workers.html",
        workers=workers,
        looked=[_row(site, one) for one in looked],
        others=others[:_MOST_OPEN],
        n_others=n_open - len(looked),
        number=number,
    )


def _row(site: Site, one: OpenSequence) -> _Row:
    if one.looked is None:
        return _Row(one, None, _outside(site, one), None)
    warning = site.view.warning_of(one.stream, one.sequence, to_us(one.start_time))
    return _Row(one, looks.small_line(one.looked), _outside(site, one), warning)


def _outside(site: Site, one: OpenSequence) -> _Outside | None:
    """Return which channels lie outside the band now; None if it is not known."""
    found = site.workers.running(one.stream)
    if found is None or found[0].sequence != one.sequence:
        return None
    message, status = found
    usual = _usual(site, message, status)
    if isinstance(usual, str):
        return None
    try:
        departures = _departures(message, unpacked_curve(message), usual)
    except ValueError:
        return None
    now = sorted(((name, each) for name, each in departures.items() if each.is_now), key=lambda one: -one[1].size)
    if not now:
        return _Outside()
    furthest, departure = now[0]
    names = tuple(f"{each.said[:1]} {name}" for name, each in now)
    return _Outside(names, f"{furthest} {departure.said}", departure.size)


def _departures(message: Running, values: np.ndarray, usual: Usual) -> dict[str, Departure]:
    """Return how channels have left the band, by name; those that have not are left out."""
    at = np.array(message.seconds, np.float64)
    found = {}
    for number, (name, unit) in enumerate(zip(message.channels, message.units, strict=False)):
        departure = departure_of(at, values[number].astype(np.float64), (usual.at, usual.courses[number]), unit)
        if departure is not None:
            found[name] = departure
    return found


def silence(workers: Sequence[Worker]) -> list[tuple[str, str]]:
    """Return the banner's lines about workers that should write and do not."""
    lines = []
    for each in workers:
        if each.is_silent:
            why = gettext(
                "its last status is %(time)s old: it was killed, or its machine or the way to it is down. Look at its "
                "log, and start it again: it goes on where it stopped.",
                time=duration(each.silent_s),
            )
            lines.append((gettext("%(worker)s is silent", worker=each.status.instance), why))
    return lines[:5]


@dataclass(frozen=True, slots=True, eq=False)
class Usual:
    """The band of normal sequences of each channel, at the seconds ``at`` [m] since their start; ``note``: about it."""

    at: Course
    courses: tuple[NormalCourse, ...]
    note: str


def model_of(message: Running, status: WorkerStatus) -> ModelRef | str:
    """Return the version in service of the model that will judge an open sequence, or why it is not known."""
    if message.model is None:
        if len(status.models) == 1:
            return status.models[0]
        return gettext(
            "several models are in service, and no message of the sequence has said yet which of them will judge it"
        )
    named = next((each for each in status.models if each.name == message.model), None)
    if named is None:
        return gettext("the model %(name)s, which will judge it, is not in service yet", name=message.model)
    return named


def clock_of(message: Running, window: WindowSettings, usual: tuple[float, float] | None) -> tuple[float, str] | str:
    """Return the seconds between two points of the band and a note about them, or why there are none.

    A point is a sample, or a step of the grid (``window.resample``). If longer sequences are squeezed into the
    window, the ``usual`` number of samples and of seconds says by how much.
    """
    n, last_s = message.n_samples, message.seconds[-1] if message.seconds else 0.0
    if window.resample is not None:
        step_s = window.resample.period / 1e6
        n_usual = None if usual is None else usual[1] / step_s + 1
    elif n > 1 and last_s > 0:
        step_s, n_usual = last_s / (n - 1), None if usual is None else usual[0]
    else:
        return gettext("the sequence has too few samples to tell how fast they come")
    if window.longer != "resample":
        return step_s, ""
    if n_usual is None:
        return gettext("no normal sequence of this stream was judged yet, so its usual length is not known")
    if n_usual <= window.length:
        return step_s, ""
    squeezed = (n_usual - 1) / (window.length - 1)
    note = gettext("Sequences are longer than the window: the band has the usual length of this stream.")
    return step_s * squeezed, note


@dataclass(frozen=True, slots=True)
class _Channel:
    """What the page shows of a channel: its readings as a picture, and as rows of a table."""

    name: str
    unit: str
    left: str
    picture: Markup
    readings: list[tuple[str, str]]


def running(site: Site, stream: str) -> Markup:
    """Return the content of the page of what runs in one stream."""
    number = site.workers.number
    settings = site.plant.settings
    found, values = site.workers.running(stream), None
    if found is not None:
        with suppress(ValueError):
            values = unpacked_curve(found[0])
    ours = [one for one in site.workers.open() if one.stream == stream]
    if found is None or values is None:
        is_written = settings.display.open and settings.sinks.status is not None
        looked = _looked(site, next((one for one in ours if one.looked is not None), None))
        return rendered("running.html", stream=stream, number=number, open=None, looked=looked, is_written=is_written)
    message, status = found
    usual = _usual(site, message, status)
    return rendered(
        "running.html",
        stream=stream,
        number=number,
        open=message,
        looked=_looked(site, next((one for one in ours if one.sequence == message.sequence), None)),
        worker=status.instance,
        channels=_channels(message, values, usual),
        n_more=len(message.channels) - MOST_CHANNELS,
        band_missing=usual if isinstance(usual, str) else None,
        band_note="" if isinstance(usual, str) else usual.note,
        n_drawn=len(message.seconds),
    )


@dataclass(frozen=True, slots=True)
class _Looked:
    """What looks have found at an open sequence, in words and as a line; the limit of its p-value; its warning."""

    one: OpenSequence
    found: Looked
    rate: float | None
    line: Markup
    warning: SeenWarning | None
    said: str


def _looked(site: Site, one: OpenSequence | None) -> _Looked | None:
    if one is None or one.looked is None:
        return None
    early = site.plant.settings.alerts.early
    warning = site.view.warning_of(one.stream, one.sequence, to_us(one.start_time))
    said = "" if warning is None else warned_finding(warning.message, reasons_of(site, warning))
    rate = None if early is None else early.false_alarm_rate
    return _Looked(one, one.looked, rate, looks.large_line(one.looked), warning, said)


def _usual(site: Site, message: Running, status: WorkerStatus) -> Usual | str:
    """Return the band of the model in service on the clock of an open sequence, or why there is none."""
    if not status.models:
        return gettext("there is no model yet")
    model = model_of(message, status)
    if isinstance(model, str):
        return model
    normal = site.cases.normals.of_model(model, site.rate)
    if normal.envelope is None:
        return normal.missing or gettext("the model has none")
    if list(normal.channels) != message.channels:
        return gettext("the model has other channels")
    size = site.view.usual_size(message.stream, _USUAL)
    placed = clock_of(message, site.plant.settings.window, size)
    if isinstance(placed, str):
        return placed
    band = normal.envelope.clock_band()
    courses = tuple(NormalCourse.of(band, index) for index in range(len(message.channels)))
    step_s, note = placed
    return Usual(np.arange(band.low.shape[1], dtype=np.float64) * step_s, courses, note)


def _channels(message: Running, values: np.ndarray, usual: Usual | str) -> list[_Channel]:
    """Return the channels, those first that lie outside the band now, then those that have left it for a while."""
    at = np.array(message.seconds, np.float64)
    departures = {} if isinstance(usual, str) else _departures(message, values, usual)

    def rank(number: int) -> tuple[bool, float, int]:
        departure = departures.get(message.channels[number])
        is_now = departure is not None and departure.is_now
        return not is_now, 0.0 if departure is None else -departure.size, number

    channels = []
    for number in sorted(range(len(message.channels)), key=rank)[:MOST_CHANNELS]:
        name, unit = message.channels[number], message.units[number]
        course = values[number].astype(np.float64)
        band = None if isinstance(usual, str) else (usual.at, usual.courses[number])
        picture = curves.unfinished(f"{name} {unit}".strip(), at, course, band)
        rows = [(digits(x, 4), digits(y, 4)) for x, y in zip(at, course, strict=True) if np.isfinite(y)]
        left = departures[name].said if name in departures else ""
        channels.append(_Channel(name, unit, left, picture, rows))
    return channels
