"""Reads the table of batches from its CSV file."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from streamad.errors import DecodeError, SourceError
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import read_id, read_route
from streamad.ingest.table.rows import BatchTable, Row
from streamad.settings.batch_table import TableSettings
from streamad.settings.decode import DecodeSettings
from streamad.settings.plant_yaml import Settings
from streamad.system.opening import read_regular
from streamad.system.rights import reason

_MOST_BYTES = 1 << 28
_IDS = ("sequence", "id")
_MOST_SHOWN, _MOST_CHARACTERS = 16, 80
"""Further columns that verdicts show, the first ones, and characters of a name or a cell."""
_BEYOND = "\0"
"""Stands for the column of cells beyond the header."""


def read_table(settings: Settings, base_dir: Path) -> BatchTable | None:
    """Return the table of ``sequences.table``, None if there is none. Raises SourceError, with the line."""
    named = settings.sequences.table
    if named is None:
        return None
    path = base_dir / named.file
    try:
        content = read_regular(path, most_bytes=_MOST_BYTES).decode("utf-8-sig")
        with StringIO(content, newline="") as file:
            header = file.readline()
            file.seek(0)
            # Strict: of a quote that nothing closes, what follows would else be one cell, and its rows be gone.
            reader = csv.DictReader(file, delimiter=max(",;\t", key=header.count), restkey=_BEYOND, strict=True)
            try:
                columns = _Columns(named, settings, list(reader.fieldnames or ()))
                rows = [row for each in reader if (row := columns.row(each, reader.line_num)) is not None]
            except csv.Error as error:
                raise SourceError(
                    f"line {reader.line_num + 1}: the row that begins there is no CSV ({error})"
                ) from error
        return BatchTable(str(named.file), rows, gives_routes=columns.route is not None)
    except OSError as error:
        raise SourceError(f"{named.file}: cannot be read ({reason(error, path, 'read')})") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{named.file}: is not a CSV file in UTF-8 ({error})") from error
    except SourceError as error:
        raise SourceError(f"{named.file}: {error}") from error


class _Columns:
    """The columns of a table with the header ``names``. Raises SourceError if one is missing."""

    def __init__(self, named: TableSettings, settings: Settings, names: Sequence[str]) -> None:
        self._stream = settings.decode.default_stream
        self._first, self._second = (_times(settings.decode, fold) for fold in (0, 1))
        ids = _IDS if named.sequence is None else (named.sequence,)
        self._named = named
        self._id = next((name for name in ids if name in names), None)
        wanted = {"begin": named.begin, "end": named.end}
        missing = [column for column in wanted.values() if column not in names]
        missing += [" or ".join(ids)] if self._id is None else []
        missing += [named.stream] if named.stream not in names and self._stream is None else []
        if missing:
            there = ", ".join(names) or "none"
            raise SourceError(
                f"no column {' and '.join(missing)} (columns: {there}): a table has the columns stream, sequence (or "
                "id), begin and end; name others with sequences.table: {file: FILE, stream: ..., sequence: ..., begin: "
                "..., end: ...}; without streams, set decode.default_stream"
            )
        field = settings.route_field
        self.route = field if field in names else None
        used = [name for name in (named.stream, self._id, *wanted.values()) if name is not None]
        self._further = [name for name in names if name and name not in used][:_MOST_SHOWN]
        self._used = used if self.route is None else [*used, self.route]
        if twice := [name for name in self._used if names.count(name) > 1]:
            raise SourceError(f"has the column {twice[0]} twice: remove or rename one")

    def row(self, cells: Mapping[str, Any], line: int) -> Row | None:
        """Return the row that ends in ``line``, None if it is empty. Raises SourceError."""
        texts = {name: cell.strip() for name, cell in cells.items() if isinstance(cell, str)}
        beyond = cells.get(_BEYOND)
        if not any(texts.values()) and not beyond:
            return None
        if beyond:
            raise SourceError(f"line {line}: has more cells than the header: put quotes around those with a delimiter")
        if any(cells.get(name, "") is None for name in self._used):  # cut off: a batch that ended would run still
            raise SourceError(f"line {line}: has fewer cells than the header: leave those empty that say nothing")
        end = texts.get(self._named.end, "")
        try:
            stream = texts.get(self._named.stream) or self._stream
            if not stream:
                raise DecodeError("missing_field", f"{self._named.stream}: is empty, and decode.default_stream is null")
            row = Row(
                read_id(stream, self._named.stream),
                read_id(texts.get(self._id or "", ""), self._id or ""),
                self._time(texts.get(self._named.begin, ""), self._named.begin),
                self._time(end, self._named.end) if end else None,
                line,
                None if self.route is None else read_route(texts.get(self.route), self.route, as_text=True),
                tuple((_cut(name), _cut(texts[name])) for name in self._further if texts.get(name)),
            )
        except DecodeError as error:
            raise SourceError(f"line {line}: {error}") from error
        if row.end_us is not None and row.end_us <= row.begin_us:
            raise SourceError(f"line {line}: {row.sequence} of {row.stream} ends at its begin, or before it: {end}")
        return row

    def _time(self, text: str, column: str) -> int:
        try:
            first_us, second_us = self._first.one(text), self._second.one(text)
        except DecodeError as error:
            raise DecodeError(error.kind, f"{column}: {error}") from error
        if first_us != second_us:
            raise DecodeError(
                "bad_time", f"{column}: {text} comes twice or never, as clocks are set then: write its UTC offset"
            )
        return first_us


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _times(decode: DecodeSettings, fold: int) -> TimeReader:
    zone = None if decode.timezone is None else ZoneInfo(decode.timezone)
    which: Literal[0, 1] = 1 if fold else 0
    return TimeReader(
        decode.unit, relative=False, zone=zone, fold=which, form=decode.time_format, numerals=decode.numerals
    )
