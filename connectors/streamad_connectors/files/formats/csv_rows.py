"""Reads CSV: a header line names the columns, each row is one record; the offset counts rows from 0.

A record's value is a msgpack map from column to number, text or nil (bytes for text that is not in the file's
encoding); ``decode.fields`` maps the columns.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import msgspec

from streamad.errors import EncodingError, SourceError, some_of
from streamad.plugins import ConnectorContext
from streamad.types import Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord, open_bytes, shrunk_error

_SAMPLE_ROWS = 1000
_UTF16_MARKS = ("\udcff\udcfe", "\udcfe\udcff")  # byte order marks, as surrogateescape reads them
_DELIMITERS = (",", ";", "\t")
_MISSING = {"", "na", "n/a", "nan", "null", "none"}
_MAX_INTEGER_DIGITS = 18  # more do not fit msgpack's 64 bits
_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its cells (None if it cannot be cut into cells), its text in the file, and whether its end was read.

    The last row of a file that is still written may not be whole.
    """

    cells: list[str] | None
    text: str
    is_whole: bool


def read_csv(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the rows from number ``offset`` on; blank rows do not count.

    A row that does not fit the header is passed on unchanged, to become a dead letter.
    """
    with _opened(path, options) as handle:
        header = read_header(handle, path, options)
        if header is None:
            return
        names, delimiter = header
        channels = {channel.name for channel in context.channels}
        with _opened(path, options) as sample:
            numeric = numeric_columns(sample, path, options, channels)
        number = 0
        for row in rows_of(handle, delimiter, options.max_record_bytes):
            if number >= offset:
                yield record_of(row, number, names, numeric, options), number + 1
            number += 1
        if number < offset:
            raise shrunk_error(path, offset, number, "rows")


def record_of(row: Row, number: int, names: list[str], numeric: Sequence[bool], options: FileOptions) -> Record:
    """Return the record of the row with this number."""
    cells = _message(row, names, numeric, options.decimal)
    value = row.text.encode("utf-8", "surrogateescape") if cells is None else _encoder.encode(cells)
    return Record(number, value[: options.max_record_bytes + 1])


@contextmanager
def _opened(path: Path, options: FileOptions) -> Iterator[TextIO]:
    handle = io.TextIOWrapper(open_bytes(path), encoding=options.encoding, errors="surrogateescape", newline="")
    with handle:
        try:
            yield handle
        except UnicodeError as error:
            raise SourceError(f"{path}: is not {options.encoding} ({error}); set the option encoding") from error


def read_header(handle: TextIO, path: Path, options: FileOptions) -> tuple[list[str], str] | None:
    """Return the column names and the delimiter; None for an empty file."""
    line = handle.readline(options.max_record_bytes)
    while line and not line.strip():
        line = handle.readline(options.max_record_bytes)
    if not line:
        return None
    if not _is_text(line):
        likely = "utf-16" if line.startswith(_UTF16_MARKS) else "cp1252"
        raise EncodingError(
            f"{path}: its header is not {options.encoding}; set the option encoding, for example ?encoding={likely}",
            likely,
        )
    delimiter: str = options.delimiter
    if delimiter == "auto":
        delimiter = max(_DELIMITERS, key=lambda mark: _n_cells(line, mark))
    try:
        names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error as error:
        raise SourceError(
            f"{path}: its header has a name of more than {csv.field_size_limit()} characters, or an open quote "
            f"({error}); put a header line there"
        ) from error
    named = [name for name in names if name]
    if all(_is_number(name, options.decimal) for name in named):
        raise SourceError(f"{path}: its first line holds no column names; put a header line there")
    if len(set(named)) != len(named):
        twice = next(name for name, count in Counter(named).items() if count > 1)
        raise SourceError(f"{path}: column {twice!r} appears twice in the header; rename one")
    return names, delimiter


def _n_cells(line: str, delimiter: str) -> int:
    """Return into how many cells ``delimiter`` cuts ``line``; 0 if one is too long, as with a wrong delimiter."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter)))
    except csv.Error:
        return 0


def rows_of(handle: TextIO, delimiter: str, limit: int) -> Iterator[Row]:
    """Cut the rest of ``handle`` into rows, in bounded memory."""
    taken: list[str] = []
    lines = _BoundedLines(handle, limit, taken)
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        taken.clear()
        try:
            cells: list[str] | None = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a cell beyond csv.field_size_limit, probably because of an unclosed quote
            cells = None
        text = "".join(taken).rstrip("\r\n")
        if text.strip():
            yield Row(cells, text, not lines.is_through)


class _BoundedLines:
    """Lines cut above ``limit``, each also appended to ``taken``; ``is_through``: one more was asked for."""

    def __init__(self, handle: TextIO, limit: int, taken: list[str]) -> None:
        self.is_through = False
        self._handle, self._limit, self._taken = handle, limit, taken

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._handle.readline(self._limit + 1)
        if not line:
            self.is_through = True
            raise StopIteration
        self._taken.append(line)
        if len(line) > self._limit and not line.endswith(("\n", "\r")):
            while (piece := self._handle.readline(self._limit)) and not piece.endswith(("\n", "\r")):
                pass
        return line


def numeric_columns(handle: TextIO, path: Path, options: FileOptions, channels: set[str]) -> list[bool]:
    """Return for each column of ``handle``, which stands at the beginning of ``path``, whether its cells are numbers.

    Yes for the plant's channels, no for the option ``text``, else by the first 1000 rows: most cells are numbers and
    none has a leading zero (``007`` is an id).
    """
    names, delimiter = read_header(handle, path, options) or ([], ",")
    unknown = set(options.text) - set(names)
    if unknown:
        raise SourceError(f"{path}: option text names {min(unknown)!r}, which is no column ({some_of(names)})")
    numbers = [0] * len(names)
    texts = [0] * len(names)
    padded = [False] * len(names)
    for row in islice(rows_of(handle, delimiter, options.max_record_bytes), _SAMPLE_ROWS):
        if row.cells is None or len(row.cells) != len(names):
            continue
        for column, raw in enumerate(row.cells):
            cell = raw.strip()
            if cell.lower() in _MISSING:
                continue
            if _is_number(cell, options.decimal):
                numbers[column] += 1
            else:
                texts[column] += 1
                padded[column] |= cell[0] == "0" and cell.isdecimal()
    return [
        name not in options.text and (name in channels or (not padded[i] and numbers[i] > texts[i]))
        for i, name in enumerate(names)
    ]


def _message(row: Row, names: list[str], numeric: Sequence[bool], decimal: str) -> dict[str, object] | None:
    if row.cells is None or len(row.cells) != len(names):
        return None
    to_value = _cell if _is_text(row.text) else _cell_or_bytes
    return {
        name: to_value(cell, as_number, decimal)
        for name, cell, as_number in zip(names, row.cells, numeric, strict=True)
        if name
    }


def _cell(raw: str, as_number: bool, decimal: str) -> object:
    if as_number and (number := _number(raw, decimal)) is not None:
        return number
    text = raw.strip()
    return None if not text or (as_number and text.lower() in _MISSING) else text


def _cell_or_bytes(raw: str, as_number: bool, decimal: str) -> object:
    return _cell(raw, as_number, decimal) if _is_text(raw) else raw.encode("utf-8", "surrogateescape")


def _is_number(text: str, decimal: str) -> bool:
    return _number(text, decimal) is not None


def _number(text: str, decimal: str) -> int | float | None:
    """Return ``text`` as a number; None for anything else, such as ``007`` or ``1_000``."""
    if decimal == "." and "." in text and "_" not in text:  # the usual case, first for speed
        return _float(text)
    digits = text[1:] if text[:1] in ("-", "+") else text
    if "_" in text or (digits[:1] == "0" and digits[1:2].isdecimal()) or (decimal != "." and "." in text):
        return None
    if digits.isascii() and digits.isdecimal():
        return int(text) if len(digits) <= _MAX_INTEGER_DIGITS else None
    return _float(text.replace(decimal, "."))


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_text(text: str) -> bool:
    """Return whether all bytes were in the file's encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
