"""What runs: the workers, what they have open, and the readings so far of one open sequence. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np

from streamad.messages import ModelRef, OpenSequence, Running, WorkerStatus
from streamad.pictures.content import Course, NormalCourse
from streamad.pictures.html import Html, element
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import to_us
from streamad.web import charts
from streamad.web.pages.layout import rows_table, stream_link, when
from streamad.web.pages.span import duration
from streamad.web.rendering import count
from streamad.web.workers import Worker

MOST_CHANNELS = 24
_MOST_OPEN = 40
_WORKERS = ("worker", "state", "started (UTC)", "reads", "waiting", "records", "verdicts", "latency p99", "owed")


def section(workers: Sequence[Worker], still_open: Sequence[OpenSequence], number: int, *, is_kept: bool) -> list[Html]:
    """Return the section Running of the page Now, if the plant keeps a status. ``number``: of the workers' state."""
    mark = element("div", data_status=str(number), data_every="5000")
    if not is_kept:
        return []
    parts = [mark, element("h2", "Running")]
    if not workers:
        return [*parts, element("p", "No worker has written a status yet (sinks.status).")]
    if not any(each.is_live for each in workers):
        parts.append(element("p", "No worker runs. Those heard last:"))
    parts.append(rows_table("Workers", _WORKERS, [_row(each) for each in workers]))
    if still_open:
        n_open = sum(each.status.n_open for each in workers if each.is_live)
        parts.append(_open(still_open[:_MOST_OPEN], n_open))
    return parts


def silence(workers: Sequence[Worker]) -> list[tuple[str, str]]:
    """Return the banner's lines about workers that should write and do not."""
    lines = []
    for each in workers:
        if each.is_silent:
            lines.append(
                (
                    f"{each.status.instance} is silent",
                    f"its last status is {duration(each.silent_s)} old: it was killed, or its machine or the way to it "
                    "is down. Look at its log, and start it again: it goes on where it stopped.",
                )
            )
    return lines[:5]


def _row(worker: Worker) -> tuple[str, ...]:
    status = worker.status
    if status.stopped:
        state = element("span", "○ ended", class_="decision")
    elif worker.is_silent:
        state = element("span", f"▲ silent for {duration(worker.silent_s)}", class_="decision anomalous")
    else:
        state = element("span", "● running", class_="decision")
    latency = "" if status.latency_p99_ms is None else f"{status.latency_p99_ms:.3g} ms"
    owed = [(status.waiting_verdicts, "verdict"), (status.waiting_attributions, "attribution")]
    return (
        status.instance,
        state,
        when(to_us(status.started_at)),
        count(status.partitions, "partition"),
        "" if status.lag is None else count(status.lag, "record"),
        f"{status.records:,}",
        f"{sum(status.verdicts.values()):,}, {count(status.alerts, 'alert')}",
        latency,
        ", ".join(count(n, name) for n, name in owed if n) or "nothing",
    )


def _open(found: Sequence[OpenSequence], n_open: int) -> Html:
    rows = [
        (running_link(one), stream_link(one.stream), when(to_us(one.start_time)), f"{one.n_samples:,}") for one in found
    ]
    heads = ("sequence", "stream", "began (UTC)", "samples so far")
    listed = rows_table("Open sequences, the newest first", heads, rows)
    more = f", {len(rows)} of them listed" if n_open > len(rows) else ""
    summary = element("summary", f"{count(n_open, 'open sequence')}{more}")
    return element("details", summary, listed, data_fold="open")


def running_link(one: OpenSequence) -> Html:
    """Return a link to the readings so far of an open sequence."""
    return element("a", one.sequence, href=f"/running?name={quote(one.stream, safe='')}")


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

    A point is a sample, or a step of the grid (``window.resample``). Where longer sequences are squeezed into the
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


def running(
    stream: str, found: tuple[Running, WorkerStatus] | None, values: np.ndarray | None, usual: Usual | str, number: int,
    *, is_written: bool,
) -> list[Html]:  # fmt: skip
    """Return the content. ``values`` float32 [C, m] of ``found``; ``usual`` is the band, or why there is none."""
    parts = [
        element("div", data_status=str(number), data_every="1000"),
        element("p", stream_link(stream), class_="path"),
        element("h1", f"{stream}: running"),
    ]
    if found is None or values is None:
        why = "No worker tells of an open sequence of this stream. The page fills by itself when one begins."
        if not is_written:
            why = (
                "The readings of open sequences are not written: set display.open: true and sinks.status, and restart "
                "the workers."
            )
        return [*parts, element("p", why, class_="missing")]
    message, status = found
    so_far = f"{message.sequence}: {count(message.n_samples, 'sample')} so far, began "
    parts.append(element("p", so_far, when(to_us(message.start_time)), f", worker {status.instance}."))
    parts.append(element("p", "Nothing is judged before its end."))
    at = np.array(message.seconds, np.float64)
    for number_, (name, unit) in enumerate(
        zip(message.channels[:MOST_CHANNELS], message.units[:MOST_CHANNELS], strict=False)
    ):
        course = values[number_].astype(np.float64)
        band = (usual.at, usual.courses[number_]) if isinstance(usual, Usual) else None
        head = element("h3", f"{name} ", element("small", unit))
        readings = _readings(name, unit, at, course)
        table = element("details", element("summary", "Show as table"), readings, data_fold=f"table {name}")
        picture = charts.unfinished(f"{name} {unit}".strip(), at, course, band)
        parts.append(element("figure", head, picture, table, class_="channel"))
    n_more = len(message.channels) - MOST_CHANNELS
    if n_more > 0:
        parts.append(element("p", f"{count(n_more, 'more channel')} not drawn.", class_="soft"))
    if isinstance(usual, Usual):
        said = (
            "Dark line: the readings so far. Band: 5 to 95 % of the normal training sequences at the same time since "
        )
        parts.append(element("p", f"{said}their start, pale: their extremes. {usual.note}".strip(), class_="soft"))
    else:
        parts.append(element("p", f"No normal band: {usual}", class_="missing"))
    if message.n_samples > len(at):
        parts.append(element("p", f"{len(at)} of {message.n_samples} samples are drawn.", class_="soft"))
    return parts


def _readings(name: str, unit: str, at: Course, course: Course) -> Html:
    rows = [(f"{x:.4g}", f"{y:.4g}") for x, y in zip(at, course, strict=True) if np.isfinite(y)]
    return rows_table(f"{name} so far", ("s since the start", unit or "value"), rows, "narrow")
