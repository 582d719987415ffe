"""The samples of one stream on the rows of its table, and those that a row still to come may hold."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

from streamad.errors import SourceError
from streamad.ingest.sequences.clocks import NEVER_US, Clocks
from streamad.ingest.sequences.runs import Run
from streamad.ingest.table.rows import Row, StreamRows
from streamad.partition_progress import UsedRows

_STRETCHES = 16


@dataclass(slots=True)
class _Stretch:
    """Samples behind the last row: where the first of them lies, and the clock when the last of them came."""

    since_us: int
    last_us: int
    offset: int
    before: Clocks


class Placing:
    """Places the samples of ``stream``, and knows which decisions a later table must not change.

    Law: a run with more rows, and more samples, ends as if all had been there at once. For this a sample behind the
    last row stays undone: a row that is added may hold it, so the next run reads it again. It is done once the
    partition's clock has passed it by ``max_duration`` and ``allowed_lateness``: no batch runs so long.
    """

    __slots__ = ("_ended", "_name", "_read", "_step_us", "_stream", "_undecided", "n_fixed", "odd", "rows")

    def __init__(self, name: str, stream: str, rows: StreamRows, max_duration_us: int) -> None:
        self._name = name
        self._stream = stream
        self.rows = rows
        self._step_us = max_duration_us // _STRETCHES
        self._undecided: list[_Stretch] = []
        self._read: tuple[tuple[int, int], ...] = ()
        self.n_fixed = 0
        """So many beginnings and ends of rows must stay, whatever the clocks say."""
        self.odd: Counter[str] = Counter()
        """Counts ``outside``, samples in no row; it is that of the stream (``StreamState.odd``)."""
        self._ended: tuple[int, int] | None = None

    # --- samples ---

    def leave_out(self, run: Run) -> None:
        """Count the samples of ``run``, which are in no row."""
        self.odd["outside"] += len(run) + run.merged
        if run.first_us < self.rows.known_us:
            return
        since_us = max(run.arrived_us, run.last_us)
        last = self._undecided[-1] if self._undecided else None
        if last is None or since_us >= last.since_us + self._step_us:
            self._undecided.append(_Stretch(since_us, since_us, run.position.offset, run.before))
            return
        last.last_us = max(last.last_us, since_us)
        if run.position.offset < last.offset:
            last.offset, last.before = run.position.offset, run.before

    # --- ends ---

    def row_of(self, sequence: str | None) -> Row | None:
        """Return the row of an open sequence."""
        return self.rows.by_id.get(sequence or "")

    def further_of(self, sequence: str | None) -> tuple[tuple[str, str], ...]:
        """Return what the verdict of a sequence shows of its row."""
        row = self.row_of(sequence)
        return () if row is None else row.further

    def is_over(self, sequence: str | None, clock_us: int) -> bool:
        """Return whether the row of ``sequence`` has an end, and ``clock_us`` has reached it."""
        row = self.row_of(sequence)
        return row is not None and row.end_us is not None and row.end_us <= clock_us

    def runs_still(self, sequence: str | None) -> bool:
        """Return whether the row of ``sequence`` has no end: the input's end does not end it."""
        row = self.row_of(sequence)
        return row is not None and row.is_open

    def ended(self, sequence: str | None) -> None:
        """Note that ``sequence`` has ended, perhaps before the end of its row came: that end must stay."""
        if (row := self.row_of(sequence)) is not None:
            self.n_fixed = max(self.n_fixed, self.rows.n_through(row))

    # --- what is undone ---

    @property
    def undone_from(self) -> tuple[int, Clocks] | None:
        """Return the lowest offset of a sample that a row still to come may hold, and the clocks before it."""
        first = min(self._undecided, key=lambda stretch: stretch.offset, default=None)
        return None if first is None else (first.offset, first.before)

    @property
    def first_since_us(self) -> int:
        """Return the clock that says when the next of these samples are done; never if there are none."""
        return min((stretch.last_us for stretch in self._undecided), default=NEVER_US)

    def pass_silent(self, since_us: int) -> None:
        """Note that no row can hold the samples that came at the clock ``since_us`` or before."""
        self._undecided = [stretch for stretch in self._undecided if stretch.last_us > since_us]

    def is_done(self, run: Run) -> bool:
        """Return whether a sample of an ended sequence was judged with it, or told of, when the input ended before."""
        if self._ended is None or run.merged:
            return False
        below, known_us = self._ended
        return run.position.offset < below and run.first_us < known_us

    def input_ended(self, read_below: int) -> None:
        """Note that the end of the input released all samples that waited; it came before the offset ``read_below``."""
        self._ended = read_below, self.rows.known_us

    def is_untold(self, offset: int, time_us: int) -> bool:
        """Return whether a sample that the record at ``offset``, read again, shows to be late was in no row before."""
        return bool(self._read) and time_us >= self._read[bisect_right(self._read, (offset, NEVER_US)) - 1][1]

    def saved(self, through_us: int | None, read_below: int, reread_below: int) -> UsedRows:
        """Return what a later table must agree with, where samples up to ``through_us`` are done.

        Records below ``read_below`` were read with this one, those up to ``reread_below`` perhaps with an earlier one.
        """
        n = max(self.n_fixed, self.rows.n_bounds(through_us))
        read = [(0, self.rows.known_us)]
        if read_below < reread_below and self._read:
            place = bisect_right(self._read, (read_below, NEVER_US)) - 1
            read += [(read_below, self._read[place][1]), *self._read[place + 1 :]]
        return UsedRows(n, self.rows.digest(n), tuple(read), self._ended)

    def restore(self, saved: UsedRows | None, through_us: int | None) -> None:
        """Go on after ``saved``. Raises SourceError if the rows do not."""
        if saved is None:
            return  # from before the table was named
        if (problem := self.rows.difference(self._stream, saved.n, saved.digest, through_us)) is not None:
            raise SourceError(
                f"{self._name}: {problem}: put the table back (rows may be added behind a stream's newest one), or "
                "move the checkpoint and the outputs away to begin anew"
            )
        self.n_fixed, self._read, self._ended = saved.n, saved.read, saved.ended
