"""Runs of samples in time order, and the buffer that brings late-comers into order before anything is decided.

Shapes: n samples, C channels. A run is a stretch of one sequence's samples with strictly rising times.
"""

from __future__ import annotations

__all__ = ["Clocks", "ReorderBuffer", "Run", "runs_of"]

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from streamad.types import FloatArray, IntArray, Position, SampleBlock

_RUN_OVERHEAD_BYTES = 400


class Clocks(NamedTuple):
    """A stream's clocks and its partition's, as they were before a record: what exact rereading starts from."""

    max_time_us: int | None
    floor_us: int | None
    last_record_us: int | None
    partition_us: int | None


class Run:
    """Samples of one sequence with strictly rising times; ``position`` is the lowest one in it."""

    __slots__ = (
        "before",
        "duplicates",
        "end",
        "first_us",
        "last_us",
        "merged",
        "position",
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
        end: bool = False,
    ) -> None:
        self.sequence = sequence
        self.times_us = times_us
        self.values = values
        self.position = position
        self.before = before
        self.end = end
        self.first_us = int(times_us[0])
        self.last_us = int(times_us[-1])
        self.merged = 0
        self.duplicates = 0

    def __len__(self) -> int:
        return len(self.times_us)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.times_us.nbytes + _RUN_OVERHEAD_BYTES

    def split(self, at: int) -> tuple[Run, Run]:
        """Return the runs before and from sample ``at`` (0 < at < n); an end mark stays with the last sample."""
        head = Run(self.sequence, self.times_us[:at], self.values[:at], self.position, self.before)
        tail_position = Position(self.position.offset, self.position.index + at)
        tail = Run(self.sequence, self.times_us[at:], self.values[at:], tail_position, self.before, end=self.end)
        return head, tail

    def singles(self) -> list[Run]:
        """Return one run per sample."""
        if len(self) == 1:
            return [self]
        offset, index = self.position
        last = len(self) - 1
        return [
            Run(
                self.sequence,
                self.times_us[i : i + 1],
                self.values[i : i + 1],
                Position(offset, index + i),
                self.before,
                end=self.end and i == last,
            )
            for i in range(len(self))
        ]

    def absorb(self, later: Run) -> None:
        """Merge a single sample of the same time and a higher position: its readings replace ours, channel by channel."""
        present = ~np.isnan(later.values)
        self.duplicates += later.duplicates + int(np.count_nonzero(present & ~np.isnan(self.values)))
        self.values = np.where(present, later.values, self.values)
        self.end = self.end or later.end
        self.merged += later.merged + 1
        if later.position < self.position:
            self.position, self.before = later.position, later.before


def runs_of(block: SampleBlock, before: Clocks) -> list[Run]:
    """Return the runs of a block: one where its times rise strictly and in order, else one per sample in time order."""
    if block.indexes is None and (len(block) == 1 or bool((block.times_us[1:] > block.times_us[:-1]).all())):
        position = Position(block.offset, 0)
        return [Run(block.sequence, block.times_us, block.values, position, before, end=block.end)]
    indexes = range(len(block)) if block.indexes is None else block.indexes.tolist()
    last = len(block) - 1
    return [
        Run(
            block.sequence,
            block.times_us[i : i + 1],
            block.values[i : i + 1],
            Position(block.offset, int(index)),
            before,
            end=block.end and i == last,
        )
        for i, index in enumerate(indexes)
    ]


def _order(run: Run) -> tuple[int, Position]:
    return run.first_us, run.position


class ReorderBuffer:
    """Runs waiting for late-comers, in time order; equal times of one sequence are merged, the highest position wins."""

    __slots__ = ("nbytes", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.nbytes = 0

    def add(self, run: Run) -> None:
        """Take ``run`` into its place; runs that overlap it in time are taken apart into samples."""
        if not self.runs or run.first_us > self.runs[-1].last_us:
            self.runs.append(run)
            self.nbytes += run.nbytes
            return
        at = bisect_left(self.runs, run.first_us, key=lambda waiting: waiting.last_us)
        overlapping = [single for waiting in (*self.runs[at:], run) for single in waiting.singles()]
        merged = _merge(sorted(overlapping, key=_order))
        self.nbytes += sum(r.nbytes for r in merged) - sum(r.nbytes for r in self.runs[at:])
        self.runs[at:] = merged

    def release(self, through_us: int | None) -> list[Run]:
        """Take out all samples with time <= ``through_us`` (None: all), in order."""
        runs = self.runs
        at = len(runs)
        if through_us is not None:
            at = 0
            while at < len(runs) and runs[at].last_us <= through_us:
                at += 1
            if at < len(runs) and runs[at].first_us <= through_us:
                cut = int(np.searchsorted(runs[at].times_us, through_us, side="right"))
                runs[at : at + 1] = runs[at].split(cut)
                self.nbytes += _RUN_OVERHEAD_BYTES
                at += 1
        released, self.runs = runs[:at], runs[at:]
        self.nbytes -= sum(run.nbytes for run in released)
        return released


def _merge(singles: list[Run]) -> list[Run]:
    merged: list[Run] = []
    by_sequence: dict[str | None, Run] = {}
    for run in singles:
        twin = by_sequence.get(run.sequence)
        if twin is not None and twin.first_us == run.first_us:
            twin.absorb(run)
            continue
        by_sequence[run.sequence] = run
        merged.append(run)
    return merged
