"""The page Compare: up to eight sequences over each other, over the band and over golden ones, channel by channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import numpy as np
from markupsafe import Markup

from streamad.judge.verdicts import figure
from streamad.pictures.content import Course, Courses, NormalCourse, Panel, Picture
from streamad.web.charts import curves
from streamad.web.rendering import digits, rendered
from streamad.web.site import Site
from streamad.web.store.view import SeenSequence

MOST_COMPARED: Final = 8
MOST_GOLDEN: Final = 20
_MOST_CHANNELS, _MOST_MORE = 24, 15
_PAGE, _LATEST, _NORMALS = 120, 1_200, 40
_MOST_NEAREST = 5
_MOST_POINTS, _MOST_OF_LINE, _FEWEST_OF_LINE = 20_000, 600, 60
"""Of all lines of a page: more would make it slow to load."""


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


@dataclass(frozen=True, slots=True)
class Offer:
    """A sequence in the list to choose from: whether it is drawn, and whether it is one of the golden ones."""

    one: SeenSequence
    is_chosen: bool
    is_golden: bool
    is_nearest: bool = False


def compare(site: Site, ids: Sequence[str], golden_ids: Sequence[str] = (), wanted: str = "") -> Markup:
    """Return the content: the sequences over each other and over the band, a table, and others to choose.

    Channels are those that the pages of the sequences draw; the band is that of the first sequence that draws the
    channel. Without any sequence some are offered to begin with. ``golden_ids``: normal sequences whose range is drawn
    beside the band. ``wanted``: what stream or name of the others must have in them.
    """
    found = []
    for one in _sequences(site, ids[:MOST_COMPARED]):
        case, normal = site.cases.of(one)
        found.append(Compared(one, case.picture(normal), case.courses))
    golden = [one for one in _sequences(site, golden_ids[:MOST_GOLDEN]) if one.decision == "normal"]
    courses = [each for each in (site.cases.of(one)[0].courses for one in golden) if each is not None]
    others = site.view.of_stream(found[0].one.stream, _PAGE) if found else site.view.inbox(_PAGE)
    nearest = _nearest(site, found, others) if found else []
    chosen_ids = [each.one.id for each in found]
    panels = _panels(found)
    names = [panel.name for _, panel in panels]
    n_lines = min(len(panels), _MOST_CHANNELS) * (len(found) + 5)  # with both sides of the band, and the golden ones
    most = min(_MOST_OF_LINE, max(_FEWEST_OF_LINE, _MOST_POINTS // max(1, n_lines)))
    return rendered(
        "compare.html",
        found=found,
        nearest=nearest,
        nearest_href="/compare?" + urlencode({"id": chosen_ids, "golden": [one.id for one in nearest]}, doseq=True),
        golden=golden,
        overlays=[(panel, _overlay(found, courses, of, panel, most)) for of, panel in panels[:_MOST_CHANNELS]],
        n_more=len(panels) - _MOST_CHANNELS,
        names=names,
        means=[_means(each, names) for each in found],
        offers=_offers(site, found, golden, others, nearest, wanted),
        wanted=wanted,
        most=(MOST_COMPARED, MOST_GOLDEN),
    )


def _sequences(site: Site, ids: Sequence[str]) -> list[SeenSequence]:
    return [one for one in map(site.view.sequence, dict.fromkeys(ids)) if one is not None]


def _offers(  # noqa: PLR0917 - what was found already
    site: Site,
    found: Sequence[Compared],
    golden: Sequence[SeenSequence],
    others: Sequence[SeenSequence],
    nearest: Sequence[SeenSequence],
    wanted: str,
) -> list[Offer]:
    """Return the chosen ones, the nearest normal one, then the latest alerts and others that have a window."""
    chosen = {each.one.id: each.one for each in found}
    golden_ids = {one.id for one in golden}
    first = {one.id: one for one in (*chosen.values(), *golden, *nearest[:1])}
    more: dict[bool, dict[str, SeenSequence]] = {True: {}, False: {}}
    for one in (*others, *site.view.latest(_LATEST)):
        of_kind = more[one.is_alert]
        is_wanted = wanted.casefold() in f"{one.stream} {one.sequence}".casefold()
        if one.has_window and is_wanted and one.id not in first and len(of_kind) < _MOST_MORE:
            of_kind[one.id] = one
    rest = sorted((more[True] | more[False]).values(), key=lambda one: -(one.end_us or 0))
    return [
        Offer(one, one.id in chosen, one.id in golden_ids, is_nearest=one in nearest[:1])
        for one in (*first.values(), *rest)
    ]


def golden_course(courses: Sequence[Courses], name: str, n: int) -> NormalCourse | None:
    """Return the range of a channel in some sequences, each stretched to ``n`` points; None if none has the channel."""
    at = np.linspace(0, 1, n)
    rows = []
    for each in courses:
        names = [channel.name for channel in each.channels]
        if name in names:
            course = each.values[names.index(name)].astype(np.float64)
            rows.append(np.interp(at, np.linspace(0, 1, len(course)), course))
    if not rows:
        return None
    low, middle, high = (np.quantile(np.array(rows), share, axis=0) for share in (0, 0.5, 1))
    return NormalCourse(low, middle, high, low, high)


def _nearest(site: Site, found: Sequence[Compared], others: Sequence[SeenSequence]) -> list[SeenSequence]:
    """Return of the latest normal sequences with a window those nearest to the first of ``found``, five at most."""
    first, ids = found[0].courses, {each.one.id for each in found}
    if first is None:
        return []
    for place in (others, site.view.latest(_LATEST)):
        normals = [one for one in place if one.decision == "normal" and not one.is_alert and one.has_window]
        apart = {
            one.id: distance(first, courses)
            for one in normals[:_NORMALS]
            if one.id not in ids and (courses := site.cases.of(one)[0].courses) is not None
        }
        near = [one for one in normals if math.isfinite(apart.get(one.id, math.inf))]
        if near:
            return sorted(near, key=lambda one: apart[one.id])[:_MOST_NEAREST]
    return []


def _overlay(found: Sequence[Compared], golden: Sequence[Courses], picture: Picture, panel: Panel, most: int) -> Markup:
    lines = [
        (number, each.picture.at, course)
        for number, each in enumerate(found)
        if each.picture is not None and (course := each.course(panel.name)) is not None
    ]
    return curves.overlay(picture, panel, lines, golden_course(golden, panel.name, len(picture.at)), most=most)


def _panels(found: Sequence[Compared]) -> list[tuple[Picture, Panel]]:
    """Return the channels that any of the sequences draws, each with the first picture that has it."""
    panels: dict[str, tuple[Picture, Panel]] = {}
    for each in found:
        for panel in () if each.picture is None else each.picture.panels:
            if each.picture is not None:
                panels.setdefault(panel.name, (each.picture, panel))
    return list(panels.values())


def _means(each: Compared, names: Sequence[str]) -> list[str]:
    """Return the sequence's name, and mean and spread of each channel."""
    courses = [each.course(name) for name in names]
    return [f"{each.one.stream} {each.one.sequence}", *("-" if one is None else mean_text(one) for one in courses)]


def mean_text(course: Course) -> str:
    """Return mean and standard deviation of a course; a dash if it has a gap."""
    mean, spread = float(np.mean(course)), float(np.std(course))
    return f"{digits(mean, 4)} ± {figure(spread)}" if math.isfinite(mean) else "-"
