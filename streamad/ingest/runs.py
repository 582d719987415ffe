"""Runs of samples in time order, and the buffer that brings late-comers into order before anything is decided.

Shapes: n samples, C channels. A run is a stretch of one sequence's samples with strictly rising times.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple, TypeAlias

import numpy as np

from streamad.types import FloatArray, IntArray, Position, SampleBlock

MAX_ROUTES = 3
"""So many different routes of one sequence are kept, those that come first; two are one too many already."""
_RUN_OVERHEAD_BYTES = 400

Routes: TypeAlias = tuple[tuple[int, str], ...]
"""Different values of the field that chooses the model, each with its lowest offset, in the order of these."""


def joined_routes(first: Routes, second: Routes) -> Routes:
    """Return the first routes of both, whichever of the two their samples came with: the result knows no order."""
    if not first or not second:
        return first or second
    if len(first) == len(second) == 1 and first[0][1] == second[0][1]:
        return min(first, second)
    lowest: dict[str, int] = {}
    for offset, value in sorted((*first, *second)):
        lowest.setdefault(value, offset)
    return tuple((offset, value) for value, offset in lowest.items())[:MAX_ROUTES]


class Clocks(NamedTuple):
    """A stream's clocks and its partition's, as they were before a record: what exact rereading starts from.

    ``record_us`` is the partition's clock with that record, None where it has no time of its own and is the first.
    """

    max_time_us: int | None
    floor_us: int | None
    last_record_us: int | None
    partition_us: int | None
    record_us: int | None


class Run:
    """Samples of one sequence with strictly rising times.

    ``position`` is the lowest one in it, ``before`` the clocks as they were before that one's record, ``arrived_us``
    the partition's clock when the samples came.
    """

    __slots__ = (
        "arrived_us",
        "before",
        "duplicates",
        "end",
        "first_us",
        "last_us",
        "merged",
        "position",
        "routes",
        "sequence",
        "times_us",
        "values",
    )

    def __init__(
        self,
        sequence: str | None,
        times_us: IntArray,
        values: FloatArray,
        position: Position,
        before: Clocks,
        *,
        arrived_us: int,
        end: bool = False,
        routes: Routes = (),
    ) -> None:
        self.sequence = sequence
        self.times_us = times_us
        self.values = values
        self.position = position
        self.before = before
        self.arrived_us = arrived_us
        self.end = end
        self.routes = routes
        self.first_us = int(times_us[0])
        self.last_us = int(times_us[-1])
        self.merged = 0
        self.duplicates = 0

    def __len__(self) -> int:
        return len(self.times_us)

    @property
    def nbytes(self) -> int:
        """Return the memory that the run takes."""
        return self.values.nbytes + self.times_us.nbytes + _RUN_OVERHEAD_BYTES

    def split(self, at: int) -> tuple[Run, Run]:
        """Return the runs before and from sample ``at`` (0 < at < n); an end mark stays with the last sample."""
        index = self.position.index
        return self.part(0, at, index), self.part(at, len(self), index + at)

    def part(self, start: int, stop: int, index: int) -> Run:
        """Return samples ``start`` to ``stop``, the first of which lies at place ``index`` of its record."""
        return Run(
            self.sequence,
            self.times_us[start:stop],
            self.values[start:stop],
            Position(self.position.offset, index),
            self.before,
            arrived_us=self.arrived_us,
            end=self.end and stop == len(self),
            routes=self.routes,
        )

    def split_at(self, time_us: int) -> tuple[Run, Run | None]:
        """Return the samples before ``time_us``, of which there must be one, and the others, if any."""
        if self.last_us < time_us:
            return self, None
        return self.split(int(np.searchsorted(self.times_us, time_us)))

    def absorb(self, later: Run) -> None:
        """Merge a single sample of the same time that came later: its readings replace ours, channel by channel."""
        present = ~np.isnan(later.values)
        self.duplicates += later.duplicates + int(np.count_nonzero(present & ~np.isnan(self.values)))
        self.values = np.where(present, later.values, self.values)
        self.end = self.end or later.end
        self.arrived_us = max(self.arrived_us, later.arrived_us)
        self.merged += later.merged + 1
        self.routes = joined_routes(self.routes, later.routes)
        if later.position < self.position:
            self.position, self.before = later.position, later.before


def runs_of(block: SampleBlock, before: Clocks, arrived_us: int) -> list[Run]:
    """Return the runs of a block in the order in which its record holds them.

    One run where its times rise strictly and in order, else one per sample.
    """
    whole = Run(
        block.sequence,
        block.times_us,
        block.values,
        Position(block.offset, 0),
        before,
        arrived_us=arrived_us,
        end=block.end,
        routes=() if block.route is None else ((block.offset, block.route),),
    )
    if block.indexes is None and (len(block) == 1 or bool((block.times_us[1:] > block.times_us[:-1]).all())):
        return [whole]
    indexes = range(len(block)) if block.indexes is None else block.indexes.tolist()
    return [whole.part(i, i + 1, index) for index, i in sorted(zip(indexes, range(len(block)), strict=True))]


class ReorderBuffer:
    """Runs waiting for late-comers, in time order; equal times of one sequence are merged, the latest reading wins."""

    __slots__ = ("nbytes", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.nbytes = 0

    def add(self, run: Run) -> None:
        """Take ``run``, which came after all that waits, into its place; runs are cut only where they interleave."""
        runs = self.runs
        if not runs or run.first_us > runs[-1].last_us:
            runs.append(run)
            self.nbytes += run.nbytes
            return
        start = end = bisect_left(runs, run.first_us, key=lambda waiting: waiting.last_us)
        while end < len(runs) and runs[end].first_us <= run.last_us:
            end += 1
        together = _interleave(runs[start:end], run)
        self.nbytes += sum(piece.nbytes for piece in together) - sum(waiting.nbytes for waiting in runs[start:end])
        runs[start:end] = together

    def release(self, through_us: int | None) -> list[Run]:
        """Take out all samples with time <= ``through_us`` (None: all), in order."""
        runs = self.runs
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


def _interleave(waiting: list[Run], new: Run) -> list[Run]:
    """Return runs in time order with the samples of ``new`` at their places, after those of equal time."""
    ordered: list[Run] = []
    queue = waiting[::-1]
    rest: Run | None = new
    while queue and rest is not None:
        first = queue.pop()
        if rest.first_us < first.first_us:
            queue.append(first)
            head, rest = rest.split_at(first.first_us)
            ordered.append(head)
            continue
        is_equal = first.first_us == rest.first_us
        head, tail = first.split_at(rest.first_us + is_equal)
        ordered.append(head)
        if tail is not None:
            queue.append(tail)
        if is_equal and not (queue and queue[-1].first_us == rest.first_us):
            single, rest = rest.split_at(rest.first_us + 1)
            _place(ordered, single)
    return ordered + ([] if rest is None else [rest]) + queue[::-1]


def _place(ordered: list[Run], single: Run) -> None:
    """Merge ``single`` with the sample of the same time and sequence at the end of ``ordered``, or put it there."""
    for run in reversed(ordered):
        if run.last_us != single.first_us:
            break
        if run.sequence == single.sequence:
            run.absorb(single)
            return
    ordered.append(single)
