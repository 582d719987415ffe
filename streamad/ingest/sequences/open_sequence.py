"""An open sequence: its samples so far, in time order."""

from __future__ import annotations

import numpy as np

from streamad.ingest.sequences.late_entries import LateEntry
from streamad.ingest.sequences.runs import Clocks, Routes, Run, joined_routes
from streamad.messages import EndReason
from streamad.types import FinishedSequence, from_us


class OpenSequence:
    """The samples of one sequence so far; ``since_us`` and ``seen_us`` are its first and last sample's clock.

    ``late`` are its samples that came late before it began, if any: a sequence with such samples is partial.
    """

    __slots__ = (
        "before", "duplicates", "key", "last_us", "late", "merged", "n", "nbytes", "partial", "position", "routes",
        "runs", "seen_us", "since_us", "start_us",
    )  # fmt: skip

    def __init__(self, run: Run, *, partial: bool, late: LateEntry | None = None) -> None:
        self.late = late
        self.key = run.sequence
        self.start_us = run.first_us
        self.since_us = self.seen_us = max(run.arrived_us, run.first_us)
        self.partial = partial
        self.position = run.position
        self.before = run.before
        self.routes: Routes = ()
        self.runs: list[Run] = []
        self.n = 0
        self.nbytes = 0
        self.duplicates = 0
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

    def append(self, run: Run) -> None:
        """Add a run that begins after the last sample, or a single sample of the same time."""
        if run.position < self.position:
            self.position, self.before = run.position, run.before
        self.seen_us = max(self.seen_us, run.arrived_us, run.last_us)
        self.duplicates += run.duplicates
        self.merged += run.merged
        if run.routes:
            self.routes = joined_routes(self.routes, run.routes)
        if run.first_us == self.last_us:
            self._merge(run)
            return
        self.runs.append(run)
        self.n += len(run)
        self.nbytes += run.nbytes
        self.last_us = run.last_us

    def _merge(self, run: Run) -> None:
        last = self._take_last()
        merged, duplicates = last.merged, last.duplicates
        last.absorb(run)
        self.merged += last.merged - merged - run.merged
        self.duplicates += last.duplicates - duplicates - run.duplicates
        self.runs.append(last)
        self.nbytes += last.nbytes

    def _take_last(self) -> Run:
        """Remove and return the last sample."""
        last = self.runs.pop()
        self.nbytes -= last.nbytes
        if len(last) > 1:
            head, last = last.split(len(last) - 1)
            self.runs.append(head)
            self.nbytes += head.nbytes
        return last

    def drop_bare_marker(self) -> None:
        """Remove an end mark without readings, unless it is the only sample; its route still counts."""
        if self.n == 1 or not np.isnan(self.runs[-1].values[-1]).all():
            return
        self._take_last()
        self.n -= 1
        self.merged += 1

    def finish(self, stream: str, reason: EndReason) -> FinishedSequence:
        """Return the finished sequence, ended for ``reason``."""
        times_us = np.concatenate([run.times_us for run in self.runs])
        values = np.concatenate([run.values for run in self.runs])
        return FinishedSequence(
            stream,
            self.name,
            reason,
            times_us,
            values,
            self.position,
            self.partial or self.late is not None,
            self.duplicates,
            tuple(value for _, value in self.routes),
        )
