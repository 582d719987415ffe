"""What a picture of a sequence shows: the channels that matter, the normal band, segments and scores. Pure.

Shapes: C channels, L window length, m drawn points of a channel, n calibration sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamad.judge.calibration import Calibration
from streamad.judge.envelope import Band, Clock, Envelope
from streamad.language import gettext, ngettext, numeral, percent
from streamad.messages import Attribution, ChannelSegment, Direction
from streamad.pictures.facts import Facts, cut
from streamad.types import ChannelSpec, FloatArray

Course = npt.NDArray[np.float64]
MOST_PANELS = 6
_FEWEST_PANELS = 3
_LEAST_SHARE = 0.01  # of a channel that has a panel beside the first three
_NAMED = 12  # channels without a panel that are named
_NAME_CHARACTERS = 60
_MOST_STROKES = 500
_MOST_SCORE = 1e300  # on an axis
_LOG_BEYOND = 4.0  # times the largest calibration score: then the scores' axis is logarithmic
_HULL_BEYOND = 0.6  # ranges of readings and band: so far the extremes of training may widen an axis on each side
_LEAST_POINTS, _FEWEST_POINTS = 3, 2
"""Of a stretch outside the band: shorter ones are noise. And of a part of a picture."""


@dataclass(frozen=True, slots=True, eq=False)
class Courses:
    """The judged window: ``values`` float32 [C, length], without the padding.

    ``shown``: the share of the sequence's time that the window holds (``shown_share``).
    """

    channels: tuple[ChannelSpec, ...]
    values: FloatArray
    length: int
    shown: float = 1.0


class NormalCourse(NamedTuple):
    """Normal readings of one channel at each drawn point [m]: quantiles of 5, 50 and 95 %, and the extremes."""

    low: Course
    middle: Course
    high: Course
    lowest: Course
    highest: Course

    @classmethod
    def of(cls, band: Band, channel: int) -> NormalCourse:
        """Return those of a channel in a band."""
        return cls(*(side[channel] for side in (band.low, band.middle, band.high, band.lowest, band.highest)))


class Outside(NamedTuple):
    """From which to which share of the sequence a channel lies outside the band, and on which side of it."""

    start: float
    end: float
    direction: Direction


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One channel: its readings [m], its share (None: unknown), its segments, and the normal course if it is known.

    ``outside``: where at least three readings in a row are outside the band, as the reasons count it
    (``Band.above`` and ``Band.below``).
    """

    name: str
    unit: str
    course: Course
    share: float | None
    normal: NormalCourse | None
    segments: tuple[ChannelSegment, ...]
    outside: tuple[Outside, ...] = ()

    @property
    def limits(self) -> tuple[float, float]:
        """Return what an axis of its values must hold (``limits_of``)."""
        return limits_of([self.course], self.normal)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Where the score lies: among the calibration's scores [n], with the lowest score that alerts (infinity: none)."""

    score: float
    is_alert: bool
    normal: Course
    alerts_from: float

    @property
    def words(self) -> str:
        """Return in words where the score lies."""
        n = len(self.normal)
        n_above = n - int(np.searchsorted(self.normal, self.score, side="left"))
        if not n_above:
            return ngettext("above the one calibration sequence", "above all %(num)s calibration sequences", n)
        if n_above == n:
            return gettext("not above any of the %(n)s calibration sequences", n=n)
        return gettext("above %(below)s of the %(n)s calibration sequences", below=n - n_above, n=n)

    @property
    def times(self) -> float | None:
        """Return how many times the lowest score that alerts this one is; None if it is no measure of height."""
        return times_of(self.score, self.alerts_from)

    @property
    def strokes(self) -> Course:
        """Return at most 500 of the calibration's scores, spread evenly, the lowest and the highest among them."""
        if len(self.normal) <= _MOST_STROKES:
            return self.normal
        chosen: Course = self.normal[np.linspace(0, len(self.normal) - 1, _MOST_STROKES).round().astype(np.int64)]
        return chosen

    @property
    def drawn(self) -> float:
        """Return the score as far as a picture's arithmetic can take it."""
        return min(max(self.score, -_MOST_SCORE), _MOST_SCORE)

    def axis(self) -> tuple[float, float, bool]:
        """Return the ends of an axis that holds all, and whether it is logarithmic: the score may lie far beyond."""
        first, last = float(self.normal[0]), float(self.normal[-1])
        everything = [first, last, self.drawn]
        if math.isfinite(self.alerts_from):
            everything.append(self.alerts_from)
        low, high = min(everything), max(everything)
        if low > 0 and self.drawn > _LOG_BEYOND * last:
            return low / 1.15, high * 1.3, True
        margin = 0.05 * (high - low) or max(0.05 * abs(high), 1.0)
        return low - margin, high + margin, False

    @property
    def limit(self) -> str:
        """Return in words from which score on sequences alert."""
        if self.alerts_from == -math.inf:
            return gettext("every score alerts")
        if self.alerts_from == math.inf:
            return gettext("no score can alert")
        return gettext("alerts from %(score)s on", score=numeral(f"{self.alerts_from:.4g}"))


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """The content of one picture. ``at`` [m] is the time of each drawn point in seconds since the start.

    If the sequence has no extent in time, ``at`` counts points (``is_timed``); with ``is_aligned`` it is in percent of
    the sequence. ``clock`` is that of the normal band, None without one. ``notes`` say what is missing and why.
    ``extent``: where the whole sequence ends on the axis of ``at``; its window may hold less of it. ``part``: from
    which to which share of the sequence it is drawn.
    """

    facts: Facts
    attribution: Attribution | None
    at: Course
    is_timed: bool
    panels: tuple[Panel, ...]
    others: str
    scores: Scores | None
    notes: tuple[str, ...]
    clock: Clock | None = None
    is_aligned: bool = False
    extent: float = 1.0
    part: tuple[float, float] = (0.0, 1.0)

    @property
    def first(self) -> float:
        """Return where the axis of ``at`` begins."""
        return self.part[0] * self.extent

    @property
    def last(self) -> float:
        """Return where the axis of ``at`` ends: the whole is drawn as far as the window goes."""
        return float(self.at[-1]) if self.part[1] >= 1 and len(self.at) else self.part[1] * self.extent

    def shows(self, start: float, end: float) -> bool:
        """Return whether any of the shares from ``start`` to ``end`` is drawn."""
        return end >= self.part[0] and start <= self.part[1]

    def between(self, start: float, end: float) -> Picture:
        """Return the part from one share of the sequence to another, with the points next to it on both sides.

        All of it if that are not two points.
        """
        near = 1e-9 * self.extent
        first = int(np.searchsorted(self.at, start * self.extent + near, side="right")) - 1
        until = int(np.searchsorted(self.at, end * self.extent - near)) + 1
        kept = slice(max(0, first), until)
        if not start < end or len(self.at[kept]) < _FEWEST_POINTS:
            return self
        panels = tuple(
            replace(
                one,
                course=one.course[kept],
                normal=None if one.normal is None else NormalCourse(*(side[kept] for side in one.normal)),
            )
            for one in self.panels
        )
        return replace(self, at=self.at[kept], panels=panels, part=(start, end))


