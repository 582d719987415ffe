"""The page Compare: up to eight sequences over each other and over the band, channel by channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np

from streamad.judge.explanations.words import figure
from streamad.pictures.content import Course, Courses, Panel, Picture
from streamad.pictures.html import Html, element
from streamad.web import charts
from streamad.web.pages.layout import decision_of, link_to, rows_table
from streamad.web.rendering import count
from streamad.web.store.view import SeenSequence

MOST_COMPARED: Final = 8
_MOST_CHANNELS, _MOST_MORE = 24, 20


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


def distance(one: Courses, other: Courses) -> float:
    """Return how far two windows of the same channels lie apart: infinity if the channels differ.

    The root mean square difference at equal shares of both, in units of the spread of ``one``; the median over the
    channels.
    """
    if [each.name for each in one.channels] != [each.name for each in other.channels]:
        return math.inf
    values = one.values.astype(np.float64)
    n = values.shape[1]
    at, theirs = np.linspace(0, 1, n), np.linspace(0, 1, other.values.shape[1])
    stretched = np.array([np.interp(at, theirs, course) for course in other.values])
    spread = np.maximum(values.std(axis=1), 1e-6 * (1 + np.abs(values).max(axis=1)))
    apart = np.sqrt(np.square((values - stretched) / spread[:, None]).mean(axis=1))
    return float(np.median(apart))


def compare(
    found: Sequence[Compared], others: Sequence[SeenSequence], nearest: SeenSequence | None = None
) -> list[Html]:
    """Return the content: the sequences over each other and over the band, a table, and others to add.

    Channels are those that the pages of the sequences draw; the band is that of the first sequence that draws the
    channel. ``nearest``: the normal sequence that lies nearest to the first one, None if there is none. Without
    ``found`` the ``others`` are offered to begin with.
    """
    parts = [element("h1", "Compare")]
    ids = [each.one.id for each in found]
    if not found:
        parts.append(
            element("p", "Choose the first sequence here, or open one and follow the link: compare with others.")
        )
    else:
        parts.append(element("ul", *(_key(number, each, ids) for number, each in enumerate(found)), class_="keys"))
    drawn = [(number, each) for number, each in enumerate(found) if each.picture is not None]
    panels = _panels(found)
    for picture, panel in panels[:_MOST_CHANNELS]:
        lines = [
            (number, each.picture.at, course)
            for number, each in drawn
            if each.picture is not None and (course := each.course(panel.name)) is not None
        ]
        head = element("h3", f"{panel.name} ", element("small", panel.unit))
        parts.append(element("figure", head, charts.overlay(picture, panel, lines)))
    if panels:
        more = len(panels) - _MOST_CHANNELS
        rest = f" {count(more, 'more channel')} not drawn." if more > 0 else ""
        said = (
            "Each from its own start. Grey: 5 to 95 % of the normal sequences, drawn as far as the first sequence "
            f"that draws the channel goes.{rest}"
        )
        parts.append(element("p", said, class_="soft"))
        parts += [element("h2", "Mean and spread"), _means(found, [panel.name for _, panel in panels])]
    if len(ids) >= MOST_COMPARED:
        return parts
    more_ = [one for one in others if one.id not in ids and one.has_window][:_MOST_MORE]
    links = [] if nearest is None else [_addition(nearest, ids, "nearest normal: ")]
    links += [_addition(one, ids) for one in more_ if nearest is None or one.id != nearest.id]
    if links:
        parts += [element("h2", "Add one" if found else "Begin with"), element("ul", *links, class_="keys")]
    return parts


def _panels(found: Sequence[Compared]) -> list[tuple[Picture, Panel]]:
    """Return the channels that any of the sequences draws, each with the first picture that has it."""
    panels: dict[str, tuple[Picture, Panel]] = {}
    for each in found:
        for panel in () if each.picture is None else each.picture.panels:
            if each.picture is not None:
                panels.setdefault(panel.name, (each.picture, panel))
    return list(panels.values())


def _addition(one: SeenSequence, ids: Sequence[str], what: str = "") -> Html:
    """Return the link that adds a sequence."""
    query = "&".join(f"id={quote(each)}" for each in (*ids, one.id))
    return element("li", what, element("a", _name(one), href=f"/compare?{query}"), " ", decision_of(one))


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
        cells = ["-" if course is None else mean_text(course) for course in courses]
        rows.append((_name(each.one), *cells))
    return rows_table("Mean and spread", ("sequence", *names), rows)


def mean_text(course: Course) -> str:
    """Return mean and standard deviation of a course; a dash if it has a gap."""
    mean, spread = float(np.mean(course)), float(np.std(course))
    return f"{mean:.4g} ± {figure(spread)}" if math.isfinite(mean) else "-"


def _name(one: SeenSequence) -> str:
    return f"{one.stream} {one.sequence}"
