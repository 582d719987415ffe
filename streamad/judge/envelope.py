"""The envelope: within which values the normal training windows of a model lie, per channel and point.

Shapes: N windows, C channels, L window length, n valid samples of a window, Q levels of the envelope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.types import FloatArray, IntArray

Course = npt.NDArray[np.float64]
Clock: TypeAlias = Literal["own", "aligned"]
"""own: compared at equal times since the beginning. aligned: at equal shares of the time from beginning to end."""
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
"""The quantiles that an envelope holds, the lowest and the highest value among them."""
_LOWEST, _LOW, _MIDDLE, _HIGH, _HIGHEST = (LEVELS.index(level) for level in (0.0, 0.05, 0.5, 0.95, 1.0))
_MIN_SHARE = 0.25  # of the windows must reach a point for the band on the sequence's own clock to count there
_CLEARLY = 0.8  # of the width on the own clock: a narrower band of stretched windows is taken
_MARGIN = 0.5  # widths of the band beyond its edge from which on a reading is outside, or the training's extreme
_FLOOR = 0.05  # of the channel's usual width: a band is at least so wide where deviations are divided by it
_ROUNDING = 1e-6  # of the largest value: so much do equal readings differ as float32


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The normal band for a window of n samples: float64 [C, n] each.

    From ``low`` (5 %) to ``high`` (95 %) around ``middle`` lie normal readings; those beyond ``bottom`` and ``top`` are
    outside. ``lowest`` and ``highest`` are the extremes of training. ``width`` [C] is the usual distance of the edges,
    above 0, also of a channel that stands still.
    """

    low: Course
    middle: Course
    high: Course
    bottom: Course
    top: Course
    lowest: Course
    highest: Course
    width: Course

    def above(self, channel: int, course: Course) -> Course:
        """Return how far each reading of the course [n] lies above the band's edge; 0 where it is not outside."""
        outside: Course = np.where(course > self.top[channel], course - self.high[channel], 0.0)
        return outside

    def below(self, channel: int, course: Course) -> Course:
        """Return how far each reading of the course [n] lies below the band's edge; 0 where it is not outside."""
        outside: Course = np.where(course < self.bottom[channel], self.low[channel] - course, 0.0)
        return outside

    def deviation(self, values: FloatArray) -> Course:
        """Return how odd each channel of values [C, n] is, [C]: the root mean square distance from the middle.

        In widths of the band. Short faults count by their tenth of the sequence with the largest distances.
        """
        width = np.maximum(self.high - self.low, _FLOOR * self.width[:, None])
        squares = np.sort(np.square((values - self.middle) / width), axis=1)[:, ::-1]
        most: Course = np.sqrt(squares[:, : -(-squares.shape[1] // 10)].mean(axis=1))
        return most


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """The levels float32 [Q, C, L] of N windows, twice, and how many windows each of the L points has (int64 [L]).

    ``clock``: at the points of the window's own grid; a point that only longer sequences than all have is 0 with
    ``clock_n`` 0. ``phase``: each window stretched to L points, so that point 0 is its beginning and L - 1 its end.
    """

    clock: FloatArray
    clock_n: IntArray
    phase: FloatArray
    phase_n: IntArray

    def __post_init__(self) -> None:
        n_channels, length = self.clock.shape[1:] if self.clock.ndim == 3 else (0, 0)
        fits = n_channels > 0 and length > 0
        for levels, counts in ((self.clock, self.clock_n), (self.phase, self.phase_n)):
            fits = fits and levels.shape == (len(LEVELS), n_channels, length) and counts.shape == (length,)
            fits = fits and bool(np.isfinite(levels).all() and (np.diff(levels, axis=0) >= 0).all())
            fits = fits and bool((counts >= 0).all())
        if not fits or not self.phase_n.all():
            raise ArtifactError("the envelope does not hold ascending levels for each channel and point: train again")

    @property
    def shape(self) -> tuple[int, int]:
        """Return (C, L)."""
        return self.clock.shape[1], self.clock.shape[2]

    @classmethod
    def of(cls, values: FloatArray, lengths: IntArray) -> Envelope:
        """Return the envelope of the windows [N, C, L] with ``lengths`` [N], N >= 1."""
        n, n_channels, length = values.shape
        clock, phase = (np.zeros((len(LEVELS), n_channels, length), np.float32) for _ in range(2))
        is_valid = np.arange(length) < lengths[:, None]
        clock_n, phase_n = is_valid.sum(axis=0).astype(np.int64), np.full(length, n, np.int64)
        for channel in range(n_channels):
            courses = values[:, channel]
            clock[:, channel] = _levels(np.where(is_valid, courses, np.inf), clock_n)
            phase[:, channel] = _levels(_stretched_courses(courses, lengths, length), phase_n)
        return cls(clock, clock_n, phase, phase_n)

    def clock_band(self) -> Band:
        """Return the band on the sequence's own clock, of the points that enough of the training windows reach."""
        n_points = int((self.clock_n >= max(1.0, _MIN_SHARE * int(self.clock_n.max()))).sum())
        return _band(self.clock[:, :, :n_points].astype(np.float64))

    def band(self, length: int, clock: Clock | None = None) -> Band:
        """Return the band for a window of ``length`` samples on a ``clock``, None: on that of ``clock_for``.

        On its own clock the band is NaN at points that no training window reaches.
        """
        return _band(self._aligned(length) if (clock or self.clock_for(length)) == "aligned" else self._own(length))

    def clock_for(self, length: int) -> Clock:
        """Return the clock of the band that a window of ``length`` samples is compared with.

        It is the sequence's own clock if all training windows have this length, or if enough of them reach the end and
        they do not agree clearly better stretched to equal length. Stretching smooths: it is the second choice.
        """
        n, last = int(self.clock_n.max()), int(self.clock_n[length - 1])
        if last < max(1.0, _MIN_SHARE * n):
            return "aligned"
        is_only_length = last == n and not self.clock_n[length:].any()
        is_own = is_only_length or _mean_width(self._own(length)) * _CLEARLY <= _mean_width(self._aligned(length))
        return "own" if is_own else "aligned"

    def _own(self, length: int) -> Course:
        """Return the levels [Q, C, n] at equal times since the beginning; NaN where there is no window."""
        return np.where(self.clock_n[:length] > 0, self.clock[:, :, :length].astype(np.float64), np.nan)

    def _aligned(self, length: int) -> Course:
        """Return the levels [Q, C, n] at equal shares of each window."""
        by_phase = stretched(self.phase.reshape(-1, self.phase.shape[2]), self.phase.shape[2], length)
        levels: Course = by_phase.reshape(*self.phase.shape[:2], length)
        return levels


def _band(levels: Course) -> Band:
    """Return the band of levels [Q, C, n]."""
    low, high = levels[_LOW], levels[_HIGH]
    widths, largest = high - low, np.abs(levels).max(axis=(0, 2))
    width = np.maximum(widths.mean(axis=1), np.maximum(_ROUNDING * largest, np.finfo(np.float32).tiny))
    margin = np.maximum(_MARGIN * widths, _ROUNDING * largest[:, None])
    bottom = np.maximum(levels[_LOWEST] - _ROUNDING * largest[:, None], low - margin)
    top = np.minimum(levels[_HIGHEST] + _ROUNDING * largest[:, None], high + margin)
    return Band(low, levels[_MIDDLE], high, bottom, top, levels[_LOWEST], levels[_HIGHEST], width)


def _mean_width(levels: Course) -> float:
    """Return the mean width of the bands of levels [Q, C, n], each channel's in its own range."""
    extent = levels[_HIGHEST].max(axis=1) - levels[_LOWEST].min(axis=1)
    shares = (levels[_HIGH] - levels[_LOW]).mean(axis=1) / np.where(extent > 0, extent, 1.0)
    return float(shares.mean())


def _levels(courses: FloatArray, counts: IntArray) -> FloatArray:
    """Return the quantiles [Q, L] of the lowest ``counts`` [L] of the courses [N, L]; 0 where there is none."""
    ordered = np.sort(courses, axis=0)
    last, points = np.maximum(counts - 1, 0), np.arange(courses.shape[1])
    at = np.multiply.outer(np.array(LEVELS), last)
    below = np.floor(at).astype(np.int64)
    lower, upper = ordered[below, points], ordered[np.minimum(below + 1, last), points]
    weight = at - below
    with np.errstate(invalid="ignore"):  # infinities where no window reaches
        levels = lower.astype(np.float64) * (1.0 - weight) + upper.astype(np.float64) * weight
    rounded = np.where(counts > 0, levels, 0.0).astype(np.float32)
    ascending: FloatArray = np.maximum.accumulate(rounded, axis=0)
    return ascending


def _stretched_courses(courses: FloatArray, lengths: IntArray, to_length: int) -> FloatArray:
    """Return one channel of N windows, [N, L], each stretched from its own length to ``to_length``."""
    found = np.empty((len(courses), to_length), np.float32)
    for length in np.unique(lengths).tolist():
        rows = lengths == length
        found[rows] = stretched(courses[rows], length, to_length)
    return found


def stretched(courses: npt.NDArray[np.floating], length: int, to_length: int) -> Course:
    """Return the first ``length`` samples of courses [C, L], linearly stretched in time to ``to_length`` samples."""
    at = np.linspace(0.0, length - 1, to_length)
    before = np.minimum(at.astype(np.int64), max(0, length - 2))
    weight, after = at - before, np.minimum(before + 1, length - 1)
    wide = courses[:, :length].astype(np.float64)
    between: Course = wide[:, before] * (1.0 - weight) + wide[:, after] * weight
    return between
