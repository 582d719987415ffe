"""Sequences to windows: missing values are filled, times put onto a grid, the length made L. Pure.

Shapes: n samples, C channels, L window length, G points in time at which a window is read (G <= L).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.language import percent
from streamad.settings.plant_yaml import Settings, WindowSettings
from streamad.types import ChannelSpec, FinishedSequence, FloatArray, IntArray, Window

MAX_GRID_POINTS = 1_000_000
"""A sequence with a longer grid is unscorable: its times or the period are wrong."""
_MAX_SPAN_US = 2**53  # 285 years: float64 holds every whole microsecond below
_MISSING = re.compile(r"(channel .*): [0-9]+\s?% ")
_SETTING = re.compile(r"\((window\.[a-z_.]+)")
_REASON_CHARACTERS = 100
_LATE_READING = 1.5  # usual intervals without a reading after which a channel is silent

_Times: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Unscorable:
    """The reason why a sequence gets no score, for the engineer of the plant."""

    detail: str

    @property
    def reason(self) -> str:
        """Return the detail without the sequence's own figures, so that equal reasons can be counted."""
        if channel := _MISSING.match(self.detail):
            return f"{channel[1]}: too much is missing (window.max_missing)"
        head, colon, _ = self.detail.partition(": ")
        setting = _SETTING.search(self.detail)
        return f"{head} ({setting[1]})" if colon and setting else head[:_REASON_CHARACTERS]


class _RefusedError(Exception):
    """Raised inside this module if a sequence is unscorable."""


def judged_window(
    sequence: FinishedSequence, settings: Settings, channels: Sequence[ChannelSpec]
) -> Window | Unscorable:
    """Return the window of ``sequence`` that is judged (``to_window``), or why it has none.

    A sequence that lost more samples than ``sequences.max_late`` and ``sequences.max_merged`` allow has none.
    """
    limits, n = settings.sequences, sequence.n_came
    if not sequence.partial and not sequence.is_late:
        if sequence.n_late > limits.max_late * n:
            what, limit = f"late_samples: {sequence.n_late} of {n} samples came too late", limits.max_late
            return Unscorable(f"{what}, allowed are {percent(limit, None)} (sequences.max_late)")
        if sequence.displaced > limits.max_merged * n:
            what, limit = f"merged_samples: {sequence.displaced} of {n} samples", limits.max_merged
            replaced = "replaced another value of the same time"
            return Unscorable(f"{what} {replaced}, allowed are {percent(limit, None)} (sequences.max_merged)")
    return to_window(sequence, settings.window, channels)


def to_window(
    sequence: FinishedSequence, settings: WindowSettings, channels: Sequence[ChannelSpec] | None = None
) -> Window | Unscorable:
    """Return the sequence in model form, float32 [C, L] in engineering units, or why it has none.

    Missing values are interpolated over time between a channel's readings and held at the edges. ``max_missing`` is
    checked before that, per channel, over the part of the sequence in the window: without a grid as the share of
    samples without a value, with a grid as the share of time in which the channel is silent beyond its usual interval
    (``silent_share``), so that slow sensors pass. ``channels`` gives the names for refusals, and says which hold. The
    result holds no NaN or infinity and is zero from its length on. A grid covers the whole sequence from its beginning
    to its end, also where these are known and no sample lies there.

    The value of a channel that holds stays until its next reading, from the one that the sequence carries on; only what
    lies before the first reading is missing, and gets that value.
    """
    if settings.resample is not None and (sequence.begun_us, sequence.ended_us) != (None, None):
        sequence = _whole(sequence)
    try:
        n_points = _check(sequence, settings, channels)
        if settings.resample is None and n_points <= settings.length:
            window = _pad(sequence.values[:n_points].T, settings.length)
            if np.count_nonzero(np.isfinite(window.values)) == window.values.size:
                return window
        return _filled(sequence, settings, channels, n_points)
    except _RefusedError as refusal:
        return Unscorable(str(refusal))


def _whole(sequence: FinishedSequence) -> FinishedSequence:
    """Return ``sequence`` with a row without readings at its beginning and its end, where no sample lies."""
    times_us = np.unique([sequence.start_us, *sequence.times_us.tolist(), sequence.end_us])
    values = np.full((len(times_us), sequence.values.shape[1]), np.nan, dtype=sequence.values.dtype)
    values[np.searchsorted(times_us, sequence.times_us)] = sequence.values
    return msgspec.structs.replace(sequence, times_us=times_us, values=values)


