"""The rows of a table of batches: which stretch of a stream's time is which sequence. Pure: nothing here changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from streamad.errors import DecodeError, SourceError
from streamad.ingest.decode_values import read_id
from streamad.ingest.sequences.clocks import NEVER_US
from streamad.ingest.sequences.runs import Run
from streamad.tables import NO_STREAM, Singles
from streamad.types import SampleBlock, from_us


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the samples of ``stream`` in [``begin_us``, ``end_us``) are ``sequence``; no end: it runs still.

    ``line`` is that in the file, ``route`` the row's value of the field that chooses the model. ``further``: what the
    verdict shows of its further columns.
    """

    stream: str
    sequence: str
    begin_us: int
    end_us: int | None
    line: int
    route: str | None = None
    further: tuple[tuple[str, str], ...] = ()

    @property
    def is_open(self) -> bool:
        """Return whether it has no end yet."""
        return self.end_us is None

    def __str__(self) -> str:
        return f"{self.sequence} of {self.stream} (line {self.line})"


class StreamRows:
    """The rows of one stream, in the order of time.

    They do not overlap, so only the last one may be without an end. Raises SourceError for rows that overlap, or two of
    one id. ``gives_routes``: the rows' routes replace those of the samples. Rows that are added lie behind
    ``known_us``, the end of the last one.
    """

    __slots__ = ("_bounds", "_digests", "_lines", "_rows", "_starts", "by_id", "gives_routes", "known_us", "rows")

    def __init__(self, rows: Iterable[Row] = (), *, gives_routes: bool = False) -> None:
        self.rows = sorted(rows, key=lambda row: (row.begin_us, row.line))
        self.gives_routes = gives_routes
        self.by_id: dict[str, Row] = {}
        for row in sorted(self.rows, key=lambda row: row.line):
            if (first := self.by_id.setdefault(row.sequence, row)) is not row:
                raise SourceError(f"line {row.line}: {row.sequence} of {row.stream} stands in line {first.line}, too")
        for before, after in pairwise(self.rows):
            _check_order(before, after)
        # From each start on, up to the next one, samples belong to the row beside it (None: to none).
        self._starts: list[int] = []
        self._rows: list[Row | None] = []
        # What a reader has met by a time: the beginnings and ends up to it, each with the digest of all up to there.
        self._bounds: list[int] = []
        self._lines: list[Row] = []
        self._digests = [""]
        for row in self.rows:
            if self._starts and self._starts[-1] == row.begin_us:
                self._rows[-1] = row
            else:
                self._starts.append(row.begin_us)
                self._rows.append(row)
            self._bound(row.begin_us, row, f"begin {row.begin_us} {row.sequence}")
            if row.end_us is not None:
                self._starts.append(row.end_us)
                self._rows.append(None)
                self._bound(row.end_us, row, f"end {row.end_us}")
        last = self.rows[-1] if self.rows else None
        self.known_us = -NEVER_US if last is None else NEVER_US if last.end_us is None else last.end_us

    def _bound(self, time_us: int, row: Row, text: str) -> None:
        self._bounds.append(time_us)
        self._lines.append(row)
        self._digests.append(blake2b(f"{self._digests[-1]} {text}".encode(), digest_size=12).hexdigest())

    # --- where samples belong ---

    def at(self, time_us: int) -> Row | None:
        """Return the row of a sample at ``time_us``, None if it is in none."""
        place = bisect_right(self._starts, time_us) - 1
        return self._rows[place] if place >= 0 else None

    def parts_of(self, run: Run) -> Iterator[Run]:
        """Yield the parts of ``run`` that lie in one row or between two, with the ids of the rows (None: in no row)."""
        at, n = 0, len(run)
        while at < n:
            place = bisect_right(self._starts, int(run.times_us[at]))
            stop = n
            if place < len(self._starts) and run.last_us >= self._starts[place]:
                stop = int(np.searchsorted(run.times_us, self._starts[place]))
            row = self._rows[place - 1] if place else None
            part = run if stop - at == n else run.part(at, stop, run.position.index + at)
            part.sequence = None if row is None else row.sequence
            if self.gives_routes:
                part.routes = () if row is None or row.route is None else ((part.position, row.route),)
            yield part
            at = stop

    def placed(self, block: SampleBlock) -> SampleBlock:
        """Return ``block`` with the id of the row that holds all its samples; None if they lie in several or in none.

        The samples of such a block are placed one run after the other (``parts_of``).
        """
        row = None
        if block.later_us is None and len(block):
            first_us, last_us = int(block.times_us[0]), int(block.times_us[-1])
            row = self.at(first_us)
            if row is not None and row.end_us is not None and last_us >= row.end_us:
                row = None
        block.sequence = None if row is None else row.sequence
        if self.gives_routes:
            block.route = None if row is None else row.route
        return block

    # --- what a later table must agree with ---

    def n_bounds(self, through_us: int | None) -> int:
        """Return how many beginnings and ends lie at ``through_us`` or before it; None: before all."""
        return 0 if through_us is None else bisect_right(self._bounds, through_us)

    def n_through(self, row: Row) -> int:
        """Return how many beginnings and ends lie up to the end of ``row``."""
        return 2 * bisect_right(self.rows, row.begin_us, key=lambda each: each.begin_us) - row.is_open

    def digest(self, n: int) -> str:
        """Return the digest of the first ``n`` beginnings and ends."""
        return self._digests[n]

    def difference(self, stream: str, n: int, digest: str, through_us: int | None) -> str | None:
        """Return why these rows do not go on from others, None if they do.

        Of those, the first ``n`` beginnings and ends have this ``digest``; samples up to ``through_us`` were placed.
        """
        if n >= len(self._digests) or self._digests[n] != digest:
            which = "row" if n < 3 else f"{(n + 1) // 2} rows"
            return f"the first {which} of {stream}, in the order of time, changed after a run had used them"
        if self.n_bounds(through_us) > n:
            row = self._lines[n]
            return (
                f"line {row.line}: {row.sequence} of {stream} begins or ends at {time_text(self._bounds[n])}, but "
                f"samples up to {time_text(through_us or 0)} were cut without it"
            )
        return None


