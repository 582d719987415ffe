"""Which channels of a running sequence have left the normal band, and when: as a person would see it in the curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamad.judge.verdicts import beyond, span_text
from streamad.language import gettext
from streamad.messages import Direction
from streamad.pictures.content import Course, NormalCourse, stretches
from streamad.pictures.facts import MARKS


@dataclass(frozen=True, slots=True)
class Departure:
    """The last stretch of a channel outside the band: ``said`` in words, ``size`` in half widths of the band."""

    is_now: bool
    size: float
    said: str


def departure_of(at: Course, course: Course, usual: tuple[Course, NormalCourse], unit: str) -> Departure | None:
    """Return how a channel's readings ``course`` [m] at the seconds ``at`` [m] depart from the ``usual`` band."""
    known = np.flatnonzero(np.isfinite(course))
    seconds, (band_at, normal) = at[known], usual
    within = seconds <= band_at[-1]
    known, seconds = known[within], seconds[within]
    if not len(known):
        return None
    low, high = (np.interp(seconds, band_at, side) for side in (normal.low, normal.high))
    excess = np.maximum(course[known] - high, low - course[known])
    is_above = course[known] > high
    found = stretches(excess > 0)
    if not found:
        return None
    first, last = found[-1]
    is_now = last == len(known)
    by = float(np.median(excess[first:last]))
    direction: Direction = "above" if is_above[first:last].mean() >= 1 / 2 else "below"
    half = max(float(np.median(high - low)) / 2, 1e-9)
    since, until = (span_text(float(seconds[number])) for number in (first, last - 1))
    said = beyond(by, unit, direction)
    if is_now:
        when = gettext("since %(time)s", time=since)
    else:
        when = gettext("from %(first)s to %(last)s", first=since, last=until)
    return Departure(is_now, by / half, f"{MARKS[direction]} {said} {when}")
