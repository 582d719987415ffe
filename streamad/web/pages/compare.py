"""The page Compare: up to eight sequences over each other and over the band, channel by channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from markupsafe import Markup

from streamad.judge.verdicts import figure
from streamad.pictures.content import Course, Courses, Panel, Picture
from streamad.web.charts import curves
from streamad.web.rendering import rendered
from streamad.web.site import Site
from streamad.web.store.view import SeenSequence

MOST_COMPARED: Final = 8
_MOST_CHANNELS, _MOST_MORE = 24, 20
_PAGE, _LATEST, _NORMALS = 120, 1_200, 40


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


def compare(site: Site, ids: Sequence[str]) -> Markup:
    """Return the content: the sequences over each other and over the band, a table, and others to add.

    Channels are those that the pages of the sequences draw; the band is that of the first sequence that draws the
    channel. Without any sequence some alerts are offered to begin with.
    """
    found = []
    for one in filter(None, map(site.view.sequence, dict.fromkeys(ids))):
        case, normal = site.cases.of(one)
        found.append(Compared(one, case.picture(normal), case.courses))
    ids = [each.one.id for each in found]
    is_full = len(ids) >= MOST_COMPARED
    others = site.view.of_stream(found[0].one.stream, _PAGE) if found else site.view.inbox(_PAGE)
    nearest = None if is_full or not found else _nearest(site, found, others)
    more = [one for one in others if one.id not in ids and one.has_window][:_MOST_MORE]
    panels = _panels(found)
    names = [panel.name for _, panel in panels]
    return rendered(
        "compare.html",
        found=found,
        ids=ids,
        overlays=[(panel, _overlay(found, picture, panel)) for picture, panel in panels[:_MOST_CHANNELS]],
        n_more=len(panels) - _MOST_CHANNELS,
        names=names,
        means=[_means(each, names) for each in found],
        nearest=nearest,
        others=[] if is_full else [one for one in more if nearest is None or one.id != nearest.id],
    )


def _nearest(site: Site, found: Sequence[Compared], others: Sequence[SeenSequence]) -> SeenSequence | None:
    """Return of the latest normal sequences with a window the one nearest to the first of ``found``."""
    first, ids = found[0].courses, {each.one.id for each in found}
    if first is None:
        return None
    for place in (others, site.view.latest(_LATEST)):
        normals = [one for one in place if one.decision == "normal" and not one.is_alert and one.has_window]
        apart = {
            one.id: distance(first, courses)
            for one in normals[:_NORMALS]
            if one.id not in ids and (courses := site.cases.of(one)[0].courses) is not None
        }
        if apart and math.isfinite(apart[best := min(apart, key=lambda name: apart[name])]):
            return next(one for one in normals if one.id == best)
    return None


def _overlay(found: Sequence[Compared], picture: Picture, panel: Panel) -> Markup:
    lines = [
        (number, each.picture.at, course)
        for number, each in enumerate(found)
        if each.picture is not None and (course := each.course(panel.name)) is not None
    ]
    return curves.overlay(picture, panel, lines)


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
    return f"{mean:.4g} ± {figure(spread)}" if math.isfinite(mean) else "-"
