"""What is known of a sequence while it runs: its course so far, and the window of a look at it. Pure.

Law (tests/unit/judge/early/test_course.py): the course of the samples up to a point is the beginning of that of all
samples, bit for bit. So a look at a running sequence, at a finished one and at a stored course sees the same window.
That is why a course holds the newest reading at each point: values between two readings, which the window of a finished
sequence has, would tell a look in training what a look at a running sequence cannot know.

Shapes: n samples, C channels, G points of the course.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamad.ingest.windowing import MAX_GRID_POINTS, silent_share
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import BoolArray, ChannelSpec, FinishedSequence, FloatArray, IntArray, Window

FEWEST_POINTS = 2
"""A look at a single point would see no course."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Each channel's newest reading at each point: ``values`` float32 [C, G], NaN before the first one.

    ``own`` bool [C, G] says where a reading came since the point before. Points are those of ``window.resample``, else
    the samples. Of a ``whole`` course that is longer than the window only the beginning is kept: no look sees more.
    """

    values: FloatArray
    own: BoolArray
    whole: int | None = None

    def __len__(self) -> int:
        return int(self.values.shape[1]) if self.whole is None else self.whole

    def up_to(self, n: int) -> Course:
        """Return its first ``n`` points."""
        return Course(self.values[:, :n], self.own[:, :n])


def n_seen(settings: WindowSettings, n_samples: int, span_us: int) -> int:
    """Return how many points of a course lie before its last sample: no sample that may still come changes them."""
    if settings.resample is None:
        return n_samples - 1
    return min(-(-span_us // settings.resample.period), MAX_GRID_POINTS)


def n_seen_of(sequence: FinishedSequence, settings: WindowSettings) -> int:
    """Return ``n_seen`` of a sequence: up to its last sample, also if its end is known to lie behind it."""
    return n_seen(settings, len(sequence.times_us), int(sequence.times_us[-1]) - sequence.start_us)


def whole_course(sequence: FinishedSequence, settings: WindowSettings) -> Course:
    """Return the course of a finished sequence, as far as looks at it see it."""
    n_points = n_seen_of(sequence, settings)
    seen = course_of(sequence, settings, min(n_points, settings.length))
    return Course(seen.values, seen.own, n_points)


def course_of(sequence: FinishedSequence, settings: WindowSettings, n_points: int) -> Course:
    """Return the first ``n_points`` points of the course of ``sequence``.

    On a grid the samples may end before the last of them, if a later time has come since: the newest readings stand
    there. A channel that holds begins with the reading that the sequence carries on.
    """
    newest = _newest(sequence)
    n_read = np.isfinite(sequence.values).cumsum(axis=0)
    if settings.resample is not None:
        at_us = sequence.start_us + np.arange(n_points, dtype=np.int64) * settings.resample.period
        last: IntArray = np.searchsorted(sequence.times_us, at_us, side="right")
        # Before the first sample, if the sequence began before it, lies what it carries on.
        newest = np.concatenate([_carried(sequence), newest])[last]
        n_read = np.concatenate([np.zeros_like(n_read[:1]), n_read])[last]
    own = np.diff(n_read[:n_points], axis=0, prepend=0) > 0
    return Course(np.ascontiguousarray(newest[:n_points].T), np.ascontiguousarray(own.T))


def _carried(sequence: FinishedSequence) -> FloatArray:
    """Return the readings that the sequence carries on, float32 [1, C], NaN for none."""
    none = np.full((1, sequence.values.shape[1]), np.nan, dtype=sequence.values.dtype)
    return none if sequence.carried is None else sequence.carried[None].astype(sequence.values.dtype)


def _newest(sequence: FinishedSequence) -> FloatArray:
    """Return the newest reading of each channel at each sample, float32 [n, C], NaN before the first one."""
    values = sequence.values
    if sequence.carried is not None:
        first = np.where(np.isnan(values[:1]), _carried(sequence), values[:1])
        values = np.concatenate([first, values[1:]])
    has = np.isfinite(values)
    if has.all():
        return values
    place = np.maximum.accumulate(np.where(has, np.arange(len(values))[:, None], 0), axis=0)
    newest: FloatArray = np.take_along_axis(values, place, axis=0)
    return newest


def look_at(course: Course, n: int, settings: WindowSettings, channels: Sequence[ChannelSpec]) -> Window | None:
    """Return the window [C, n] of a look at the first ``n`` points of ``course``, None if there is no look.

    There is none if the course does not reach so far, or if more than ``max_missing`` of a channel is missing. What
    lies before a channel's first reading gets that one.
    """
    if len(course) < n:
        return None
    seen = course.up_to(n)
    if any(
        _missing_share(values, own, settings, holds=channel.fill == "hold") > settings.max_missing
        for values, own, channel in zip(seen.values, seen.own, channels, strict=True)
    ):
        return None
    values = seen.values.copy()
    has = np.isfinite(values)
    if not has.any(axis=1).all():
        return None
    for channel in np.flatnonzero(~has[:, 0]).tolist():
        first = int(has[channel].argmax())
        values[channel, :first] = values[channel, first]
    return Window(values, n)


def _missing_share(values: FloatArray, own: BoolArray, settings: WindowSettings, *, holds: bool) -> float:
    """Return the share of a channel that is missing, as ``to_window`` counts it; times count in points."""
    if holds:
        return float(np.isnan(values).mean())
    if settings.resample is None:
        return 1.0 - float(own.mean())
    readings = np.flatnonzero(own).astype(np.float64)
    return silent_share(readings, float(len(own) - 1), 1.0) if len(readings) else 1.0