def shown_share(settings: WindowSettings, n_samples: int, span_us: int) -> float:
    """Return the share of a sequence's time that its window holds; below 1 if it is truncated, or its grid ends before.

    Without ``resample`` the samples of a truncated sequence count as evenly spaced.
    """
    if span_us <= 0 or n_samples < 2:
        return 1.0
    most = settings.length if settings.longer == "truncate" else MAX_GRID_POINTS
    if settings.resample is not None:
        period_us = settings.resample.period
        return min(span_us // period_us, most - 1) * period_us / span_us
    return min(1.0, (most - 1) / (n_samples - 1)) if settings.longer == "truncate" else 1.0


def _check(sequence: FinishedSequence, settings: WindowSettings, channels: Sequence[ChannelSpec] | None) -> int:
    """Return the largest number of points in the window; nothing is allocated by the length of time."""
    n_channels = sequence.values.shape[1]
    if sequence.is_late:
        raise _RefusedError("late: all samples came later than sequences.allowed_lateness allows")
    if sequence.partial:
        raise _RefusedError("partial: the beginning of the sequence may not have been seen")
    if channels is not None and n_channels != len(channels):
        raise _RefusedError(f"wrong channels: the sequence has {n_channels}, the plant has {len(channels)}")
    if sequence.n_samples < settings.min_samples:
        raise _RefusedError(
            f"too few samples: {sequence.n_samples}, needed are {settings.min_samples} (window.min_samples)"
        )
    times_us = sequence.times_us
    if np.count_nonzero(times_us[1:] > times_us[:-1]) != len(times_us) - 1:
        raise _RefusedError("times do not increase from sample to sample")
    span_us = sequence.end_us - sequence.start_us
    if span_us >= _MAX_SPAN_US:
        raise _RefusedError(f"time span too long: {span_us / 1e6:g} s")
    n_points = sequence.n_samples if settings.resample is None else _grid_points(span_us, settings)
    if n_points > settings.length and settings.longer == "reject":
        raise _RefusedError(
            f"too long: {n_points} points, the window holds {settings.length} (window.longer is reject)"
        )
    return min(n_points, settings.length) if settings.longer == "truncate" else n_points


def _grid_points(span_us: int, settings: WindowSettings) -> int:
    assert settings.resample is not None
    period_us = settings.resample.period
    n_points = span_us // period_us + 1
    if n_points > MAX_GRID_POINTS:
        raise _RefusedError(
            f"time span too long for the grid: {span_us / 1e6:g} s at one point per {period_us / 1e6:g} s "
            f"(window.resample.period) are {n_points} points, at most {MAX_GRID_POINTS} are allowed"
        )
    if n_points < settings.min_samples:
        raise _RefusedError(
            f"too short for the grid: {span_us / 1e6:g} s at one point per {period_us / 1e6:g} s "
            f"give {n_points} points, needed are {settings.min_samples} (window.min_samples)"
        )
    return n_points


def _pad(values: npt.NDArray[np.floating], length: int) -> Window:
    n_channels, n_points = values.shape
    padded = np.zeros((n_channels, length), dtype=np.float32)
    if values.dtype == np.float32:
        padded[:, :n_points] = values
    else:
        with np.errstate(over="ignore"):
            padded[:, :n_points] = values
    return Window(padded, n_points)


def _filled(
    sequence: FinishedSequence, settings: WindowSettings, channels: Sequence[ChannelSpec] | None, n_points: int
) -> Window:
    times = _since_start(sequence.times_us)
    at = _reading_times(times, settings, n_points)
    shown_us = float(at[-1]) if settings.resample is not None or n_points <= settings.length else float(times[-1])
    has = np.isfinite(sequence.values)
    complete = has.all(axis=0)
    n_channels = has.shape[1]
    holds = np.array([channel.fill == "hold" for channel in channels or ()] or [False] * n_channels)
    complete &= ~holds
    values = np.empty((n_channels, len(at)))
    if complete.any():
        _check_missing(times, times, shown_us, settings, "(any)")
        values[complete] = _read(times, sequence.values[:, complete], at)
    for index in np.flatnonzero(~complete).tolist():
        name = channels[index].name if channels is not None else f"number {index}"
        readings, own = times[has[:, index]], sequence.values[has[:, index], index]
        if holds[index]:
            if not has[0, index] and sequence.carried is not None and np.isfinite(sequence.carried[index]):
                readings, own = _carried_on(readings, own, sequence.carried[index], at)
            _check_begun(times, readings, shown_us, settings, name)
            values[index] = own[np.maximum(np.searchsorted(readings, at, side="right") - 1, 0)]
            continue
        _check_missing(times, readings, shown_us, settings, name)
        values[index] = np.interp(at, readings, own)
    window = _pad(values, settings.length)
    if not np.isfinite(window.values).all():
        raise _RefusedError("values too large for 32-bit numbers")
    return window


def _carried_on(readings: _Times, values: FloatArray, carried: np.floating, at: _Times) -> tuple[_Times, FloatArray]:
    """Return the readings of a channel that begins with the value ``carried``.

    If a channel's first own reading lies nearer to the first point than to the second one, it stands at the first:
    tags that are sent one after the other would else begin each sequence with a value of the one before.
    """
    if len(readings) and len(at) > 1 and readings[0] < at[1] / 2:
        return np.insert(readings[1:], 0, 0.0), values
    return np.insert(readings, 0, 0.0), np.insert(values, 0, carried)


def _read(times: _Times, values: npt.NDArray[np.floating], at: _Times) -> _Times:
    """Return values [n, C] linearly interpolated at the times ``at``, float64 [C, G]; none of them is missing."""
    if len(times) == 1:
        return np.repeat(values.T.astype(np.float64), len(at), axis=1)
    left = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(times) - 2)
    weight = np.clip((at - times[left]) / (times[left + 1] - times[left]), 0.0, 1.0)[:, None]
    wide = values.astype(np.float64)
    between: _Times = wide[left] * (1.0 - weight) + wide[left + 1] * weight
    return between.T


