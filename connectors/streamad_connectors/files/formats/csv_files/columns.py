"""Reads CSV by column, some lines at once: those of which all is plain; the others are read row by row.

Readings are read by pyarrow. All other cells are cut by it, and each different one is read as ``rows`` reads it.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from streamad.plugins import ConnectorContext
from streamad.settings.numerals import MISSING_WORDS
from streamad.tables import Column, ColumnBatch, Wanted
from streamad.types import Record
from streamad_connectors.files.formats.csv_files.rows import (
    Columns,
    cell_of,
    opened_table,
    record_of,
    rows_of,
)
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, shrunk_error

FEWEST_CHARACTERS = 1 << 18
"""Fewer are read row by row: that is quicker than to import pyarrow."""
CHARACTERS = 1 << 20
_ODD: Final = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_BLANK_LINE: Final = re.compile(rb"(?:\A|\n)[ \t]*\r?\n")
_QUOTE, _LINE_FEED, _RETURN = b'"\n\r'
_UNBOUNDED: Final = 1 << 62
_NUMBER_BYTES: Final = 10
_NULLS: Final = sorted({form(word) for word in MISSING_WORDS for form in (str, str.upper, str.capitalize)})


def read_csv_columns(
    path: Path, offset: int, options: FileOptions, context: ConnectorContext, wanted: Wanted
) -> Generator[ColumnBatch, None, None]:
    """Yield the columns ``wanted`` of the rows from number ``offset`` on, as ``read_csv`` would yield the rows."""
    with opened_table(path, options, context) as table:
        if table is None:
            return
        handle, delimiter, columns = table
        number = 0
        text = _Text(handle)
        reader = _Reader(columns, delimiter, options, wanted)
        while text.fill(options.max_record_bytes):
            batch = reader.by_column(text.fresh, number)
            if batch is not None:
                text.take()
            else:
                batch = reader.by_row(text, number)
            number += batch.n
            if batch.n and number > offset:
                yield batch if batch.offset >= offset else _behind(batch, offset - batch.offset)
        if number < offset:
            raise shrunk_error(path, offset, number, "rows")


def _behind(batch: ColumnBatch, n: int) -> ColumnBatch:
    """Return the rows of ``batch`` behind the first ``n``, as records."""
    return _of_records(batch.rows(n, batch.n))


def _of_records(records: tuple[Record, ...]) -> ColumnBatch:
    offset = records[0].offset if records else 0
    return ColumnBatch("", offset, len(records), frozenset(), {}, _UNBOUNDED, lambda first, last: records[first:last])


class _Text:
    """A text of which some whole lines are read ahead; ``fresh`` are these until one is taken."""

    def __init__(self, handle: TextIO) -> None:
        self._handle = handle
        self.fresh = ""
        self._lines = io.StringIO()
        self._size = self._at = 0

    @property
    def is_ahead(self) -> bool:
        """Return whether there are lines that were read ahead and not taken."""
        return self._at < self._size

    def fill(self, limit: int) -> bool:
        """Read lines ahead if none are, the last up to ``limit`` characters longer; return whether there are some."""
        if not self.is_ahead:
            self.fresh = self._handle.read(CHARACTERS)
            if self.fresh and not self.fresh.endswith("\n"):
                self.fresh += self._handle.readline(limit)
            self._lines, self._size, self._at = io.StringIO(self.fresh, newline=""), len(self.fresh), 0
        return self.is_ahead

    def take(self) -> None:
        """Take all that was read ahead."""
        self.fresh, self._at = "", self._size

    def readline(self, size: int = -1, /) -> str:
        """Return the next line, or ``size`` characters of it."""
        if not self.is_ahead:
            return self._handle.readline(size)
        line, self.fresh = self._lines.readline(size), ""
        self._at += len(line)
        if self.is_ahead or line.endswith(("\n", "\r")) or len(line) == size:
            return line
        return line + self._handle.readline(size - len(line) if size > 0 else size)


class _Reader:
    """Reads lines of one file as columns, or as rows."""

    def __init__(self, columns: Columns, delimiter: str, options: FileOptions, wanted: Wanted) -> None:
        self._columns = columns
        self._delimiter = delimiter
        self._options = options
        self._names = frozenset(name for name in columns.names if name)
        self._is_numeric = dict(zip(columns.names, columns.are_numeric, strict=True))
        self._wanted = [(str(place), name) for place, name in enumerate(columns.names) if name in wanted.names]
        self._readings = {
            place
            for place, name in self._wanted
            if name in wanted.readings and self._is_numeric[name] and columns.numerals.are_usual
        }
        self._longest = sum(_NUMBER_BYTES + len(name.encode()) for name in columns.names)
        is_installed = importlib.util.find_spec("pyarrow") is not None
        self._is_possible = is_installed and bool(self._wanted) and len(columns.names) > 1
        self._known: tuple[str, list[str]] = ("", [])

    def by_column(self, lines: str, number: int) -> ColumnBatch | None:
        """Return ``lines`` by column, the first of which is the row with this number; None if they are not plain."""
        row_bytes = self._longest + 2 * len(lines)
        if not self._is_possible or len(lines) < FEWEST_CHARACTERS or row_bytes > self._options.max_record_bytes:
            return None
        try:
            plain = _plain(lines.encode(), self._delimiter)
            table = None if plain is None else self._table(plain)
        except ValueError:  # as are UnicodeEncodeError and pyarrow.ArrowInvalid
            return None
        if table is None:
            return None
        columns = {}
        for place, name in self._wanted:
            cells = table.column(place).chunk(0)
            columns[name] = self._reading(cells) if place in self._readings else self._cells(cells, name)
        rows = partial(self._rows, lines, number)
        return ColumnBatch("", number, table.num_rows, self._names, columns, row_bytes, rows)

    def by_row(self, text: _Text, number: int) -> ColumnBatch:
        """Return the next rows of ``text`` as records, no more lines than it has read ahead, but whole rows."""
        records: list[Record] = []
        size = 0
        for row in rows_of(text, self._delimiter, self._options.max_record_bytes):
            records.append(record_of(row, number + len(records), self._columns, self._options))
            size += len(records[-1].value)
            if not text.is_ahead or len(records) >= MAX_BATCH_RECORDS or size >= MAX_BATCH_BYTES:
                break
        return _of_records(tuple(records))

    def _table(self, lines: bytes) -> Any:
        """Return the wanted columns as pyarrow reads them. Raises ValueError."""
        import pyarrow  # noqa: PLC0415 - an extra
        import pyarrow.csv  # noqa: PLC0415

        text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        places = [place for place, _ in self._wanted]
        return pyarrow.csv.read_csv(
            io.BytesIO(lines),
            pyarrow.csv.ReadOptions(
                use_threads=False,
                block_size=len(lines) + 1,
                column_names=[str(place) for place in range(len(self._columns.names))],
            ),
            pyarrow.csv.ParseOptions(delimiter=self._delimiter, quote_char=False, newlines_in_values=False),
            pyarrow.csv.ConvertOptions(
                column_types={place: pyarrow.float64() if place in self._readings else text for place in places},
                include_columns=places,
                null_values=_NULLS,
                strings_can_be_null=False,
            ),
        )

    @staticmethod
    def _reading(cells: Any) -> Column:
        """Return readings; those that a row may have otherwise are infinite, so that their rows are read."""
        valid = np.asarray(cells.is_valid()) if cells.null_count else None
        values = np.array(cells.fill_null(0.0))
        is_odd = np.isnan(values) | ((values == 0) & np.signbit(values))  # nan(1), and -0, which is 0 as an integer
        values[is_odd] = np.inf
        return Column("number", values, valid)

    def _cells(self, cells: Any, name: str) -> Column:
        numerals = self._columns.numerals if self._is_numeric[name] else None
        different = [cell_of(cell, numerals) for cell in cells.dictionary.to_pylist()]
        codes = np.asarray(cells.indices)
        for kind in (int, float):
            if all(type(cell) is kind for cell in different):
                try:
                    return Column("number", np.array(different, dtype=kind)[codes])
                except OverflowError:
                    break
        return Column("cell", codes, None, tuple(different))

    def _rows(self, lines: str, number: int, first: int, last: int) -> tuple[Record, ...]:
        if self._known[0] is not lines:
            self._known = lines, lines.split("\n")
        some = io.StringIO("\n".join(self._known[1][first:last]), newline="")
        rows = rows_of(some, self._delimiter, self._options.max_record_bytes)
        numbered = enumerate(rows, number + first)
        return tuple(record_of(row, place, self._columns, self._options) for place, row in numbered)


def _plain(lines: bytes, delimiter: str) -> bytes | None:
    """Return lines without the quotes around their cells; None if anything else in them is not plain."""
    is_odd = len(lines.translate(None, _ODD)) < len(lines) or lines.count(b"\r") != lines.count(b"\r\n")
    may_be_blank = lines.startswith((b"\n", b"\r", b" ", b"\t")) or any(
        each in lines for each in (b"\n\n", b"\n\r", b"\n ", b"\n\t")
    )
    if is_odd or (may_be_blank and _BLANK_LINE.search(lines)):
        return None
    if b'"' not in lines:
        return lines
    signs = np.frombuffer(lines, dtype=np.uint8)
    quotes = np.flatnonzero(signs == _QUOTE)
    is_bound = (signs == ord(delimiter)) | (signs == _LINE_FEED) | (signs == _RETURN)
    bounds = np.concatenate(([-1], np.flatnonzero(is_bound), [len(signs)]))
    begins, ends = quotes[::2], quotes[1::2]
    if len(begins) != len(ends):
        return None
    places = np.searchsorted(bounds, begins)
    is_around = (bounds[places - 1] == begins - 1) & (bounds[places] == ends + 1)
    return signs[signs != _QUOTE].tobytes() if is_around.all() else None
