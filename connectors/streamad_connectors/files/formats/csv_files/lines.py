"""The lines of a CSV file: opened, bounded in length, and cut into cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TextIO

from streamad.errors import SourceError
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import open_bytes

_SEPARATOR = "sep="
DELIMITERS = (",", ";", "\t", "|")


@contextmanager
def opened(path: Path, options: FileOptions) -> Iterator[TextIO]:
    """Open ``path`` as text. Raises SourceError, also from within, for bytes that the encoding cannot have."""
    handle = io.TextIOWrapper(open_bytes(path), encoding=options.encoding, errors="surrogateescape", newline="")
    with handle:
        try:
            yield handle
        except UnicodeError as error:
            raise SourceError(f"{path}: is not {options.encoding} ({error}); set the option encoding") from error


class ReadsLines(Protocol):
    """A text that gives its lines."""

    def readline(self, size: int = -1, /) -> str:
        """Return the next line, or ``size`` characters of it."""


class BoundedLines:
    """Lines cut above ``limit``; ``number`` counts them, ``is_through``: one more was asked for.

    ``taken`` holds them until it is cleared, if it ``keeps`` them.
    """

    def __init__(self, handle: ReadsLines, limit: int, *, keeps: bool = False) -> None:
        self.number = 0
        self.is_through = False
        self.taken: list[str] = []
        self._handle, self._limit, self._keeps = handle, limit, keeps

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._handle.readline(self._limit + 1)
        if not line:
            self.is_through = True
            raise StopIteration
        self.number += 1
        if self._keeps:
            self.taken.append(line)
        if len(line) > self._limit and not line.endswith(("\n", "\r")):
            while (piece := self._handle.readline(self._limit)) and not piece.endswith(("\n", "\r")):
                pass
        return line


def separator_of(first_line: str) -> str | None:
    """Return the delimiter that the first line of a file names, as Excel reads it (``sep=;``); None if it is none."""
    text = first_line.removeprefix("\ufeff").rstrip("\r\n").strip('"')
    found = text[len(_SEPARATOR) :]
    return found if text[: len(_SEPARATOR)].lower() == _SEPARATOR and found in DELIMITERS else None


def cells_of(line: str, delimiter: str) -> list[str] | None:
    """Cut ``line`` into cells; None if one is too long, as with a wrong delimiter."""
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error:
        return None


def header_delimiter(line: str) -> str:
    """Return that of , ; and tab that cuts the header ``line`` most."""
    return max(DELIMITERS[:3], key=lambda mark: len(cells_of(line, mark) or ()))
