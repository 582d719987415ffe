"""An open sequence: its samples so far, in time order.

If all samples of a sequence came late, it is a ``LateEntry`` instead, so that it still gets a verdict.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from streamad.ingest.sequences.clocks import Clocks
from streamad.ingest.sequences.held_readings import Held
from streamad.ingest.sequences.runs import Routes, Run, differs, joined_routes
from streamad.messages import EndReason
from streamad.partition_progress import LooksTaken
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import FinishedSequence, FloatArray, IntArray, from_us

MAX_LATE_ENTRIES = 1_000
"""Open entries of a stream, and ended ones that are remembered: the oldest ends or is forgotten first."""


@dataclass(frozen=True, slots=True, eq=False)
class LateSamples:
    """Samples in no sequence: theirs is closed, or they came beyond ``allowed_lateness``.

    ``merged`` counts the samples merged into them before.
    """

    stream: str
    sequence: str | None
    closed: bool
    offset: int
    times_us: IntArray
    values: FloatArray
    merged: int = 0


class LateEntry:
    """The late samples of a sequence that is neither open nor closed: their times and number, not their values.

    ``position`` is that of the first of them, ``before`` holds the clocks before its record; ``since_us`` is its clock.
    ``seen_us`` is the newest clock of all: a chunk may hold samples from behind the limit, and they are read again.
    """

    __slots__ = ("before", "first_us", "key", "last_us", "n", "n_channels", "position", "seen_us", "since_us")

    def __init__(self, run: Run) -> None:
        self.key = run.sequence
        self.position = run.position
        self.before: Clocks = run.before
        self.since_us = self.seen_us = max(run.arrived_us, run.first_us)
        self.first_us, self.last_us = run.first_us, run.last_us
        self.n = 0
        self.n_channels = run.values.shape[1]

    def add(self, run: Run) -> None:
        """Count the samples of ``run``."""
        self.first_us, self.last_us = min(self.first_us, run.first_us), max(self.last_us, run.last_us)
        self.seen_us = max(self.seen_us, run.arrived_us, run.last_us)
        self.n += len(run)

    def finish(self, stream: str, batch: tuple[tuple[str, str], ...] = ()) -> FinishedSequence:
        """Return the sequence with reason ``late``: its first and last time, and no readings. It has an id."""
        assert self.key is not None
        times_us = np.unique(np.array([self.first_us, self.last_us], dtype=np.int64))
        values = np.full((len(times_us), self.n_channels), np.nan, dtype=np.float32)
        return FinishedSequence(stream, self.key, "late", times_us, values, self.position, n_late=self.n, batch=batch)


_PART_BYTES = 250
"""Two arrays and their places in the lists."""
_MOST_COPIED = 32
"""Samples that come together and are fewer are copied: arrays of their own would take far more memory."""
_SMALLEST_BUFFER, _LARGEST_BUFFER = 4, 256
_NO_MAXIMA: FloatArray = np.empty(0, dtype=np.float32)
_NO_TIMES: IntArray = np.empty(0, dtype=np.int64)
_NO_ROWS: FloatArray = np.empty((0, 0), dtype=np.float32)


class OpenSequence:
    """The samples of one sequence so far; ``since_us`` and ``seen_us`` are its first and last sample's clock.

    ``late`` are its samples that came late before it began, if any: a sequence with such samples is partial. ``n_late``
    counts those that came late since. ``number`` counts the sequences of its stream. ``nbytes`` is the memory of its
    samples. ``held`` are the readings that it began with. ``is_torn``: what says where it begins or ends came late.
    ``begun_us`` and ``ended_us`` are the times of what says so, where channels hold (``FinishedSequence``). ``looks``
    were taken at it, ``maxima`` are the largest z after each of them, NaN where it is not known. Only a page shows
    these: they take 100 bytes at ten looks, and are not saved.
    """

    __slots__ = (
        "_n_buffered", "_row_buffer", "_time_buffer", "_times", "_values", "before", "begun_us", "displaced",
        "ended_us", "held", "is_torn", "key", "last_us", "late", "looks", "maxima", "merged", "n", "n_channels",
        "n_late", "nbytes", "number", "partial", "position", "routes", "seen_us", "since_us", "start_us",
    )  # fmt: skip

    def __init__(
        self,
        run: Run,
        *,
        partial: bool,
        late: LateEntry | None = None,
        held: Held | None = None,
    ) -> None:
        # Above 15 attributes: one record of an open sequence; limits, memory, rereading and its end read several each.
        self.late = late
        self.held: Held = held or {}
        self.looks: LooksTaken | None = None
        self.maxima = _NO_MAXIMA
        self.is_torn = run.is_torn
        self.begun_us: int | None = None
        self.ended_us: int | None = None
        self.n_channels = run.values.shape[1]
        self.key = run.sequence
        self.start_us = run.first_us
        self.since_us = self.seen_us = max(run.arrived_us, run.first_us)
        self.partial = partial
        self.position = run.position
        self.before = run.before
        self.routes: Routes = ()
        self._times: list[IntArray] = []
        self._values: list[FloatArray] = []
        self._time_buffer: IntArray = _NO_TIMES
        self._row_buffer: FloatArray = _NO_ROWS
        self._n_buffered = 0
        self.number = 0
        self.n = 0
        self.nbytes = 0
        self.displaced = 0
        self.n_late = 0
        self.merged = 0
        self.last_us = run.first_us - 1

    @property
    def name(self) -> str:
        """Return its id, the time of its first sample if it has none."""
        return self.key if self.key is not None else from_us(self.start_us).isoformat()

    @property
    def undone_from(self) -> tuple[int, Clocks]:
        """Return the lowest offset that rereading needs, and the clocks before that record."""
        if self.late is not None and self.late.position < self.position:
            return self.late.position.offset, self.late.before
        return self.position.offset, self.before

    @property
    def times_us(self) -> list[IntArray]:
        """Return the times in parts, int64 [n] each."""
        return [*self._times, self._time_buffer[: self._n_buffered]] if self._n_buffered else self._times

    @property
    def values(self) -> list[FloatArray]:
        """Return the readings in parts, float32 [n, C] each."""
        return [*self._values, self._row_buffer[: self._n_buffered]] if self._n_buffered else self._values

    def append(self, run: Run) -> None:
        """Add a run that begins after the last sample, or a single sample of the same time."""
        if run.position < self.position:
            self.position, self.before = run.position, run.before
        self.seen_us = max(self.seen_us, run.arrived_us, run.last_us)
        self.displaced += run.displaced
        self.merged += run.merged
        if run.routes:
            self.routes = joined_routes(self.routes, run.routes)
        if run.first_us == self.last_us:
            self._merge(run)
        else:
            self.extend(run.times_us, run.values, run.last_us)

    def extend(self, times_us: IntArray, values: FloatArray, last_us: int) -> None:
        """Add samples behind the last one; ``last_us`` is the last time. Many are kept as they are, few are copied."""
        n = len(times_us)
        self.n += n
        self.last_us = last_us
        if n >= _MOST_COPIED:
            self._put_buffer_away()
            self._times.append(times_us)
            self._values.append(values)
            self.nbytes += values.nbytes + 8 * n + _PART_BYTES
            return
        at = self._n_buffered
        if at + n > len(self._time_buffer):
            self._make_room(n, values)
            at = self._n_buffered
        self._n_buffered = at + n
        self.nbytes += 2 * (values.nbytes + 8 * n)  # the buffer may be half empty
        if n == 1:
            self._time_buffer[at] = last_us
            self._row_buffer[at] = values
        else:
            self._time_buffer[at : at + n] = times_us
            self._row_buffer[at : at + n] = values

    def extend_by_one(self, time_us: int, row: FloatArray) -> int:
        """Add a sample, float32 [C], behind the last one; return the memory that this took."""
        nbytes, at = self.nbytes, self._n_buffered
        if at == len(self._time_buffer):
            self._make_room(1, row)
            at = self._n_buffered
        self._time_buffer[at] = time_us
        self._row_buffer[at] = row
        self._n_buffered = at + 1
        self.n += 1
        self.last_us = time_us
        self.nbytes += 2 * (row.nbytes + 8)
        return self.nbytes - nbytes

    def _make_room(self, n: int, values: FloatArray) -> None:
        """Make room for ``n`` samples like ``values``, in a buffer of twice the size until that is large."""
        if len(self._time_buffer) >= _LARGEST_BUFFER:
            self._put_buffer_away()
        times_us, rows, kept = self._time_buffer, self._row_buffer, self._n_buffered
        size = max(2 * len(times_us), kept + n, _SMALLEST_BUFFER)
        self._time_buffer = np.empty(size, dtype=np.int64)
        self._row_buffer = np.empty((size, values.shape[-1]), dtype=values.dtype)
        if kept:
            self._time_buffer[:kept], self._row_buffer[:kept] = times_us[:kept], rows[:kept]
        self.nbytes += 0 if len(times_us) else _PART_BYTES

    def _put_buffer_away(self) -> None:
        """Make the buffer a part of its own, if it holds anything."""
        if self._n_buffered:
            self._times.append(self._time_buffer[: self._n_buffered])
            self._values.append(self._row_buffer[: self._n_buffered])
            self._time_buffer, self._row_buffer, self._n_buffered = _NO_TIMES, _NO_ROWS, 0

    def _merge(self, run: Run) -> None:
        """Merge a single sample with the last one, of the same time: its readings replace those there by channel."""
        if not self._n_buffered:  # the last one may lie in an array that is not ours
            times_us, values = self._times[-1][-1:], self._values[-1][-1:]
            self._remove_last()
            self.extend(times_us, values, self.last_us)
        row, readings = self._row_buffer[self._n_buffered - 1], run.values[0]
        present = ~np.isnan(readings)
        self.displaced += differs(row, readings, present)
        self.merged += 1
        row[present] = readings[present]

    def less_again(self, run: Run) -> list[Run]:
        """Return ``run`` without the samples that it has already, with the same readings: those are merged.

        They came again, as after a crash of what delivers them, and are not late.
        """
        pairs = zip(run.times_us.tolist(), run.values, strict=True)
        is_new = [not self._has(time_us, readings) for time_us, readings in pairs]
        self.merged += is_new.count(False)
        stretches = ([*group] for new, group in groupby(range(len(run)), key=is_new.__getitem__) if new)
        return [run.part(at[0], at[-1] + 1, run.position.index + at[0]) for at in stretches]

    def _has(self, time_us: int, readings: FloatArray) -> bool:
        row, present = self._row_at(time_us), ~np.isnan(readings)
        return row is not None and np.array_equal(row[present], readings[present])

    def _row_at(self, time_us: int) -> FloatArray | None:
        block = bisect_right(self.times_us, time_us, key=lambda times_us: int(times_us[0])) - 1
        if block < 0:
            return None
        times_us = self.times_us[block]
        at = int(np.searchsorted(times_us, time_us))
        return self.values[block][at] if at < len(times_us) and times_us.item(at) == time_us else None

    def _remove_last(self) -> None:
        """Remove the last sample; the memory stays taken."""
        self.n -= 1
        if self._n_buffered:
            self._n_buffered -= 1
            return
        times_us, values = self._times.pop(), self._values.pop()
        if len(times_us) > 1:
            self._times.append(times_us[:-1])
            self._values.append(values[:-1])

    def drop_bare_marker(self) -> None:
        """Remove an end mark without readings, unless it is the only sample; its route still counts."""
        last = self._row_buffer[self._n_buffered - 1] if self._n_buffered else self._values[-1][-1]
        if self.n == 1 or not math.isnan(last[0]) or not np.isnan(last).all():
            return
        self._remove_last()
        self.merged += 1

    def limit_reason(self, settings: SequenceSettings) -> EndReason:
        """Return which limit comes first in event time."""
        gap = settings.gap
        is_gap = gap is not None and self.last_us + gap <= self.start_us + settings.max_duration
        return "gap" if is_gap else "max_duration"

    def so_far(self, stream: str, carried: FloatArray | None = None) -> FinishedSequence:
        """Return its samples so far, as those of a finished sequence."""
        return self.finish(stream, "end_of_input", carried)

    def finish(
        self,
        stream: str,
        reason: EndReason,
        carried: FloatArray | None = None,
        batch: tuple[tuple[str, str], ...] = (),
    ) -> FinishedSequence:
        """Return the finished sequence, ended for ``reason``; for ``carried`` and ``batch`` see there."""
        times_us, values = self.times_us, self.values
        return FinishedSequence(
            stream,
            self.name,
            reason,
            times_us[0] if len(times_us) == 1 else np.concatenate(times_us),
            values[0] if len(values) == 1 else np.concatenate(values),
            self.position,
            self.partial or self.is_torn or self.late is not None,
            tuple(value for _, value in self.routes),
            self.n_late + (0 if self.late is None else self.late.n),
            self.merged,
            self.displaced,
            carried,
            batch,
            self.begun_us,
            self.ended_us,
        )