def times_of(score: float, limit: float) -> float | None:
    """Return how many times ``limit`` a score is; None if one of them is no measure of height."""
    return score / limit if 0 < limit < math.inf and 0 < score < math.inf else None


def _ends(courses: Sequence[Course]) -> tuple[float, float]:
    """Return the lowest and the highest known reading of some courses; 0 and 1 without any."""
    known = np.concatenate([course[np.isfinite(course)] for course in courses])
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)


def limits_of(courses: Sequence[Course], normal: NormalCourse | None = None) -> tuple[float, float]:
    """Return what an axis must hold: readings and band, and the extremes of training unless they squeeze these."""
    low, high = _ends(courses if normal is None else [*courses, normal.low, normal.high])
    if normal is not None:
        beyond = _HULL_BEYOND * (high - low)
        lowest, highest = _ends([normal.lowest, normal.highest])
        low, high = max(min(low, lowest), low - beyond), min(max(high, highest), high + beyond)
    if high - low <= max(1e-6 * max(abs(low), abs(high)), 1e-30):
        pad = 0.05 * abs(high) or 1.0
        return low - pad, high + pad
    return low, high


def stretches(is_outside: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first and the last + 1 of each run of at least three points that are outside."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], is_outside, [False]]).astype(np.int8)))
    return [(first, end) for first, end in ends.reshape(-1, 2).tolist() if end - first >= _LEAST_POINTS]


def picture_of(
    facts: Facts,
    courses: Courses,
    *,
    attribution: Attribution | None = None,
    envelope: Envelope | None = None,
    calibration: Calibration | None = None,
    notes: Sequence[str] = (),
    clock: Clock | None = None,
) -> Picture:
    """Return what to draw. The channels are in the order of shares; without any, of distance from the normal band.

    The band is on ``clock``, None: on the one that the sequence is explained with. If it is named as aligned, ``at`` is
    in percent of the sequence.
    """
    band = shown_band = shown_clock = None
    if envelope is not None and envelope.shape[0] == len(courses.channels) and courses.length <= envelope.shape[1]:
        band = envelope.band(courses.length)
        shown_clock = clock or envelope.clock_for(courses.length)
        shown_band = envelope.band(courses.length, shown_clock)
    shares = {each.channel: each.share for each in attribution.channels} if attribution is not None else {}
    order = _order(courses, shares, band)
    n_panels = _n_panels(courses, order, shares)
    panels = [_panel(courses, index, shares, shown_band, attribution) for index in order[:n_panels]]
    shown_s = facts.span_s * courses.shown
    is_timed = shown_s > 0
    is_aligned = clock == "aligned" and shown_clock is not None
    points = np.arange(courses.length, dtype=np.float64)
    extent = 100 * courses.shown if is_aligned else shown_s
    at: Course = points * (extent / max(1, courses.length - 1)) if is_timed or is_aligned else points
    said = list(notes)
    if shown_band is not None and np.isnan(shown_band.middle[:, -1]).any():
        said.append(gettext("its end has no normal band: no training sequence is so long"))
    if courses.shown < 0.999:
        said.append(
            gettext("the judged window holds the first %(share)s of the sequence", share=percent(courses.shown))
        )
    return Picture(
        facts,
        attribution,
        at,
        is_timed,
        tuple(panels),
        _others([courses.channels[index] for index in order[len(panels) :]], shares),
        scores_of(facts, calibration),
        tuple(said),
        shown_clock,
        is_aligned,
        100.0 if is_aligned else facts.span_s if is_timed else float(at[-1]),
    )


def scores_of(facts: Facts, calibration: Calibration | None) -> Scores | None:
    """Return where the score lies among those of the calibration; None without a score or a calibration."""
    if calibration is None or facts.score is None or facts.rate is None:
        return None
    return Scores(facts.score, facts.is_alert, calibration.scores, calibration.alert_score(facts.rate))


def printable(name: str, most: int = _NAME_CHARACTERS) -> str:
    """Return ``name`` on one line, cut to ``most`` characters, each that cannot be printed replaced by U+FFFD."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut(name, most))


def _order(courses: Courses, shares: dict[str, float], band: Band | None) -> list[int]:
    indexes = list(range(len(courses.channels)))
    if any(shares.values()):
        return sorted(indexes, key=lambda index: -shares.get(courses.channels[index].name, 0.0))
    if band is None:
        return indexes
    deviations = band.deviation(courses.values)
    order: list[int] = np.argsort(-deviations, kind="stable").tolist()
    return order


def _n_panels(courses: Courses, order: list[int], shares: dict[str, float]) -> int:
    """Return how many channels are drawn: those with a share of 1 %, at least three and at most six."""
    if not any(shares.values()):
        return min(MOST_PANELS, len(order))
    n_large = sum(shares.get(courses.channels[index].name, 0.0) >= _LEAST_SHARE for index in order)
    return min(max(n_large, _FEWEST_PANELS), MOST_PANELS, len(order))


def _panel(
    courses: Courses, index: int, shares: dict[str, float], band: Band | None, attribution: Attribution | None
) -> Panel:
    channel = courses.channels[index]
    segments = () if attribution is None else attribution.segments
    course = courses.values[index].astype(np.float64)
    return Panel(
        channel.name,
        channel.unit,
        course,
        shares.get(channel.name),
        None if band is None else NormalCourse.of(band, index),
        tuple(each for each in segments if each.channel == channel.name),
        () if band is None else _outside(band.above(index, course), band.below(index, course), courses.shown),
    )


def _outside(above: Course, below: Course, shown: float) -> tuple[Outside, ...]:
    """Return the stretches of a channel whose readings lie so far ``above`` and ``below`` the band."""
    scale = shown / max(1, len(above) - 1)
    found = []
    for first, end in stretches(above + below > 0):
        is_above = above[first:end].sum() >= below[first:end].sum()
        found.append(Outside(first * scale, (end - 1) * scale, "above" if is_above else "below"))
    return tuple(found)


def _others(channels: Sequence[ChannelSpec], shares: dict[str, float]) -> str:
    """Return which channels have no panel, in words."""
    if not channels:
        return ""
    named = [_with_share(printable(each.name, 30), shares.get(each.name)) for each in channels[:_NAMED]]
    rest = len(channels) - len(named)
    said = gettext("not drawn: %(names)s", names=", ".join(named))
    more = gettext("and %(n)s more", n=rest)
    return f"{said} {more}" if rest else said


def _with_share(name: str, share: float | None) -> str:
    return name if share is None or share < 0.005 else f"{name} {percent(share)}"
