"""Cuts the bytes that were appended to a file into records: JSON lines or rows of CSV."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO, TypeAlias

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad_connectors.files.formats.csv_files.header import Header, read_header
from streamad_connectors.files.formats.csv_files.rows import Columns, numerals_of, numeric_columns, record_of, rows_of
from streamad_connectors.files.formats.jsonl import lines_of, skip_line
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord

Span: TypeAlias = Callable[[int, int], BinaryIO]
"""Opens the bytes of a file from the first offset to before the second."""


class Cutter(Protocol):
    """Cuts a file into records, span by span.

    Records of all bytes below ``done`` were returned, those below ``seen`` were looked at: a record that did not end
    there is returned once its rest is there. ``next_offset`` is the offset after the last record returned.
    """

    done: int
    seen: int
    next_offset: int

    def cut(self, span: Span, end: int, whole: int, *, is_end: bool) -> list[ReadRecord]:
        """Return the further records before byte ``end``; whole lines lie before ``whole``.

        ``is_end``: the file ends at ``end``, and so does its last record.
        """


class JsonLines:
    """Cuts JSON lines as ``read_jsonl`` does; ``is_line_start``: a line begins at ``offset``."""

    def __init__(self, options: FileOptions, offset: int, *, is_line_start: bool) -> None:
        self.done = self.seen = self.next_offset = offset
        self._limit = options.max_record_bytes
        self._is_line_start = is_line_start

    def cut(self, span: Span, end: int, whole: int, *, is_end: bool) -> list[ReadRecord]:
        """Return the lines before ``end``."""
        begin = self.done
        with span(begin, end) as handle:
            if not self._is_line_start:
                begin += skip_line(handle)
                self._is_line_start = True
            found = list(lines_of(handle, begin, self._limit))
        self.done = self.seen = self.next_offset = end
        return found


class CsvRows:
    """Cuts CSV as ``read_csv`` does, from row ``offset`` on.

    ``numeric``: which columns hold numbers ("" if not known yet: the rows that are there decide then).
    """

    def __init__(
        self, path: Path, options: FileOptions, context: ConnectorContext, offset: int, numeric: str = ""
    ) -> None:
        self.done = self.seen = 0
        self.next_offset = offset
        self.numeric = numeric
        self._path, self._options = path, options
        self._context, self._numerals = context, numerals_of(options, context)
        self._header: Header | None = None
        self._n_rows = 0  # before ``done``

    def cut(self, span: Span, end: int, whole: int, *, is_end: bool) -> list[ReadRecord]:
        """Return the rows before ``end``. Raises SourceError for a header that cannot be used."""
        found: list[ReadRecord] = []
        number = self._n_rows
        with self._text(span, self.done, end) as handle:
            if self.done == 0:
                opened = partial(self._text, span, 0, end)
                self._header = read_header(handle, opened, self._path, self._options, may_grow=not is_end)
            if (header := self._header) is not None:
                for row in rows_of(handle, header.delimiter, self._options.max_record_bytes):
                    if not row.is_whole and not is_end:
                        break
                    if number >= self.next_offset:
                        columns = self._columns(header, span, whole)
                        found.append((record_of(row, number, columns, self._options), number + 1))
                    number += 1
                else:
                    self.done, self._n_rows = end, number
        self.seen = end
        self.next_offset = max(self.next_offset, number)
        return found

    def _columns(self, header: Header, span: Span, whole: int) -> Columns:
        """Return the columns; which hold numbers, the first rows before ``whole`` decide if it is not known yet."""
        if len(self.numeric) != len(header.names):
            found = numeric_columns(partial(self._text, span, 0, whole), self._path, self._options, self._context)
            self.numeric = "".join("01"[is_numeric] for is_numeric in found)
        return Columns(header.names, [mark == "1" for mark in self.numeric], self._numerals)

    @contextmanager
    def _text(self, span: Span, begin: int, end: int) -> Iterator[TextIO]:
        encoding = self._options.encoding
        if begin and codecs.lookup(encoding).name == "utf-8-sig":
            encoding = "utf-8"  # the mark stands at the file's beginning only
        with io.TextIOWrapper(span(begin, end), encoding=encoding, errors="surrogateescape", newline="") as handle:
            try:
                yield handle
            except UnicodeError as error:
                raise SourceError(f"{self._path}: is not {encoding} ({error}); set the option encoding") from error
