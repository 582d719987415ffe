"""The pages of streams: all of them, one with its scores over time, and up to eight sequences over each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np

from streamad.pictures.content import Course, Courses, Picture
from streamad.pictures.html import Html, element
from streamad.types import ChannelSpec
from streamad.web import charts
from streamad.web.pages.layout import count, decision_of, link_to, rows_table, stream_link, when
from streamad.web.pages.now import decision_row
from streamad.web.store.view import Moments, SeenSequence

_EACH_DOT = "Each dot is a sequence; dashed: the score from which its model's version alerts. ▲: an alert."
_EACH_MEAN = "Dot: mean of the judged window; line: one standard deviation to both sides. ▲: an alert."
_MOST_CHANNELS = 24
_MOST_COMPARED = 8
_HEADS = ("ended (UTC)", "sequence", "decision", "score", "p", "why")


def streams(rows: Sequence[tuple[str, SeenSequence | None, int]]) -> list[Html]:
    """Return the content: name, last sequence and number of alerts among the last ones of each stream."""
    if not rows:
        return [element("h1", "Streams"), element("p", "No stream yet: nothing has been judged.")]
    cells = [
        (stream_link(name), when(last.end_us) if last else "", decision_of(last) if last else "", str(n_alerts))
        for name, last, n_alerts in rows
    ]
    heads = ("stream", "last ended (UTC)", "last decision", "alerts in the last 50")
    return [element("h1", count(len(rows), "stream")), rows_table("Streams, the newest first", heads, cells)]


def stream(
    name: str,
    rows: Sequence[SeenSequence],
    limits: Mapping[tuple[str, str], float],
    moments: Mapping[str, Moments],
    channels: Sequence[ChannelSpec],
    *,
    before: int | None,
) -> list[Html]:
    """Return the content: scores over time with each version's threshold, mean and spread, then the sequences.

    ``limits``: the lowest score that alerts, by name and version of the model. ``moments``: by id of the sequence.
    ``before``: where older ones begin.
    """
    if not rows:
        return [element("h1", name or "Stream"), element("p", "No sequence of this stream was read.")]
    parts = [element("h1", name), element("h2", "Scores"), charts.course_of_scores(list(reversed(rows)), limits)]
    parts.append(element("p", _EACH_DOT, class_="soft"))
    parts += _courses_of_means(list(reversed(rows)), moments, channels)
    listed = [decision_row(one) for one in rows]
    parts += [element("h2", "Sequences"), rows_table("Sequences, the newest first", _HEADS, listed)]
    if before is not None:
        older = f"/stream?name={quote(name, safe='')}&before={before}"
        parts.append(element("p", element("a", "older ones", href=older)))
    return parts


def _courses_of_means(
    rows: Sequence[SeenSequence], moments: Mapping[str, Moments], channels: Sequence[ChannelSpec]
) -> list[Html]:
    """Return mean and spread of each channel, sequence by sequence; of windows with other channels nothing."""
    n = len(channels)
    known = [
        (one, found)
        for one in rows
        if (found := moments.get(one.id)) is not None and len(found.means) == len(found.spreads) == n
    ]
    if not known:
        return []
    parts = [element("h2", "Mean and spread")]
    for number, channel in enumerate(channels[:_MOST_CHANNELS]):
        pairs = [(one, found.means[number], found.spreads[number]) for one, found in known]
        head = element("h3", f"{channel.name} ", element("small", channel.unit))
        parts.append(element("figure", head, charts.course_of_means(channel.name, channel.unit, pairs)))
    said = _EACH_MEAN if n <= _MOST_CHANNELS else f"{_EACH_MEAN} {count(n - _MOST_CHANNELS, 'more channel')} not drawn."
    return [*parts, element("p", said, class_="soft")]


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A sequence to compare; without a window there is no picture and no course."""

    one: SeenSequence
    picture: Picture | None
    courses: Courses | None

    def course(self, name: str) -> Course | None:
        """Return the readings of the channel ``name``; None if there are none."""
        names = [] if self.courses is None else [channel.name for channel in self.courses.channels]
        if self.courses is None or name not in names:
            return None
        course: Course = self.courses.values[names.index(name)].astype(np.float64)
        return course


def compare(found: Sequence[Compared], others: Sequence[SeenSequence]) -> list[Html]:
    """Return the content: the sequences over each other and over the band, a table, and others to add.

    Channels and band are those of the first sequence's picture.
    """
    parts = [element("h1", "Compare")]
    if not found:
        return [*parts, element("p", "Open a sequence and follow the link: compare with others.")]
    ids = [each.one.id for each in found]
    parts.append(element("ul", *(_key(number, each, ids) for number, each in enumerate(found)), class_="keys"))
    drawn = [(number, each) for number, each in enumerate(found) if each.picture is not None]
    panels = () if not drawn or drawn[0][1].picture is None else drawn[0][1].picture.panels
    for panel in panels:
        lines = [
            (number, each.picture.at, course)
            for number, each in drawn
            if each.picture is not None and (course := each.course(panel.name)) is not None
        ]
        first = drawn[0][1].picture
        assert first is not None
        head = element("h3", f"{panel.name} ", element("small", panel.unit))
        parts.append(element("figure", head, charts.overlay(first, panel, lines)))
    if panels:
        said = (
            "Each from its own start. Grey: 5 to 95 % of the normal sequences, drawn as far as the first sequence goes."
        )
        parts.append(element("p", said, class_="soft"))
        parts += [element("h2", "Mean and spread"), _means(found, [panel.name for panel in panels])]
    more = [one for one in others if one.id not in ids and one.has_window][:20]
    if more and len(ids) < _MOST_COMPARED:
        here = "&".join(f"id={quote(each)}" for each in ids)
        links = [
            element("li", element("a", _name(one), href=f"/compare?{here}&id={one.id}"), " ", decision_of(one))
            for one in more
        ]
        parts += [element("h2", "Add one"), element("ul", *links, class_="keys")]
    return parts


def _key(number: int, each: Compared, ids: Sequence[str]) -> Html:
    """Return the entry of a sequence in the legend, with the link that leaves it out."""
    rest = "&".join(f"id={quote(one)}" for one in ids if one != each.one.id)
    gone = "" if each.picture is not None else " (no window was kept)"
    line = f'<line class="line{number} overlay" x1="0" x2="30" y1="4" y2="4"/>'
    drop = element("a", "leave out", href=f"/compare?{rest}") if rest else ""
    name = link_to(each.one, _name(each.one))
    return element("li", Html(f'<svg class="key" viewBox="0 0 30 8">{line}</svg>'), " ", name, f"{gone} ", drop)


def _means(found: Sequence[Compared], names: Sequence[str]) -> Html:
    """Return mean and spread of each channel in each sequence."""
    rows = []
    for each in found:
        courses = [each.course(name) for name in names]
        cells = ["-" if course is None else _mean(course) for course in courses]
        rows.append((_name(each.one), *cells))
    return rows_table("Mean and spread", ("sequence", *names), rows)


def _mean(course: Course) -> str:
    mean, spread = float(np.mean(course)), float(np.std(course))
    return f"{mean:.4g} ± {spread:.2g}" if math.isfinite(mean) else "-"


def _name(one: SeenSequence) -> str:
    return f"{one.stream} {one.sequence}"