def _since_start(times_us: IntArray) -> _Times:
    since: _Times = (times_us - times_us[0]).astype(np.float64)
    return since


def _reading_times(times: _Times, settings: WindowSettings, n_points: int) -> _Times:
    """Return the microseconds since the start at which the window is read, float64 [G].

    A longer sequence is squeezed onto L uniform points directly from its samples, without a grid in between.
    """
    end_us = float(times[-1])
    if settings.resample is not None:
        end_us = float((n_points - 1) * settings.resample.period)
    if n_points > settings.length:
        return np.linspace(0.0, end_us, settings.length)
    if settings.resample is None:
        return times[:n_points]
    return np.arange(n_points, dtype=np.float64) * settings.resample.period


def _check_missing(times: _Times, readings: _Times, shown_us: float, settings: WindowSettings, name: str) -> None:
    """Refuse a channel whose ``readings`` (times of its values) cover too little of [0, ``shown_us``]."""
    readings = readings[readings <= shown_us]
    if not len(readings):
        raise _RefusedError(f"channel {name} has no value in the sequence")
    if settings.resample is None:
        n_shown = int((times <= shown_us).sum())
        share, what = (n_shown - len(readings)) / n_shown, "of its samples are missing"
    else:
        share, what = silent_share(readings, shown_us, settings.resample.period), "of the time without a reading"
    _check_share(share, what, settings, name)


def _check_begun(times: _Times, readings: _Times, shown_us: float, settings: WindowSettings, name: str) -> None:
    """Refuse a channel that holds if too much of [0, ``shown_us``] lies before the first of its ``readings``."""
    if not len(readings) or readings[0] > shown_us:
        raise _RefusedError(f"channel {name} has no value in the sequence, nor before it")
    if settings.resample is None:
        shown = times[times <= shown_us]
        share, what = float((shown < readings[0]).mean()), "of its samples lie before its first reading"
    else:
        share, what = float(readings[0]) / max(shown_us, 1.0), "of the time lies before its first reading"
    _check_share(share, what, settings, name)


def _check_share(share: float, what: str, settings: WindowSettings, name: str) -> None:
    if share > settings.max_missing:
        raise _RefusedError(
            f"channel {name}: {percent(share)} {what}, allowed are {percent(settings.max_missing)} (window.max_missing)"
        )


def silent_share(readings: _Times, shown_us: float, period_us: float) -> float:
    """Return the share of [0, ``shown_us``] in which a channel was silent beyond its usual interval.

    The usual interval is the median distance of its readings, at least the grid's period and at most half of
    ``shown_us``. A stretch without reading (also before the first and after the last one) of more than one and a half
    usual intervals counts with its length beyond one interval.
    """
    intervals = np.diff(readings)
    usual_us = period_us
    if len(intervals):
        usual_us = max(usual_us, min(float(np.median(intervals)), shown_us / 2))
    stretches = np.diff(readings, prepend=0.0, append=shown_us)
    silent = stretches[stretches > _LATE_READING * usual_us] - usual_us
    return float(silent.sum() / shown_us) if len(silent) else 0.0
