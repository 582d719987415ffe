"""Rule: channels that are reported by exception hold their values (``fill: hold``)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamad.commands.init.layout import Layout
from streamad.commands.init.reading.kept import blocks_of
from streamad.commands.init.reading.sample import RawSample
from streamad.errors import some_of
from streamad.settings.plant_yaml import Settings
from streamad.types import BoolArray, FloatArray, IntArray

_MOST_PRESENT = 0.8
"""Share of the sample's times at which the channel has a reading."""
_FEWEST_READINGS = 6
_FEWEST_CHANGES = 0.95
"""Share of readings that differ from the one before."""
_MOST_LEVELS = 0.2
"""Different values per reading, of a channel that goes from level to level."""
_LEAST_SILENT = 0.2
"""Share of a sequence's time without a reading, beyond one and a half usual intervals."""
_LATE = 1.5
_LEAST_SPREAD, _SOME_SPREAD = 0.5, 0.1
"""Distance of the quartiles of all intervals, in medians: of a channel by itself, and if most channels hold."""


def note_holding(layout: Layout, sample: RawSample, settings: Settings) -> None:
    """Let channels of messages with one channel each hold if they have a reading only where the value changes.

    Such a channel has few readings, hardly any equal to the one before, and either irregular times or few values. A
    sensor that sends at regular times, however slowly, or repeats its readings does not hold. If most channels of a
    plant hold, less irregular ones are taken to hold as well.
    """
    if layout.form != "per_channel":
        return
    streams = _streams(sample, settings)
    channels = range(len(layout.channels))
    holding = [index for index in channels if _is_by_exception(streams, index, _LEAST_SPREAD)]
    if 2 * len(holding) > len(channels):
        holding = [index for index in channels if index in holding or _is_by_exception(streams, index, _SOME_SPREAD)]
    if not holding:
        return
    layout.channels = [
        replace(line, fill="hold") if index in holding else line for index, line in enumerate(layout.channels)
    ]
    names = [line.name for index, line in enumerate(layout.channels) if index in holding]
    layout.notes.append(
        f"{some_of(names)} {'come' if len(names) > 1 else 'comes'} at irregular times, each reading another value than "
        "the one before, as in reports by exception: the value holds until the next reading (channels[].fill: hold); "
        "if it runs straight from reading to reading, set linear"
    )


_Sequence = tuple[IntArray, FloatArray]
"""Times [n] and readings [n, C] of a sequence, in order of time."""


def _streams(sample: RawSample, settings: Settings) -> list[list[_Sequence]]:
    """Return the sequences of each stream."""
    found: dict[tuple[str, str], dict[str | None, list[_Sequence]]] = {}
    for partition, records in sample.records.items():
        for block in blocks_of(records, sample.decoder(settings)):
            of_stream = found.setdefault((partition, block.stream), {})
            of_stream.setdefault(block.sequence, []).append((block.times_us, block.values))
    return [[_joined(parts) for parts in sequences.values()] for sequences in found.values()]


def _joined(parts: list[_Sequence]) -> _Sequence:
    times_us = np.concatenate([times_us for times_us, _ in parts])
    order = np.argsort(times_us, kind="stable")
    return times_us[order], np.concatenate([values for _, values in parts])[order]


def _is_by_exception(streams: list[list[_Sequence]], channel: int, least_spread: float) -> bool:
    values, n_changes, n_pairs, n_times, silent = list[float](), 0, 0, 0, list[float]()
    intervals = [np.empty(0, dtype=np.int64)]
    for sequences in streams:
        of_stream = []
        for times_us, rows in sequences:
            present: BoolArray = np.isfinite(rows[:, channel])
            of_stream.append(rows[present, channel])
            n_times += len(np.unique(times_us))
            if present.any():
                silent.append(_silent_share(times_us, times_us[present]))
                intervals.append(np.diff(times_us[present]))
        readings = np.concatenate(of_stream)
        n_changes += int(np.count_nonzero(np.diff(readings)))
        n_pairs += max(0, len(readings) - 1)
        values += readings.tolist()
    n = len(values)
    if n < _FEWEST_READINGS or n > _MOST_PRESENT * n_times or n_changes < _FEWEST_CHANGES * n_pairs:
        return False
    return (
        len(set(values)) <= _MOST_LEVELS * n
        or float(np.median(silent)) > _LEAST_SILENT
        or _spread(intervals) > least_spread
    )


def _spread(intervals: list[IntArray]) -> float:
    together = np.concatenate(intervals)
    if len(together) < _FEWEST_READINGS:
        return 0.0
    low, usual, high = np.quantile(together, [0.25, 0.5, 0.75])
    return float((high - low) / max(usual, 1.0))


def _silent_share(times_us: IntArray, readings_us: IntArray) -> float:
    """Return the share of a sequence's time in which a channel was silent beyond its usual interval."""
    span_us = int(times_us[-1] - times_us[0])
    intervals = np.diff(readings_us)
    if span_us == 0 or not len(intervals):
        return 1.0
    usual = float(np.median(intervals))
    stretches = np.diff(readings_us, prepend=times_us[0], append=times_us[-1])
    late = stretches[stretches > _LATE * usual]
    return float((late - usual).sum()) / span_us
