"""An open sequence: its samples so far, in time order."""

from __future__ import annotations

import numpy as np

from streamad.ingest.sequences.late_entries import LateEntry
from streamad.ingest.sequences.runs import Clocks, Routes, Run, joined_routes
from streamad.messages import EndReason
from streamad.types import FinishedSequence, FloatArray, IntArray, from_us

_PART_BYTES = 250
"""Two arrays and their places in the lists."""
_SMALL = 64
"""Smaller parts are joined once they have so many samples together."""


class OpenSequence:
    """The samples of one sequence so far; ``since_us`` and ``seen_us`` are its first and last sample's clock.

    ``times_us`` and ``values`` are its parts in order, int64 [n] and float32 [n, C] each. ``late`` are its samples that
    came late before it began, if any: a sequence with such samples is partial. ``number`` counts those of its stream.
    """

    __slots__ = (
        "_n_loose", "before", "duplicates", "key", "last_us", "late", "merged", "n", "nbytes", "number", "partial",
        "position", "routes", "seen_us", "since_us", "start_us", "times_us", "values",
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
        self.times_us: list[IntArray] = []
        self.values: list[FloatArray] = []
        self._n_loose = 0
        self.number = 0
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
        else:
            self.extend(run.times_us, run.values, run.last_us)

    def extend(self, times_us: IntArray, values: FloatArray, last_us: int) -> None:
        """Add samples behind the last one; ``last_us`` is the last time. The arrays are kept, not copied."""
        n = len(times_us)
        self.times_us.append(times_us)
        self.values.append(values)
        self.n += n
        self.nbytes += values.nbytes + 8 * n + _PART_BYTES
        self.last_us = last_us
        self._n_loose += n
        if self._n_loose >= _SMALL:
            self._join_loose()

    def _join_loose(self) -> None:
        """Join the parts at the end that were not joined before: a sample alone takes far more memory than its values.

        A large part stays as it is if no small one precedes it.
        """
        start, left = len(self.times_us), self._n_loose
        while left > 0:
            start -= 1
            left -= len(self.times_us[start])
        n_parts = len(self.times_us) - start
        if n_parts > 1:
            self.times_us[start:] = [np.concatenate(self.times_us[start:])]
            self.values[start:] = [np.concatenate(self.values[start:])]
            self.nbytes -= _PART_BYTES * (n_parts - 1)
        self._n_loose = 0

    def _merge(self, run: Run) -> None:
        """Merge a single sample with the last one, of the same time: its readings replace those there by channel."""
        times_us, values = self._take_last()
        present = ~np.isnan(run.values)
        self.duplicates += int(np.count_nonzero(present & ~np.isnan(values)))
        self.merged += 1
        self.extend(times_us, np.where(present, run.values, values), self.last_us)

    def _take_last(self) -> tuple[IntArray, FloatArray]:
        """Remove and return the last sample."""
        times_us, values = self.times_us.pop(), self.values.pop()
        self.n -= 1
        self.nbytes -= values[-1:].nbytes + 8
        self._n_loose = max(0, self._n_loose - 1)
        if len(times_us) > 1:
            self.times_us.append(times_us[:-1])
            self.values.append(values[:-1])
        else:
            self.nbytes -= _PART_BYTES
        return times_us[-1:], values[-1:]

    def drop_bare_marker(self) -> None:
        """Remove an end mark without readings, unless it is the only sample; its route still counts."""
        last = self.values[-1][-1]
        has_first = last[0] == last[0]  # it is no NaN: almost always, and quicker to see than that all are
        if self.n == 1 or has_first or not np.isnan(last).all():
            return
        self._take_last()
        self.merged += 1

    def finish(self, stream: str, reason: EndReason) -> FinishedSequence:
        """Return the finished sequence, ended for ``reason``."""
        is_one = len(self.times_us) == 1
        return FinishedSequence(
            stream,
            self.name,
            reason,
            self.times_us[0] if is_one else np.concatenate(self.times_us),
            self.values[0] if is_one else np.concatenate(self.values),
            self.position,
            self.partial or self.late is not None,
            self.duplicates,
            tuple(value for _, value in self.routes),
        )