class BatchTable:
    """The rows of all streams. ``name`` is the file's, for people; ``gives_routes``: they choose the model.

    Law: the row of a sample depends on its stream and time alone.
    """

    def __init__(self, name: str, rows: Sequence[Row], *, gives_routes: bool = False) -> None:
        self.name = name
        by_stream: dict[str, list[Row]] = {}
        for row in rows:
            by_stream.setdefault(row.stream, []).append(row)
        self.streams: Mapping[str, StreamRows] = {
            stream: StreamRows(of, gives_routes=gives_routes) for stream, of in by_stream.items()
        }
        self._none = StreamRows(gives_routes=gives_routes)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return sum(len(rows.rows) for rows in self.streams.values())

    def of(self, stream: str) -> StreamRows:
        """Return the rows of ``stream``, perhaps none."""
        return self.streams.get(stream, self._none)

    def placed(self, singles: Singles) -> Singles:
        """Return ``singles`` with the ids of the rows in place of their own; what is not allowed is marked."""
        streams, sequences = [*singles.streams], []
        for at, (stream, own, time_us) in enumerate(
            zip(singles.streams, singles.sequences, singles.times_us, strict=True)
        ):
            if own is not None and not _is_allowed(own):
                streams[at] = NO_STREAM
            row = self.of(stream).at(time_us)
            sequences.append(None if row is None else row.sequence)
        routes = None if self._none.gives_routes else singles.routes
        return singles._replace(streams=streams, sequences=sequences, routes=routes, together=None)


def _is_allowed(own: str) -> bool:
    try:
        read_id(own, "sequence")
    except DecodeError:
        return False
    return True


def _check_order(before: Row, after: Row) -> None:
    if before.end_us is None:
        raise SourceError(
            f"line {before.line}: {before.sequence} of {before.stream} has no end, but {after.sequence} (line "
            f"{after.line}) begins after it: write its end; only a stream's newest batch may run still"
        )
    if after.begin_us < before.end_us:
        late, early = (after, before) if after.line > before.line else (before, after)
        raise SourceError(
            f"line {late.line}: {late.sequence} of {late.stream} overlaps {early.sequence} (line {early.line})"
        )


def time_text(time_us: int) -> str:
    """Return a time in UTC for people: 2026-03-01T08:15:30Z."""
    return from_us(time_us).isoformat().replace("+00:00", "Z")
