"""When a channel departs from normal: the segments of time whose replacement by a normal course lowers the score.

Shapes: C channels, n samples of the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamad.judge.explanations.envelope import Band
from streamad.judge.explanations.replacement import Replacement, Rescoring
from streamad.messages import Direction

Course = npt.NDArray[np.float64]
Stretch = tuple[int, int]
"""First and last sample + 1."""
# Chosen by measurement: docs/internals/judging.md
N_PARTS = 8  # of the sequence are replaced one after the other
N_COURSES = 2  # ways in which the nearest normal course takes the place of a part
_SIDE_SHARE = 0.5  # of the largest fall: neighbouring parts with it belong to the same segment
_MOST = 2  # segments of one channel
_BOTH_WAYS = 0.5  # of what lies on one side lies on the other one as well: neither above nor below


@dataclass(frozen=True, slots=True)
class Segment:
    """``channel`` (its index) departs from normal from ``start`` to ``end``, as shares of the window (0 to 1).

    The first sample of the window is at 0, its last one at 1. ``size`` is the median distance of its readings outside
    the normal band from the band's edge, in the channel's unit; None for the direction ``shape``.
    """

    channel: int
    start: float
    end: float
    direction: Direction
    size: float | None


def segments_of(rescoring: Rescoring, channel: int, normal: Course, band: Band) -> list[Segment]:
    """Return the segments of ``channel``, the one with the largest fall of the score first: at least one, at most two.

    ``normal`` [n] is this channel of the nearest normal sequence, stretched to n samples. If no part alone lowers the
    score, the whole sequence is the segment. A segment is fitted to the readings outside the band, which narrows it, or
    widens it by at most a part on each side.
    """
    length = rescoring.window.length
    course = rescoring.window.values[channel, :length].astype(np.float64)
    parts = _parts(length)
    falls = rescoring.falls([_without(channel, course, part, normal) for part in parts])
    stretches = _stretches(falls, parts) if falls.any() else [(0, length)]
    above, below = band.above(channel, course), band.below(channel, course)
    found: list[Segment] = []
    for stretch in stretches:
        segment = _described(channel, stretch, above, below, widen=-(-length // N_PARTS))
        if all(segment.end < other.start or segment.start > other.end for other in found):
            found.append(segment)
    return found[:_MOST]


def _parts(length: int) -> list[Stretch]:
    """Return at most ``N_PARTS`` parts of about equal length."""
    edges = np.linspace(0, length, min(N_PARTS, length) + 1).round().astype(int).tolist()
    return list(pairwise(edges))


def _without(channel: int, course: Course, part: Stretch, normal: Course) -> list[Replacement]:
    """Return the channel with the part replaced: by the normal course as it is, and moved so that its ends meet.

    The first removes a wrong level, the second leaves no jump, which a model would find odd.
    """
    first, end = part
    replaced = []
    for offset in (np.zeros(end - first), _meeting(course - normal, part)):
        without = course.copy()
        without[first:end] = normal[first:end] + offset
        replaced.append(Replacement(channel, without))
    return replaced


def _meeting(differences: Course, part: Stretch) -> Course:
    """Return by how much the part is moved: the line between the differences [n] just before and after it."""
    first, end = part
    sides = [differences[at] for at in (first - 1, end) if 0 <= at < len(differences)]
    if not sides:
        return np.zeros(end - first)
    line: Course = np.linspace(sides[0], sides[-1], end - first + 2)[1:-1]
    return line


def _stretches(falls: Course, parts: list[Stretch]) -> list[Stretch]:
    """Join neighbouring parts whose falls are at least half the largest one, the joint with the largest fall first."""
    counts = falls >= _SIDE_SHARE * falls.max()
    joined: list[tuple[float, Stretch]] = []
    begin = None
    for index in range(len(parts) + 1):
        is_in = index < len(parts) and bool(counts[index])
        if is_in and begin is None:
            begin = index
        elif not is_in and begin is not None:
            joined.append((float(falls[begin:index].max()), (parts[begin][0], parts[index - 1][1])))
            begin = None
    return [stretch for _, stretch in sorted(joined, key=lambda each: -each[0])]


def _described(channel: int, stretch: Stretch, above: Course, below: Course, widen: int) -> Segment:
    """Return the segment at the stretch; ``above`` and ``below`` [n] say how far readings lie outside the band."""
    (first, end), n = stretch, len(above)
    direction, outside = _direction(above[first:end], below[first:end], above, below)
    if direction == "shape":
        return Segment(channel, _share(first, n), _share(end - 1, n), direction, None)
    begin = max(0, first - widen)
    where = begin + np.flatnonzero(outside[begin : end + widen])
    where = _connected(where, (where >= first) & (where < end), widen)
    size = float(np.median(outside[where]))
    return Segment(channel, _share(where[0], n), _share(where[-1], n), direction, size)


def _share(sample: int | np.int64, n: int) -> float:
    return float(sample) / max(1, n - 1)


def _direction(above_here: Course, below_here: Course, above: Course, below: Course) -> tuple[Direction, Course]:
    """Return the side of the band on which the readings of a stretch lie, and the distances [n] on that side."""
    up, down = float(above_here.sum()), float(below_here.sum())
    if max(up, down) == 0.0 or min(up, down) > _BOTH_WAYS * max(up, down):
        return "shape", above
    return ("above", above) if up > down else ("below", below)


def _connected(where: npt.NDArray[np.int64], is_core: npt.NDArray[np.bool_], gap: int) -> npt.NDArray[np.int64]:
    """Return the ascending places from the first to the last core one, with those that lie at most ``gap`` beside."""
    core = np.flatnonzero(is_core)
    first, last = int(core[0]), int(core[-1])
    while first > 0 and where[first] - where[first - 1] <= gap:
        first -= 1
    while last < len(where) - 1 and where[last + 1] - where[last] <= gap:
        last += 1
    return where[first : last + 1]
