"""What a picture of a sequence shows: the channels that matter, the normal band, segments and scores. Pure.

Shapes: C channels, L window length, m drawn points of a channel, n calibration sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamad.judge.calibration import Calibration
from streamad.judge.envelope import Band, Clock, Envelope
from streamad.messages import Attribution, ChannelSegment
from streamad.pictures.facts import Facts, cut
from streamad.types import ChannelSpec, FloatArray

Course = npt.NDArray[np.float64]
MOST_PANELS = 6
_FEWEST_PANELS = 3
_LEAST_SHARE = 0.01  # of a channel that has a panel beside the first three
_NAMED = 12  # channels without a panel that are named
_NAME_CHARACTERS = 60


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


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One channel: its readings [m], its share (None: unknown), its segments, and the normal course if it is known."""

    name: str
    unit: str
    course: Course
    share: float | None
    normal: NormalCourse | None
    segments: tuple[ChannelSegment, ...]


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
        of = f"of the {n} calibration sequences"
        if not n_above:
            return f"above all {n} calibration sequences" if n > 1 else "above the one calibration sequence"
        if n_above == n:
            return f"not above any {of}"
        return f"above {n - n_above} {of}"

    @property
    def limit(self) -> str:
        """Return in words from which score on sequences alert."""
        if self.alerts_from == -math.inf:
            return "every score alerts"
        return "no score can alert" if self.alerts_from == math.inf else f"alerts from {self.alerts_from:.4g} on"


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """The content of one picture. ``at`` [m] is the time of each drawn point in seconds since the start.

    If the sequence has no extent in time, ``at`` counts points (``is_timed``); with ``is_aligned`` it is in percent of
    the sequence. ``clock`` is that of the normal band, None without one. ``notes`` say what is missing and why.
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

    @property
    def extent(self) -> float:
        """Return where the whole sequence ends on the axis of ``at``: its window may hold less of it."""
        if self.is_aligned:
            return 100.0
        return self.facts.span_s if self.is_timed else float(self.at[-1])


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
        said.append("its end has no normal band: no training sequence is so long")
    if courses.shown < 0.999:
        said.append(f"the judged window holds the first {100 * courses.shown:.0f} % of the sequence")
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
    return Panel(
        channel.name,
        channel.unit,
        courses.values[index].astype(np.float64),
        shares.get(channel.name),
        None if band is None else NormalCourse.of(band, index),
        tuple(each for each in segments if each.channel == channel.name),
    )


def _others(channels: Sequence[ChannelSpec], shares: dict[str, float]) -> str:
    """Return which channels have no panel, in words."""
    if not channels:
        return ""
    named = [_with_share(printable(each.name, 30), shares.get(each.name)) for each in channels[:_NAMED]]
    rest = len(channels) - len(named)
    return f"not drawn: {', '.join(named)}" + (f" and {rest} more" if rest else "")


def _with_share(name: str, share: float | None) -> str:
    return name if share is None or share < 0.005 else f"{name} {100 * share:.0f} %"
