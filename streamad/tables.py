"""Tables as sources give them: how a file of rows is laid out, rows by column, and records of one sample each.

Shapes: n rows, C channels.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from streamad.types import BoolArray, FloatArray, IntArray, Record, SourceEvent, written_us_at


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a table of text, and why it was taken for that; lines count from 1.

    ``header`` is None if no line was found that names the columns. If ``is_sure``, there is none; else that is not
    known, or (with a ``header``) another line may name them, too: ``why`` says which. ``units`` has an item a column,
    None where no unit stands; it is empty without a line of units. ``options`` are what the source needs in order to
    read the table so, beyond its defaults.
    """

    header: int | None
    first_row: int | None
    names: tuple[str, ...]
    delimiter: str
    why: str
    is_sure: bool
    units: tuple[str | None, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class TableSource(Protocol):
    """A source that may read tables of text."""

    def table_layout(self) -> TableLayout | None:
        """Return how its first table looks to be laid out, None if it has none. Raises SourceError."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The cells of one column, [n]; ``valid`` is False where a row has none (None: all have one).

    ``number``: int64, uint64 or float64, as the rows have them (a boolean is 0 or 1). ``cell``: indexes into ``cells``,
    the different ones as rows have them. ``time``: int64 Unix microseconds, which the rows have as text with its offset
    from UTC; ``zoned``: those of a named zone, whose offset had seconds before 1973; ``local``: such times without an
    offset. ``other``: anything else, for which there are rows only.
    """

    kind: Literal["number", "cell", "time", "zoned", "local", "other"]
    values: npt.NDArray[Any]
    valid: BoolArray | None = None
    cells: tuple[Any, ...] = ()

    @property
    def has_all(self) -> bool:
        """Return whether each row has a cell."""
        return self.valid is None or bool(self.valid.all())


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBatch:
    """Consecutive rows of one partition, by column: rows ``offset`` to ``offset + n``, without times of their own.

    ``names`` are those of all columns of a row, ``columns`` has those that were asked for. No row is longer than
    ``row_bytes``. ``rows`` makes the records from one index to another, fewer if they are long, but at least one; it
    works until the next event is asked for. ``sequence`` and ``written`` are those of the records and their batch.
    """

    partition: str
    offset: int
    n: int
    names: frozenset[str]
    columns: Mapping[str, Column]
    row_bytes: int
    rows: Callable[[int, int], tuple[Record, ...]]
    sequence: str | None = None
    written: tuple[tuple[int, int], ...] = ()
    end_offset: int | None = None

    @property
    def next_offset(self) -> int:
        """Return the offset to read after this batch."""
        return self.offset + self.n

    def written_us(self, offset: int) -> int | None:
        """Return when the row at ``offset`` was written at the latest; None if that is not known."""
        return written_us_at(self.written, offset)

    def written_of_all(self) -> npt.NDArray[np.int64] | None:
        """Return when each row was written at the latest, int64 [n] or [1] if all are alike; None if not known."""
        if not self.written:
            return None
        begins, times_us = (np.array(each, dtype=np.int64) for each in zip(*self.written, strict=True))
        places = np.searchsorted(begins, np.arange(self.offset, self.next_offset), side="right") - 1
        found: npt.NDArray[np.int64] = times_us[np.maximum(places, 0)]
        return found


class Wanted(NamedTuple):
    """Names of the columns to be given, and of those that hold readings alone, which are numbers if they can be."""

    names: frozenset[str]
    readings: frozenset[str]


@runtime_checkable
class ColumnarSource(Protocol):
    """A finite source that can give rows of tables by column, which are quicker to take than a record each.

    Law: the events are those of ``Source.batches``, where a ``ColumnBatch`` stands for the batches of its rows, but
    that those have no cursor.
    """

    def column_batches(self, wanted: Wanted) -> AsyncIterator[SourceEvent | ColumnBatch]:
        """Yield partitions and their records, once ``seek`` was called; the columns ``wanted`` of rows, if they can be.

        Raises SourceError.
        """


NO_STREAM: Final = ""
"""The stream of a record of ``Singles`` that must be decoded by itself: no stream has this name."""


class Singles(NamedTuple):
    """Consecutive records of one sample each, by column; what they hold is what a ``SampleBlock`` of each would.

    ``times_us`` and ``records_us`` are the times of the samples and the records' own (None: the event time is used);
    ``values`` float32 [n, C]. None of them has a second reading or a value that cannot be used, except for those of
    ``NO_STREAM``. The ids may be ones that are not allowed; no open sequence has such. ``routes``, None: none has one.
    ``together``: their times, int64 [n], and the index behind the stretch in which each lies: of records without an end
    mark or a time of their own, of one stream, id and route, whose times rise. None: not known.
    """

    offsets: list[int]
    records_us: list[int | None]
    streams: list[str]
    sequences: list[str | None]
    times_us: list[int]
    values: FloatArray
    ends: list[bool]
    routes: list[str | None] | None = None
    together: tuple[IntArray, list[int]] | None = None
