"""Reads the header of CSV: the line that names the columns; says which line seems to, where that one cannot."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO, TypeAlias

from streamad.errors import EncodingError, SourceError
from streamad.settings.numerals import Numerals
from streamad.tables import TableLayout
from streamad_connectors.files.formats.csv_files.cells import Kind, is_text, kind_of, number_of
from streamad_connectors.files.formats.csv_files.layout import find_layout, first_lines
from streamad_connectors.files.formats.csv_files.lines import BoundedLines, cells_of, header_delimiter, separator_of
from streamad_connectors.files.formats.options import FileOptions

_NUMERALS = (Numerals("."), Numerals(","))
_ROW_NAMES = "Unnamed: 0"  # the index of a table without a name, as pandas calls it
_UTF16_MARKS = ("\udcff\udcfe", "\udcfe\udcff")  # byte order marks, as surrogateescape reads them
Opened: TypeAlias = Callable[[], AbstractContextManager[TextIO]]
"""Opens a file's text at its beginning."""


class _UnusableError(Exception):
    """Raised for a line that cannot be the header, with the reason and what to do."""

    def __init__(self, reason: str, advice: str = "put a header line there") -> None:
        super().__init__(reason)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Header:
    """The columns' names, the delimiter, and the number of the header's line, from 1."""

    names: list[str]
    delimiter: str
    line: int


def read_header(
    handle: TextIO, opened: Opened, path: Path, options: FileOptions, *, may_grow: bool = False
) -> Header | None:
    """Return the header, and leave ``handle``, which is ``opened``, before the first row; None for an empty file.

    If the file ``may_grow``, None also while it ends before the first row's line. Raises SourceError.
    """
    lines = BoundedLines(handle, options.max_record_bytes)
    found = _find(lines, options)
    if found is None:
        if options.header is None or may_grow or lines.number == 0:
            return None
        raise _refusal(_UnusableError(f"it has no line {options.header}"), opened, path, options)
    line, separator = found
    _check_text(line, path, options)
    delimiter = options.delimiter if options.delimiter != "auto" else separator or header_delimiter(line)
    try:
        header = Header(_names(line, delimiter, lines.number, options), delimiter, lines.number)
    except _UnusableError as error:
        raise _refusal(error, opened, path, options) from error
    if options.first_row is not None:
        if options.first_row <= header.line:
            raise SourceError(
                f"{path}: line {header.line} names the columns, so line {options.first_row} cannot be the first row; "
                f"write source.options.first_row: {header.line + 1} or more, or leave it out"
            )
        for _ in islice(lines, options.first_row - 1 - lines.number):
            pass
        if may_grow and lines.number < options.first_row - 1:
            return None
    return header


def check_names(header: Header, below: Sequence[list[Kind]], opened: Opened, path: Path, options: FileOptions) -> None:
    """Raise SourceError if the first line was taken for the header, but looks like a row or like a line above it.

    So if it was cut into names by another delimiter than the rows seem to have. ``below`` has the kinds of the first
    rows' cells; it is empty if some have more or fewer cells than the header.
    """
    if options.header is not None or _stands_out(header.names, below):
        return
    with opened() as handle:
        layout = find_layout(first_lines(handle), options)
    if not layout.is_sure or (layout.header == header.line and layout.delimiter == header.delimiter):
        return
    if layout.header == header.line:
        mark = "tab" if layout.delimiter == "\t" else repr(layout.delimiter)
        raise SourceError(f"{path}: its cells seem to be separated by {mark}; write source.options.delimiter: {mark}")
    if layout.header is None:
        raise SourceError(
            f"{path}: its first line holds no column names: {layout.why}; put a header line there, or, if these are "
            f"names, write source.options.header: {header.line} (in a URL ?header={header.line})"
        )
    raise SourceError(f"{path}: its first line holds no column names; {_advice(layout)}")


def _stands_out(names: Sequence[str], below: Sequence[list[Kind]]) -> bool:
    """Return whether no name looks like the cells below it, and one has text where numbers or times are below."""
    kinds = [kind_of(name) for name in names]
    same = [{row[column] for row in below} for column in range(len(names))] if below else []
    has_text = any(kind == "text" and found in ({"number"}, {"time"}) for kind, found in zip(kinds, same, strict=False))
    return has_text and not any(kind in ("number", "time") for kind in kinds)


def _find(lines: BoundedLines, options: FileOptions) -> tuple[str, str | None] | None:
    """Return the header's line, and the delimiter that the first line names, if it does."""
    separator: str | None = None
    for line in lines:
        text = line
        if lines.number == 1:
            separator, text = separator_of(line), line.removeprefix("\ufeff")
        is_first = bool(text.strip()) and (lines.number > 1 or separator is None)
        if is_first if options.header is None else lines.number == options.header:
            return text, separator
    return None


def _check_text(line: str, path: Path, options: FileOptions) -> None:
    is_wide = line[:2].count("\0") == 1
    if is_text(line) and not is_wide:
        return
    likely = "utf-16" if line.startswith(_UTF16_MARKS) else "cp1252"
    if is_wide:
        likely = "utf-16-be" if line.startswith("\0") else "utf-16-le"
    raise EncodingError(
        f"{path}: its header is not {options.encoding}; set the option encoding, for example ?encoding={likely}",
        likely,
    )


def _names(line: str, delimiter: str, number: int, options: FileOptions) -> list[str]:
    """Return the names in ``line``. Raises _UnusableError."""
    which = "its first line" if options.header is None else f"line {number}"
    cells = cells_of(line, delimiter)
    if cells is None:
        raise _UnusableError(f"its header has a name of more than {csv.field_size_limit()} characters")
    if cells and cells[-1].endswith(("\n", "\r")):
        raise _UnusableError(f"a quote in {which} is not closed there")
    names = [cell.strip() for cell in cells]
    if all(any(number_of(name, numerals) is not None for numerals in _NUMERALS) for name in names if name):
        raise _UnusableError(f"{which} holds no column names")
    if not names[0] and _ROW_NAMES not in names:
        names[0] = _ROW_NAMES
    places: dict[str, int] = {}
    for column, name in enumerate(names, 1):
        if name and places.setdefault(name, column) != column:
            reason = f"columns {places[name]} and {column} of line {number} are both named {name!r}"
            raise _UnusableError(reason, "rename one of them there")
    return names


def _refusal(error: _UnusableError, opened: Opened, path: Path, options: FileOptions) -> SourceError:
    """Return the error that a line cannot be the header, with the line that seems to be, if there is one."""
    with opened() as handle:
        layout = find_layout(first_lines(handle), options)
    is_first = "header" not in layout.options
    is_other = not is_first if options.header is None else layout.header != options.header
    advice = _advice(layout) if layout.header is not None and is_other else error.advice
    return SourceError(f"{path}: {error}; {advice}")


def _advice(layout: TableLayout) -> str:
    options = {key: value for key, value in layout.options.items() if key != "delimiter"}
    options = {"header": layout.header, **options}
    written = " and ".join(f"{key}: {value}" for key, value in options.items())
    query = "&".join(f"{key}={value}" for key, value in options.items())
    return f"the names seem to stand in line {layout.header}: write source.options.{written} (in a URL ?{query})"
