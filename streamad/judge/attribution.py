"""Why an alert was raised: channels and parts of them are replaced by those of normal windows, and scored again.

Shapes: M reference windows, R of them used, C channels, L window length, n samples of the window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.ingest.decode_values import MAX_ID_CHARACTERS
from streamad.judge.calibration import scores_of
from streamad.judge.envelope import Band, Envelope, stretched
from streamad.messages import Direction, NearestSequence
from streamad.ports import Scorer
from streamad.types import FloatArray, IntArray, Window

Course = npt.NDArray[np.float64]
MOST_WINDOWS = 160
"""Windows that one attribution scores at most, all in all."""
_SCORE_BATCH = 256
_BATCH_VALUES = 4_000_000  # bounds the memory of a batch of wide or long windows to 16 MB
_BEST_SHARE = 0.5  # of the replacements count: docs/internals/judging.md


class Replacement(NamedTuple):
    """``course`` float [n] in the place of one channel's n samples."""

    channel: int
    course: npt.NDArray[np.floating]


class Rescoring:
    """Scores ``window`` with replacements; ``before`` is its own score."""

    def __init__(self, scorer: Scorer, window: Window) -> None:
        self._scorer = scorer
        self.window = window
        self.before = float(self._scored(window.values[None])[0])

    def scores(self, replacements: Iterable[Replacement]) -> Course:
        """Return the scores [R] of the window with each of the replacements alone, in bounded batches."""
        rows = max(1, min(_SCORE_BATCH, _BATCH_VALUES // self.window.values.size))
        waiting, found = iter(replacements), [np.empty(0)]
        while batch := list(islice(waiting, rows)):
            values = np.repeat(self.window.values[None], len(batch), axis=0)
            for row, (channel, course) in zip(values, batch, strict=True):
                row[channel, : self.window.length] = course
            found.append(self._scored(values))
        return np.concatenate(found)

    def falls(self, groups: Sequence[Sequence[Replacement]]) -> Course:
        """Return by how much the score falls with each of the groups of equally many replacements.

        That is the mean over the better half of a group, since not every normal course fits the other channels; 0 if
        the score does not fall, or is not finite.
        """
        if not groups:
            return np.empty(0)
        after = self.scores(each for group in groups for each in group).reshape(len(groups), -1)
        better = np.sort(after, axis=1)[:, : math.ceil(after.shape[1] * _BEST_SHARE)].mean(axis=1)
        fall = self.before - better
        fallen: Course = np.where(np.isfinite(fall), np.maximum(fall, 0.0), 0.0)
        return fallen

    def _scored(self, values: npt.NDArray[np.float32]) -> Course:
        return scores_of(self._scorer.score(values, np.full(len(values), self.window.length, dtype=np.int64)))


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


def segments_of(
    rescoring: Rescoring, channel: int, normal: Course, band: Band, *, is_alone: bool = True
) -> list[Segment]:
    """Return the segments of ``channel``, the one with the largest fall of the score first: at least one, at most two.

    ``normal`` [n] is this channel of the nearest normal sequence, stretched to n samples. If no part alone lowers the
    score, or the channel does not (``is_alone``), the whole sequence is the segment. A segment is fitted to the
    readings outside the band, which narrows it, or widens it by at most a part on each side.
    """
    length = rescoring.window.length
    course = rescoring.window.values[channel, :length].astype(np.float64)
    parts = _parts(length) if is_alone else []
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


METHOD = "channel-replacement"
"""Name of the method in attribution messages."""
# Chosen by measurement: docs/internals/judging.md
_NEAREST = 8  # reference windows at most replace a channel
_FEWEST = 2  # at least; if the windows to score do not suffice for that, channels are screened
_SCREENED = 4  # replace each of the screened channels
_MOST_CHANNELS = 3  # have segments
_LEAST_SHARE = 0.05  # of a channel with segments
_FOR_CHANNELS = MOST_WINDOWS - 1 - _MOST_CHANNELS * N_PARTS * N_COURSES
TOGETHER = "no channel alone lowers the score: shares say how far each lies outside the band"
_NAMED = 3  # normal sequences are named in the message
_NAME_CHARACTERS = 2 * MAX_ID_CHARACTERS + 1  # a stream's id, "/", and a sequence's


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Normal windows to compare with: ``values`` float32 [M, C, L] in engineering units, ``lengths`` int64 [M].

    ``names`` [M] are the sequences' printable names ("stream/sequence"); empty: they are not named.
    """

    values: FloatArray
    lengths: IntArray
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fits = self.values.ndim == 3 and self.lengths.shape == self.values.shape[:1] and len(self.lengths) > 0
        if not fits or self.lengths.min() < 1 or self.lengths.max() > self.values.shape[2]:
            raise ArtifactError(
                f"reference windows {self.values.shape} with lengths {self.lengths.shape} do not fit: train again"
            )
        if len(self.names) not in (0, len(self.lengths)):
            raise ArtifactError(f"{len(self.lengths)} reference windows with {len(self.names)} names: train again")

    def stretched(self, index: int, to_length: int) -> FloatArray:
        """Return the channels of one window, float32 [C, ``to_length``], stretched in time to that length."""
        return stretched(self.values[index], int(self.lengths[index]), to_length).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Each channel's share [C] of the fall of the score when channels are replaced; sum 1, or all 0.

    If no channel alone lowers the score, the shares are of what lies outside the band.

    ``nearest`` names normal sequences that the channels were replaced from: three at most, the nearest first.
    ``segments`` say when the channels with the largest shares depart from normal, in the order of the shares.
    ``detail`` says what the explanation leaves out, None if nothing.
    """

    shares: npt.NDArray[np.float64]
    nearest: tuple[NearestSequence, ...]
    segments: tuple[Segment, ...] = ()
    detail: str | None = None


def printable(name: str) -> str:
    """Return ``name`` cut to 513 characters, each that cannot be printed (control, direction) replaced by U+FFFD.

    Names come from recordings and go to terminals, messages and numpy's text, which ends at trailing zeros.
    """
    cut = name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut)


def reference_windows(
    values: FloatArray,
    lengths: IntArray,
    scores: npt.NDArray[np.floating],
    names: Sequence[str] = (),
    *,
    m: int = 24,
) -> Reference:
    """Choose at most ``m`` normal windows of values [N, C, L] with ``names`` [N].

    They are spread over the lengths within the half with the lowest ``scores`` [N], which holds no anomaly.
    """
    lowest = np.argsort(scores, kind="stable")[: max(m, len(scores) // 2)]
    by_length = lowest[np.argsort(lengths[lowest], kind="stable")]
    chosen = by_length[np.unique(np.linspace(0, len(by_length) - 1, m).round().astype(np.int64))]
    chosen_names = tuple(printable(names[i]) for i in chosen) if names else ()
    return Reference(values[chosen], lengths[chosen].astype(np.int64), chosen_names)


def explain(scorer: Scorer, window: Window, reference: Reference, envelope: Envelope | None = None) -> Explanation:
    """Return why ``window`` has its score, in comparison with the nearest of the reference windows.

    It is a pure function and scores at most ``MOST_WINDOWS`` windows. Without ``envelope`` the normal band is that of
    the reference windows.
    """
    normal = envelope if envelope is not None else Envelope.of(reference.values, reference.lengths)
    band = normal.band(window.length)
    distances = _distances(window, reference)
    used = np.argsort(distances, kind="stable")[:_NEAREST]
    named = used[: _NAMED if reference.names else 0].tolist()
    nearest = tuple(NearestSequence(sequence=reference.names[i], distance=float(distances[i])) for i in named)
    courses = np.stack([reference.stretched(i, window.length) for i in used.tolist()])
    rescoring = Rescoring(scorer, window)
    channels, detail = _screened(window, band, len(courses))
    shares = _channel_shares(rescoring, courses, channels)
    if not (is_alone := bool(shares.any())) and (shares := _shares_outside(window, band)).any():
        detail = "; ".join(text for text in (TOGETHER, detail) if text)
    segments = [
        segment
        for channel in np.argsort(-shares, kind="stable")[:_MOST_CHANNELS].tolist()
        if shares[channel] >= _LEAST_SHARE
        for segment in segments_of(rescoring, channel, courses[0, channel], band, is_alone=is_alone)
    ]
    return Explanation(shares, nearest, tuple(segments), detail)


def _screened(window: Window, band: Band, n_courses: int) -> tuple[IntArray, str | None]:
    """Return the channels that are replaced, and what the message says if these are not all.

    If each channel cannot be replaced twice, those that lie furthest from the band can be four times.
    """
    n_channels = len(window.values)
    if min(_FEWEST, n_courses) * n_channels <= _FOR_CHANNELS:
        return np.arange(n_channels), None
    n_kept = _FOR_CHANNELS // _SCREENED
    oddest = np.argsort(-band.deviation(window.values[:, : window.length]), kind="stable")[:n_kept]
    return np.sort(oddest), (
        f"{n_channels} channels are too many to replace each: the shares are of the {n_kept} that lie furthest from "
        "their normal band"
    )


def _channel_shares(rescoring: Rescoring, courses: FloatArray, channels: IntArray) -> npt.NDArray[np.float64]:
    """Return each channel's share [C]; 0 for those not among ``channels``.

    Counterfactual: each channel in turn is replaced by that of the nearest normal windows, courses [R, C, n] of this
    window's length, and the model scores the results. A channel counts with the mean fall over its better half of
    replacements, since not every normal course fits the other channels, and 0 if the score does not fall.
    """
    n_courses = min(len(courses), _FOR_CHANNELS // len(channels))
    fall = np.zeros(courses.shape[1])
    fall[channels] = rescoring.falls(
        [[Replacement(channel, course[channel]) for course in courses[:n_courses]] for channel in channels.tolist()]
    )
    total = float(fall.sum())
    return fall / total if total > 0 and np.isfinite(total) else np.zeros(len(fall))


def _shares_outside(window: Window, band: Band) -> npt.NDArray[np.float64]:
    """Return each channel's share [C] of what lies outside the band, in widths of the band; all 0 if nothing does.

    Of channels that belong together, one that is replaced alone fits the others no better: the score does not fall.
    """
    courses = window.values[:, : window.length].astype(np.float64)
    outside = np.array([(band.above(c, each) + band.below(c, each)).mean() for c, each in enumerate(courses)])
    outside /= band.width
    total = float(outside.sum())
    return outside / total if total > 0 and np.isfinite(total) else np.zeros(len(outside))


def _distances(window: Window, reference: Reference) -> npt.NDArray[np.float64]:
    """Return the distances [M] of the stretched reference windows from ``window``, in spreads of a channel.

    Root mean square differences over time; their median over channels ignores anomalous ones. One reference window
    after the other is stretched, which bounds the memory of wide and long windows.
    """
    ours = window.values[:, : window.length].astype(np.float64)
    squares, means, variances = [], [], []
    for index in range(len(reference.lengths)):
        theirs = reference.stretched(index, window.length).astype(np.float64)
        squares.append(np.square(theirs - ours).mean(axis=1))
        means.append(theirs.mean(axis=1))
        variances.append(theirs.var(axis=1))
    variance = np.mean(variances, axis=0) + np.var(means, axis=0)  # of all of them together: they are of one length
    distances: npt.NDArray[np.float64] = np.sqrt(np.median(squares / np.where(variance > 0, variance, 1.0), axis=1))
    return distances
