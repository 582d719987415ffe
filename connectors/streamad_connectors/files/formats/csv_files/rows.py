"""Reads CSV: a header line names the columns, each row is one record; the offset counts rows from 0.

A record's value is a msgpack map from column to number, text or nil (bytes for text that is not in the file's
encoding); ``decode.fields`` maps the columns.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TextIO

import msgspec

from streamad.errors import SourceError, some_of
from streamad.plugins import ConnectorContext
from streamad.settings.numerals import MISSING_WORDS, Numerals
from streamad.types import Record
from streamad_connectors.files.formats.csv_files.cells import Kind, is_text, kind_of, number_of
from streamad_connectors.files.formats.csv_files.header import Opened, check_names, read_header
from streamad_connectors.files.formats.csv_files.lines import BoundedLines, ReadsLines, opened
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord, shrunk_error

_SAMPLE_ROWS = 1000
_COMPARED_ROWS = 50
_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its cells (None if it cannot be cut into cells), its text in the file, and whether its end was read.

    The last row of a file that is still written may not be whole.
    """

    cells: list[str] | None
    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns' names, whether each holds numbers, and how those are written."""

    names: Sequence[str]
    are_numeric: Sequence[bool]
    numerals: Numerals


def read_csv(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the rows from number ``offset`` on; blank rows do not count.

    A row that does not fit the header is passed on unchanged, to become a dead letter.
    """
    with opened_table(path, options, context) as table:
        if table is None:
            return
        handle, delimiter, columns = table
        number = 0
        for row in rows_of(handle, delimiter, options.max_record_bytes):
            if number >= offset:
                yield record_of(row, number, columns, options), number + 1
            number += 1
        if number < offset:
            raise shrunk_error(path, offset, number, "rows")


@contextmanager
def opened_table(
    path: Path, options: FileOptions, context: ConnectorContext
) -> Iterator[tuple[TextIO, str, Columns] | None]:
    """Open the file for the block, at its first row, with its delimiter and columns; None if it has no header."""
    open_text = partial(opened, path, options)
    with open_text() as handle:
        header = read_header(handle, open_text, path, options)
        if header is None:
            yield None
            return
        are_numeric = numeric_columns(open_text, path, options, context)
        yield handle, header.delimiter, Columns(header.names, are_numeric, numerals_of(options, context))


def numerals_of(options: FileOptions, context: ConnectorContext) -> Numerals:
    """Return how the file's numbers are written: as the option ``decimal`` says, else as the plant's."""
    decimal = options.decimal if "decimal" in options.model_fields_set else context.decimal
    return Numerals(decimal, context.thousands)


def record_of(row: Row, number: int, columns: Columns, options: FileOptions) -> Record:
    """Return the record of the row with this number."""
    cells = _message(row, columns)
    value = row.text.encode("utf-8", "surrogateescape") if cells is None else _encoder.encode(cells)
    return Record(number, value[: options.max_record_bytes + 1])


def rows_of(handle: ReadsLines, delimiter: str, limit: int) -> Iterator[Row]:
    """Cut the rest of ``handle`` into rows, in bounded memory."""
    lines = BoundedLines(handle, limit, keeps=True)
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        lines.taken.clear()
        try:
            cells: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a cell beyond csv.field_size_limit, probably because of an unclosed quote
            cells = None
        text = "".join(lines.taken).rstrip("\r\n")
        if text.strip():
            yield Row(cells, text, not lines.is_through)


def numeric_columns(opened: Opened, path: Path, options: FileOptions, context: ConnectorContext) -> list[bool]:
    """Return for each column of ``path``, which is ``opened``, whether its cells are numbers.

    Yes for the plant's channels, no for the option ``text``, else by the first 1000 rows: most cells are numbers and
    none has a leading zero (``007`` is an id). Raises SourceError, also if the first line is no header.
    """
    channels = {channel.name for channel in context.channels}
    numerals = numerals_of(options, context)
    with opened() as handle:
        header = read_header(handle, opened, path, options)
        if header is None:
            return []
        names = header.names
        unknown = set(options.text) - set(names)
        if unknown:
            raise SourceError(f"{path}: option text names {min(unknown)!r}, which is no column ({some_of(names)})")
        numbers = [0] * len(names)
        texts = [0] * len(names)
        padded = [False] * len(names)
        below: list[list[Kind]] = []
        are_as_wide = True
        for number, row in enumerate(islice(rows_of(handle, header.delimiter, options.max_record_bytes), _SAMPLE_ROWS)):
            if (cells := _fitted(row, names)) is None:
                are_as_wide &= number >= _COMPARED_ROWS
                continue
            if number < _COMPARED_ROWS:
                below.append([kind_of(cell) for cell in cells])
            for column, raw in enumerate(cells):
                cell = raw.strip()
                if cell.lower() in MISSING_WORDS:
                    continue
                if number_of(cell, numerals) is not None:
                    numbers[column] += 1
                else:
                    texts[column] += 1
                    padded[column] |= cell[0] == "0" and cell.isdecimal()
    check_names(header, below if are_as_wide else [], opened, path, options)
    if context.as_written:
        return [False] * len(names)
    return [
        name not in options.text and (name in channels or (not padded[i] and numbers[i] > texts[i]))
        for i, name in enumerate(names)
    ]


def _message(row: Row, columns: Columns) -> dict[str, object] | None:
    if (cells := _fitted(row, columns.names)) is None:
        return None
    to_value = cell_of if is_text(row.text) else _cell_or_bytes
    return {
        name: to_value(cell, columns.numerals if is_numeric else None)
        for name, cell, is_numeric in zip(columns.names, cells, columns.are_numeric, strict=True)
        if name
    }


def _fitted(row: Row, names: Sequence[str]) -> list[str] | None:
    """Return a cell for each name, None if the row does not fit: only blank cells and nameless columns may be too many.

    Many systems end rows with a delimiter, but not the header, or the other way round.
    """
    cells, n = row.cells, len(names)
    if cells is None or len(cells) == n:
        return cells
    if any(cell.strip() for cell in cells[n:]) or any(names[len(cells) :]):
        return None
    return cells[:n] + [""] * (n - len(cells))


def cell_of(raw: str, numerals: Numerals | None) -> object:
    """Return the cell as text, as nil, or as a number if it is in a column of them, whose ``numerals`` are given."""
    if numerals is not None and (number := number_of(raw, numerals)) is not None:
        return number
    text = raw.strip()
    return None if not text or (numerals is not None and text.lower() in MISSING_WORDS) else text


def _cell_or_bytes(raw: str, numerals: Numerals | None) -> object:
    return cell_of(raw, numerals) if is_text(raw) else raw.encode("utf-8", "surrogateescape")
