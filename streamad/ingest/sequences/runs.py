"""Runs of samples in time order, and the buffer that orders them within the allowed lateness.

Shapes: n samples, C channels. A run is a stretch of one sequence's samples with strictly rising times.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from streamad.ingest.sequences.clocks import Clocks
from streamad.types import OUTSIDE, BoolArray, Boundaries, Boundary, FloatArray, IntArray, Position, SampleBlock

MAX_ROUTES = 3
"""Routes kept of one sequence, the first ones; a sequence with two cannot be judged."""
_RUN_OVERHEAD_BYTES = 400

Routes: TypeAlias = tuple[tuple[Position, str], ...]
"""Different values of the field that chooses the model, each with the lowest position of its blocks, in that order."""


def joined_routes(first: Routes, second: Routes) -> Routes:
    """Return the first routes of both; the order of the arguments does not matter."""
    if not first or not second:
        return first or second
    if len(first) == len(second) == 1 and first[0][1] == second[0][1]:
        return min(first, second)
    lowest: dict[str, Position] = {}
    for position, value in sorted((*first, *second)):
        lowest.setdefault(value, position)
    return tuple((position, value) for value, position in lowest.items())[:MAX_ROUTES]


@dataclass(slots=True, eq=False)
class Run:
    """Samples of one sequence with strictly rising times.

    ``position`` is their lowest one, ``before`` the clocks before its record, ``arrived_us`` the partition's clock
    when the samples came. ``merged`` samples of its only time have joined it, ``displaced`` of them with another value
    of a channel. ``restarts``: the relative time of the first sample lay below the one before it. ``boundary`` is what
    its rows say of where sequences begin and end: it is bare in a run of one row, which is no sample. ``is_torn``: the
    sequence that it begins lacks earlier samples, which came before the word or tag that says so. ``begun_us`` is the
    time of that word or tag, if the samples may be the first behind it.
    """

    sequence: str | None
    times_us: IntArray
    values: FloatArray
    position: Position
    before: Clocks
    arrived_us: int
    end: bool = False
    routes: Routes = ()
    restarts: bool = False
    boundary: Boundary | None = None
    is_torn: bool = False
    begun_us: int | None = None
    first_us: int = field(init=False)
    last_us: int = field(init=False)
    merged: int = 0
    displaced: int = 0

    def __post_init__(self) -> None:
        self.first_us = int(self.times_us[0])
        self.last_us = int(self.times_us[-1])

    def __len__(self) -> int:
        return len(self.times_us)

    @property
    def is_bare(self) -> bool:
        """Return whether it is a boundary without a sample."""
        return self.boundary is not None and self.boundary.is_bare

    @property
    def nbytes(self) -> int:
        """Return the size of the run in memory."""
        return self.values.nbytes + self.times_us.nbytes + _RUN_OVERHEAD_BYTES

    def split(self, at: int) -> tuple[Run, Run]:
        """Return the runs before and from sample ``at`` (0 < at < n); an end mark stays with the last sample."""
        index = self.position.index
        return self.part(0, at, index), self.part(at, len(self), index + at)

    def part(self, start: int, stop: int, index: int) -> Run:
        """Return samples ``start`` to ``stop``, the first of which has ``index`` in its record."""
        return Run(
            self.sequence,
            self.times_us[start:stop],
            self.values[start:stop],
            Position(self.position.offset, index),
            self.before,
            arrived_us=self.arrived_us,
            end=self.end and stop == len(self),
            routes=self.routes,
            restarts=self.restarts and start == 0,
            boundary=self.boundary,
            is_torn=self.is_torn and start == 0,
            begun_us=self.begun_us if start == 0 else None,
        )

    def split_at(self, time_us: int) -> tuple[Run, Run | None]:
        """Return the samples before ``time_us``, at least one, and the others, if any."""
        if self.last_us < time_us:
            return self, None
        return self.split(int(np.searchsorted(self.times_us, time_us)))

    def in_time(self, block: SampleBlock, watermark_us: int | None) -> Run:
        """Return this run of one sample at the earliest of its two readings that is not behind ``watermark_us``.

        ``block`` holds the samples of its record, with their second readings.
        """
        if block.later_us is None:
            return self
        time_us = block.time_of(block.place_of(self.position.index), watermark_us)
        return self if time_us == self.first_us else replace(self, times_us=np.array([time_us], dtype=np.int64))

    def absorb(self, later: Run) -> None:
        """Merge a single sample of the same time that came later: its readings replace ours by channel."""
        present = ~np.isnan(later.values)
        self.displaced += differs(self.values, later.values, present)
        self.values = np.where(present, later.values, self.values)
        self.end = self.end or later.end
        self.arrived_us = max(self.arrived_us, later.arrived_us)
        self.merged += 1
        self.routes = joined_routes(self.routes, later.routes)
        if later.position < self.position:
            self.position, self.before = later.position, later.before


def differs(row: FloatArray, later: FloatArray, present: BoolArray) -> bool:
    """Return whether both have readings of a channel, and different ones; those of ``later`` are ``present``."""
    if not np.count_nonzero(present & ~np.isnan(row)):  # as where each message holds one channel
        return False
    return bool(np.count_nonzero((row < later) | (row > later)))


def rises(times_us: IntArray) -> bool:
    """Return whether each of the times [n] is later than the one before."""
    n = len(times_us)
    return n == 1 or np.count_nonzero(times_us[1:] > times_us[:-1]) == n - 1


def runs_of(block: SampleBlock, before: Clocks, arrived_us: int) -> list[Run]:
    """Return the runs of a block in the order of its record: one if its times rise strictly, else one per sample."""
    whole = Run(
        block.sequence,
        block.times_us,
        block.values,
        Position(block.offset, block.first_index),
        before,
        arrived_us=arrived_us,
        end=block.end,
        routes=() if block.route is None else ((Position(block.offset, block.first_index), block.route),),
    )
    in_order = block.later_us is None and rises(block.times_us) and block.is_consecutive
    if in_order and block.boundaries is None:
        return [whole]
    indexes = range(len(block)) if block.indexes is None else block.indexes.tolist()
    if block.boundaries is not None:
        return _bounded(whole, block.boundaries, sorted(zip(indexes, range(len(block)), strict=True)), in_order)
    return [whole.part(i, i + 1, index) for index, i in sorted(zip(indexes, range(len(block)), strict=True))]


def is_tag(boundary: Boundary | None) -> bool:
    """Return whether it is the reading of a tag."""
    return boundary is not None and boundary.is_bare and (boundary.names or boundary.state is not None)


def _bounded(whole: Run, boundaries: Boundaries, places: list[tuple[int, int]], in_order: bool) -> list[Run]:
    """Return runs of rows that say the same: one row each where they say more than their state, or are not in order.

    ``places`` are the rows by their index in the record. A tag's reading comes before samples of its time and later.
    """
    runs: list[Run] = []
    start = 0
    if in_order:
        for at in range(1, len(places) + 1):
            is_together = at < len(places) and boundaries[at] == boundaries[start] in (None, OUTSIDE)
            if not is_together:
                runs.append(replace(whole.part(start, at, places[start][0]), boundary=boundaries[start]))
                start = at
    else:
        runs = [replace(whole.part(i, i + 1, index), boundary=boundaries[i]) for index, i in places]
    tags = [run for run in runs if is_tag(run.boundary)]
    if not tags:
        return runs
    return _with_tags(
        [run for run in runs if not is_tag(run.boundary)],
        sorted(tags, key=lambda run: (run.first_us, run.position.index)),
    )


def _with_tags(runs: list[Run], tags: list[Run]) -> list[Run]:
    """Return the runs with each of ``tags``, in the order of time, before the first of their samples at its time on."""
    latest = [*accumulate((run.last_us for run in runs), max)]
    ordered: list[Run] = []
    done = 0
    for tag in tags:
        first = bisect_left(latest, tag.first_us)
        ordered += runs[done:first]
        done = first
        if first < len(runs) and runs[first].first_us < tag.first_us:
            head, rest = runs[first].split_at(tag.first_us)
            ordered.append(head)
            runs[first : first + 1] = [] if rest is None else [rest]
        ordered.append(tag)
    return ordered + runs[done:]


class ReorderBuffer:
    """Waiting runs in time order; equal times of one sequence are merged, the latest reading wins.

    ``_singles`` are the samples at the time ``_at_us`` that others of that time may merge with: there may be many.
    """

    __slots__ = ("_at_us", "_singles", "nbytes", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.nbytes = 0
        self._at_us: int | None = None
        self._singles: dict[str | None, Run] = {}

    def add(self, run: Run) -> None:
        """Insert ``run``, the latest to arrive; runs are split only where they interleave."""
        runs = self.runs
        rest: Run | None = run
        while rest is not None:
            if not runs or rest.first_us > runs[-1].last_us:
                self._insert(len(runs), rest)
                return
            at = bisect_right(runs, rest.first_us, key=_first_us)
            if at and runs[at - 1].last_us >= rest.first_us and self._meets(at - 1, rest.first_us):
                single, rest = rest.split_at(rest.first_us + 1)
                self._place(single)
                continue
            at = bisect_right(runs, rest.first_us, key=_first_us)
            part, rest = (rest, None) if at == len(runs) else rest.split_at(runs[at].first_us)
            self._insert(at, part)

    def _insert(self, at: int, run: Run) -> None:
        self.runs.insert(at, run)
        self.nbytes += run.nbytes
        self._forget(run)

    def _forget(self, run: Run) -> None:
        """Forget the samples of a time that ``run`` spans."""
        if self._at_us is not None and run.first_us <= self._at_us <= run.last_us:
            self._at_us, self._singles = None, {}

    def _meets(self, at: int, time_us: int) -> bool:
        """Split the run at ``at`` around ``time_us``, which it spans; return whether it has a sample then."""
        run = self.runs[at]
        before = None
        if run.first_us < time_us:
            before, here = run.split_at(time_us)
            assert here is not None
            run = here
        meets = run.first_us == time_us
        here, behind = run.split_at(time_us + 1) if meets else (run, None)
        pieces = [piece for piece in (before, here, behind) if piece is not None]
        if len(pieces) > 1:
            self._forget(self.runs[at])
        self.nbytes += sum(piece.nbytes for piece in pieces) - self.runs[at].nbytes
        self.runs[at : at + 1] = pieces
        return meets

    def _place(self, single: Run) -> None:
        """Merge ``single`` with the sample of the same time and sequence, or insert it behind those of its time."""
        end, time_us = bisect_right(self.runs, single.first_us, key=_first_us), single.first_us
        if single.boundary is None and self._at_us != time_us:
            self._at_us, self._singles = time_us, self._before(end, time_us)
        same = None if single.boundary is not None else self._singles.get(single.sequence)
        if same is not None:
            same.absorb(single)
            return
        self.runs.insert(end, single)
        self.nbytes += single.nbytes
        if single.boundary is None:
            self._singles[single.sequence] = single
        else:
            self._forget(single)

    def _before(self, end: int, time_us: int) -> dict[str | None, Run]:
        """Return the samples at ``time_us`` before ``end``, as far as no boundary stands behind them."""
        found: dict[str | None, Run] = {}
        for at in range(end - 1, -1, -1):
            run = self.runs[at]
            if run.last_us != time_us or run.boundary is not None:
                break
            found[run.sequence] = run
        return found

    def release(self, through_us: int | None) -> list[Run]:
        """Remove and return the samples with time <= ``through_us`` (None: all), in order."""
        runs = self.runs
        if self._at_us is not None and (through_us is None or self._at_us <= through_us):
            self._at_us, self._singles = None, {}
        if through_us is None:
            released, self.runs, self.nbytes = runs, [], 0
            return released
        at = 0
        while at < len(runs) and runs[at].last_us <= through_us:
            at += 1
        released = runs[:at]
        del runs[:at]
        self.nbytes -= sum(run.nbytes for run in released)
        if runs and runs[0].first_us <= through_us:
            held = runs[0].nbytes
            head, runs[0] = runs[0].split(int(np.searchsorted(runs[0].times_us, through_us, side="right")))
            self.nbytes += runs[0].nbytes - held
            released.append(head)
        return released


def _first_us(run: Run) -> int:
    return run.first_us
