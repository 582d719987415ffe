"""Late samples, and late entries: sequences all of whose samples came late, so that each still gets a verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamad.ingest.sequences.clocks import Clocks
from streamad.ingest.sequences.runs import Run
from streamad.types import FinishedSequence, FloatArray, IntArray

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
    """

    __slots__ = ("before", "first_us", "key", "last_us", "n", "n_channels", "position", "since_us")

    def __init__(self, run: Run) -> None:
        self.key = run.sequence
        self.position = run.position
        self.before: Clocks = run.before
        self.since_us = max(run.arrived_us, run.first_us)
        self.first_us, self.last_us = run.first_us, run.last_us
        self.n = 0
        self.n_channels = run.values.shape[1]

    def add(self, run: Run) -> None:
        """Count the samples of ``run``."""
        self.first_us, self.last_us = min(self.first_us, run.first_us), max(self.last_us, run.last_us)
        self.n += len(run)

    def finish(self, stream: str) -> FinishedSequence:
        """Return the sequence with reason ``late``: its first and last time, and no readings. It has an id."""
        assert self.key is not None
        times_us = np.unique(np.array([self.first_us, self.last_us], dtype=np.int64))
        values = np.full((len(times_us), self.n_channels), np.nan, dtype=np.float32)
        return FinishedSequence(stream, self.key, "late", times_us, values, self.position, n_late=self.n)
