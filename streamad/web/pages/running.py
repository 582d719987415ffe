"""What runs: the workers, what they have open, and the readings so far of one open sequence. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from streamad.messages import ModelRef, OpenSequence, Running, WorkerStatus, unpacked_curve
from streamad.pictures.content import Course, NormalCourse
from streamad.settings.plant_yaml import WindowSettings
from streamad.web.charts import curves
from streamad.web.rendering import duration, rendered
from streamad.web.site import Site
from streamad.web.workers import Worker

MOST_CHANNELS = 24
_MOST_OPEN = 40
_USUAL = 30


def section(workers: Sequence[Worker], still_open: Sequence[OpenSequence], number: int) -> Markup:
    """Return the section Running of the page Now. ``number``: of the workers' state."""
    n_open = sum(each.status.n_open for each in workers if each.is_live)
    return rendered("workers.html", workers=workers, still_open=still_open[:_MOST_OPEN], n_open=n_open, number=number)


def silence(workers: Sequence[Worker]) -> list[tuple[str, str]]:
    """Return the banner's lines about workers that should write and do not."""
    lines = []
    for each in workers:
        if each.is_silent:
            why = (
                f"its last status is {duration(each.silent_s)} old: it was killed, or its machine or the way to it "
                "is down. Look at its log, and start it again: it goes on where it stopped."
            )
            lines.append((f"{each.status.instance} is silent", why))
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
        return "several models are in service, and no message of the sequence has said yet which of them will judge it"
    named = next((each for each in status.models if each.name == message.model), None)
    return f"the model {message.model}, which will judge it, is not in service yet" if named is None else named


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
        return "the sequence has too few samples to tell how fast they come"
    if window.longer != "resample":
        return step_s, ""
    if n_usual is None:
        return "no normal sequence of this stream was judged yet, so its usual length is not known"
    if n_usual <= window.length:
        return step_s, ""
    squeezed = (n_usual - 1) / (window.length - 1)
    return step_s * squeezed, "Sequences are longer than the window: the band has the usual length of this stream."


@dataclass(frozen=True, slots=True)
class _Channel:
    """What the page shows of a channel: its readings as a picture, and as rows of a table."""

    name: str
    unit: str
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
    if found is None or values is None:
        is_written = settings.display.open and settings.sinks.status is not None
        return rendered("running.html", stream=stream, number=number, open=None, is_written=is_written)
    message, status = found
    usual = _usual(site, message, status)
    return rendered(
        "running.html",
        stream=stream,
        number=number,
        open=message,
        worker=status.instance,
        channels=_channels(message, values, usual),
        n_more=len(message.channels) - MOST_CHANNELS,
        band_missing=usual if isinstance(usual, str) else None,
        band_note="" if isinstance(usual, str) else usual.note,
        n_drawn=len(message.seconds),
    )


def _usual(site: Site, message: Running, status: WorkerStatus) -> Usual | str:
    """Return the band of the model in service on the clock of an open sequence, or why there is none."""
    if not status.models:
        return "there is no model yet"
    model = model_of(message, status)
    if isinstance(model, str):
        return model
    normal = site.cases.normals.of_model(model, site.rate)
    if normal.envelope is None:
        return normal.missing or "the model has none"
    if list(normal.channels) != message.channels:
        return "the model has other channels"
    size = site.view.usual_size(message.stream, _USUAL)
    placed = clock_of(message, site.plant.settings.window, size)
    if isinstance(placed, str):
        return placed
    band = normal.envelope.clock_band()
    courses = tuple(NormalCourse.of(band, index) for index in range(len(message.channels)))
    step_s, note = placed
    return Usual(np.arange(band.low.shape[1], dtype=np.float64) * step_s, courses, note)


def _channels(message: Running, values: np.ndarray, usual: Usual | str) -> list[_Channel]:
    at = np.array(message.seconds, np.float64)
    channels = []
    for number, (name, unit) in enumerate(
        zip(message.channels[:MOST_CHANNELS], message.units[:MOST_CHANNELS], strict=False)
    ):
        course = values[number].astype(np.float64)
        band = None if isinstance(usual, str) else (usual.at, usual.courses[number])
        picture = curves.unfinished(f"{name} {unit}".strip(), at, course, band)
        rows = [(f"{x:.4g}", f"{y:.4g}") for x, y in zip(at, course, strict=True) if np.isfinite(y)]
        channels.append(_Channel(name, unit, picture, rows))
    return channels
