"""The rows of a sample in the order of time: how well ids tell its sequences apart, and which readings share a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from streamad.commands.init.facts.columns import Column
from streamad.types import IntArray

UNREAD = np.iinfo(np.int64).min
"""The time of a row whose time cannot be read."""
LONGEST_STEP = 5
"""In usual steps: a longer one is a pause."""
_SHORTEST_PIECE = 3


class Groups(NamedTuple):
    """The number of each row's stream and of its sequence, int64 [n]."""

    streams: IntArray
    sequences: IntArray


class Rows:
    """The rows of a sample, with times in microseconds (int64 [n], ``UNREAD`` where there is none) and ``places``.

    A place is the number of the row's file.

    Times that ``counts`` begin anew in each sequence, so rows stay in the order of the file then.
    """

    def __init__(
        self, times_us: IntArray, *, counts: bool, channel: Column | None = None, places: IntArray | None = None
    ) -> None:
        self.n = len(times_us)
        self.places = np.zeros(self.n, dtype=np.int64) if places is None else places
        self.times_us = times_us
        self.counts = counts
        self._channel = self.codes(channel)
        has_time = times_us != UNREAD
        self._order = (
            np.arange(self.n) if counts else np.flatnonzero(has_time)[np.argsort(times_us[has_time], kind="stable")]
        )

    def codes(self, *columns: Column | None) -> IntArray:
        """Return a number for each row, int64 [n]: equal where all ``columns`` have equal values, or none."""
        found = np.zeros(self.n, dtype=np.int64)
        for column in columns:
            if column is None or not column.values:
                continue
            of_column = np.zeros(self.n, dtype=np.int64)
            of_column[np.array(column.rows)] = column.codes + 1
            found = np.unique(found * (int(of_column.max()) + 1) + of_column, return_inverse=True)[1]
        return found

    def disorder(self, stream: Column | None, sequence: Column | None) -> float:
        """Return the share of rows that make the sequences of ``stream`` overlap.

        They go back to a sequence that another one has followed, or have the time of another row of their sequence.
        """
        keys, streams = self.codes(stream, sequence), self.codes(stream)
        channels = [] if self.counts else (keys * (int(self._channel.max(initial=0)) + 1) + self._channel).tolist()
        keys_of, streams_of, times = keys.tolist(), streams.tolist(), self.times_us.tolist()
        current: dict[int, int] = {}
        seen: set[int] = set()
        newest: dict[int, int] = {}
        wrong = 0
        for row in self._order.tolist():
            key, of_stream = keys_of[row], streams_of[row]
            is_wrong = key in seen and current[of_stream] != key
            current[of_stream] = key
            seen.add(key)
            if channels:
                is_wrong |= newest.get(channels[row]) == times[row]
                newest[channels[row]] = times[row]
            wrong += is_wrong
        return wrong / max(1, len(self._order))

    def is_continuous(self, stream: Column | None, sequence: Column) -> bool:
        """Return whether each sequence is one course in time without a pause; a single time is no course."""
        if self.disorder(stream, sequence):
            return False
        groups = self.codes(stream, sequence)
        steps_us = self.steps_us(groups)
        if len(steps_us) < len(np.unique(groups)):
            return False
        return self.counts or bool(steps_us.max() <= LONGEST_STEP * np.median(steps_us))

    def changes_in_pauses(self, column: Column) -> bool:
        """Return whether a column that all rows have takes new values in long pauses alone."""
        steps_us = np.diff(self.times_us)
        if self.counts or len(column) != self.n or (self.times_us == UNREAD).any() or not len(steps_us):
            return False
        at = changes_of(column)
        return len(at) > 1 and bool((steps_us[at - 1] > LONGEST_STEP * np.median(steps_us)).all())

    def steps_us(self, groups: IntArray) -> IntArray:
        """Return the distances of successive different times in each group."""
        rows = self._order[np.argsort(groups[self._order], kind="stable")]
        steps = np.diff(self.times_us[rows])[np.diff(groups[rows]) == 0]
        return np.asarray(steps[steps > 0], dtype=np.int64)

    def pauses(self, groups: IntArray) -> tuple[IntArray, IntArray]:
        """Return the rows before and after each long pause of a group, int64 [p] each; none in times that count."""
        rows = self._order[np.argsort(groups[self._order], kind="stable")]
        steps_us, are_one = np.diff(self.times_us[rows]), np.diff(groups[rows]) == 0
        usual_us = steps_us[are_one & (steps_us > 0)]
        if self.counts or not len(usual_us):
            return rows[:0], rows[:0]
        at = np.flatnonzero(are_one & (steps_us > LONGEST_STEP * np.median(usual_us)))
        return rows[at], rows[at + 1]

    def displaced(self, groups: IntArray, columns: Iterable[Column], times_us: IntArray | None = None) -> float:
        """Return the share of rows that have another value than an earlier row of equal time, channel and group."""
        times_us = self.times_us if times_us is None else times_us
        _, places = np.unique(times_us, return_inverse=True)
        keys = (groups * (int(self._channel.max(initial=0)) + 1) + self._channel) * (
            int(places.max(initial=0)) + 1
        ) + places
        wrong = np.zeros(self.n, dtype=bool)
        for column in columns:
            rows = np.array(column.rows, dtype=np.int64)
            order = np.argsort(keys[rows], kind="stable")
            same = np.diff(keys[rows][order]) == 0
            cells = column.cells[order]
            wrong[rows[order][1:][same & (np.diff(cells) != 0) & ~np.isnan(np.diff(cells))]] = True
        wrong[times_us == UNREAD] = False
        return float(wrong.mean()) if self.n else 0.0

    def restarts(self, streams: IntArray | None = None, *, in_files: bool = False) -> IntArray:
        """Return the rows in which a counting time lies below that before it in its stream: [] if that is no pattern.

        ``in_files``: without the beginnings of files.
        """
        none = np.empty(0, dtype=np.int64)
        if not self.counts or self.n < 2 or (self.times_us == UNREAD).any():
            return none
        streams = np.zeros(self.n, dtype=np.int64) if streams is None else streams
        rows = np.argsort(streams, kind="stable")
        begins = (np.diff(self.times_us[rows]) < 0) & (np.diff(streams[rows]) == 0)
        if (np.count_nonzero(begins) + 1) * _SHORTEST_PIECE > self.n:
            return none
        if in_files:
            begins &= np.diff(self.places[rows]) == 0
        found: IntArray = np.sort(rows[1:][begins])
        return found


def changes_of(column: Column) -> IntArray:
    """Return the rows in which a column has another value than in the row before, int64."""
    rows: IntArray = np.array(column.rows, dtype=np.int64)[1:][np.diff(column.codes) != 0]
    return rows


def joined(columns: Sequence[Column]) -> Column:
    """Return several id fields as one, as the decoder joins them."""
    if len(columns) == 1:
        return columns[0]
    texts = ["/".join(str(value) for value in of_row) for of_row in zip(*(one.values for one in columns), strict=True)]
    return Column("+".join(one.path for one in columns), columns[0].rows, texts)
