"""The lines of Now as a picture: a lane for each stream, a bar for each sequence, events across all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from streamad.language import Form, gettext, ngettext
from streamad.messages import OpenSequence
from streamad.pictures.facts import cut
from streamad.pictures.ticks import time_ticks
from streamad.types import from_us, to_us
from streamad.web.charts.svg import link, rect, sign, svg, times_below, title, upright, words
from streamad.web.pages.events import event_marks
from streamad.web.pages.span import SKEW_US, span_of
from streamad.web.rendering import DECISIONS, count
from streamad.web.store.view import SeenEvent, SeenSequence

_LANE = 22
_MOST_LANES, _MOST_OPEN, _MOST_TIMES = 200, 400, 6
_NAME = 20
_LEAST = 0.15  # of a bar's width
_OPEN = 0.02
_HOUR_US, _TWO_DAYS_US = 3_600_000_000, 2 * 86_400_000_000


class Lanes(NamedTuple):
    """The picture, and what it leaves out, in sentences."""

    picture: Markup
    left_out: list[str]


class _Lines(NamedTuple):
    """What the lines show from ``first_us`` to ``last_us``: sequences, and open ones with their starts in us."""

    first_us: int
    last_us: int
    timed: list[SeenSequence]
    begun: list[tuple[OpenSequence, int]]
    n_before: int


def _lines(sequences: Sequence[SeenSequence], still_open: Sequence[OpenSequence], now_us: int) -> _Lines | None:
    """Return what is drawn; None if nothing has a time."""
    timed = [one for one in sequences if one.end_us is not None and one.start_us is not None]
    judged = {(one.stream, one.sequence, one.start_us) for one in timed}  # a status may be older than a verdict
    starts = ((one, to_us(one.start_time)) for one in still_open)
    begun = [(one, at) for one, at in starts if (one.stream, one.sequence, at) not in judged]
    span = span_of(timed)
    if span is None:
        begun = [(one, at) for one, at in begun if at <= now_us + SKEW_US]
        if not begun:
            return None
        first_us, last_us, n_before = min(at for _, at in begun), max(at for _, at in begun), 0
    else:
        first_us, last_us, n_before = span
        until_us = max(last_us + max(1, last_us - first_us), now_us + SKEW_US)  # what begins later has a wrong clock
        begun = [(one, at) for one, at in begun if at <= until_us]
        timed = [one for one in timed if (one.end_us or 0) >= first_us]
        last_us = max([last_us, *(at for _, at in begun)])
    if begun:
        last_us += max(1, round(_OPEN * (last_us - first_us)))  # so that one that has just begun is seen
    return _Lines(first_us, last_us, timed, begun, n_before)


def swimlanes(
    sequences: Sequence[SeenSequence],
    events: Sequence[SeenEvent],
    still_open: Sequence[OpenSequence] = (),
    now_us: int = 0,
) -> Lanes | None:
    """Return a lane for each stream and a bar for each sequence from its start to its end; events cross all lanes.

    Open sequences reach to the right edge; ``now_us`` is the page's own time. None if nothing has a time.
    """
    found = _lines(sequences, still_open, now_us)
    if found is None:
        return None
    first, last, timed, begun, n_before = found
    alerts_first = sorted(timed, key=lambda one: not one.is_alert)
    every = list(dict.fromkeys([*(one.stream for one in alerts_first), *(one.stream for one, _ in begun)]))
    names = sorted(every[:_MOST_LANES])
    tops = {name: number * _LANE for number, name in enumerate(names)}
    width_us = max(1, last - first)
    bottom = len(names) * _LANE

    def x(time_us: int) -> float:
        return 100 * (time_us - first) / width_us

    parts = [rect(0, y + 2, 100, _LANE - 4, "lane") for y in tops.values()]
    for event in event_marks(events):
        if first <= event.at_us <= last:
            line = upright(x(event.at_us), 0, bottom, "event")
            parts.append(f'<g class="eventmark">{line}{title(f"{event.word}: {event.said}")}</g>')
    for one in sorted(timed, key=lambda each: each.is_alert):
        if one.stream in tops:
            parts.append(_bar(one, x(max(one.start_us or 0, first)), x(one.end_us or 0), tops[one.stream]))
    for stream, said, at_us in _open_bars([(one, at) for one, at in begun if one.stream in tops]):
        left = x(max(at_us, first))
        bar = rect(left, tops[stream] + 9, max(100 - left, _LEAST), 9, "bar open")
        parts.append(link(f"/running?name={quote(stream, safe='')}", said, bar))
    form: Form = "date" if width_us >= _TWO_DAYS_US else "clock" if width_us >= _HOUR_US else "clock_second"
    times = [(from_us(at_us), x(at_us)) for at_us in time_ticks(first, last, _MOST_TIMES)]
    parts += times_below(times, bottom, form)
    parts += [words(cut(name, _NAME), 0, y + 15, "end", dx=-6) for name, y in tops.items()]
    label = gettext(
        "%(sequences)s of %(streams)s over time",
        sequences=count(len(timed), "sequence"), streams=count(len(names), "stream"),
    )  # fmt: skip
    picture = svg(parts, bottom + 37, label, css="lanes", role="group")
    return Lanes(picture, _left_out(n_before, len(every) - len(names)))


def _left_out(n_before: int, n_streams: int) -> list[str]:
    said = []
    if n_before:
        said.append(
            ngettext(
                "%(num)s sequence dated long before the others is not drawn.",
                "%(num)s sequences dated long before the others are not drawn.",
                n_before,
            )
        )
    if n_streams:
        said.append(
            ngettext(
                "%(num)s more stream is not drawn: those with alerts come first.",
                "%(num)s more streams are not drawn: those with alerts come first.",
                n_streams,
            )
        )
    return said


def _open_bars(begun: Sequence[tuple[OpenSequence, int]]) -> list[tuple[str, str, int]]:
    """Return stream, words and start of each bar of open sequences; of very many one for each stream."""
    if len(begun) <= _MOST_OPEN:
        return [(one.stream, f"{one.stream} {one.sequence}: " + gettext("running"), at) for one, at in begun]
    of_stream: dict[str, list[int]] = {}
    for one, at in begun:
        of_stream.setdefault(one.stream, []).append(at)
    return [(stream, f"{stream}: " + count(len(at), "running sequence"), min(at)) for stream, at in of_stream.items()]


def _bar(one: SeenSequence, left: float, right: float, y: int) -> str:
    decision = "anomalous" if one.is_alert else one.decision or "normal"
    width = max(right - left - 0.07, _LEAST)
    shapes = rect(left, y + 9, width, 9, f"bar {decision}")
    if one.is_alert:
        shapes += sign("M0,0l-4,7h8z", left + width / 2, y + 1, "bar anomalous")
    said = f"{one.stream} {one.sequence}: {DECISIONS[decision]}" + (f", {one.why}" if one.why else "")
    return link(f"/s/{quote(one.id)}", said, shapes)
