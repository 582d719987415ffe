"""Reads JSON lines: one record per line that is not blank; the offset is the line's first byte (unpacked for .gz)."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from streamad.plugins import ConnectorContext
from streamad.types import Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord, open_bytes, shrunk_error, skip_hole

_PIECE_BYTES = 1 << 18


def read_jsonl(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the lines that begin at ``offset`` or later, without their line ends.

    A line above ``max_record_bytes`` is cut one byte above it, so that a decoder with that limit finds it too large.
    """
    with open_bytes(path) as handle:
        yield from lines_of(handle, _to_line_start(handle, path, offset), options.max_record_bytes)


def lines_of(handle: BinaryIO, begin: int, limit: int) -> Iterator[ReadRecord]:
    """Yield the lines of ``handle``, which stands at the start of a line, at offset ``begin`` of its file."""
    while line := handle.readline(limit + 1):
        after = begin + len(line)
        if len(line) > limit and not line.endswith(b"\n"):
            after += skip_line(handle)
        value = line.rstrip(b"\r\n")
        if begin == 0:
            value = value.removeprefix(codecs.BOM_UTF8)
        if value and not value.isspace():
            yield Record(begin, value), after
        begin = after


def _to_line_start(handle: BinaryIO, path: Path, offset: int) -> int:
    """Go to the first line that begins at ``offset`` or later and return its offset."""
    if offset == 0:
        return 0
    handle.seek(offset - 1)
    before = handle.read(1)
    if not before:
        handle.seek(0)
        length = sum(len(piece) for piece in iter(lambda: handle.read(_PIECE_BYTES), b""))
        raise shrunk_error(path, offset, length, "bytes")
    return offset if before == b"\n" else offset + skip_line(handle)


def skip_line(handle: BinaryIO) -> int:
    """Read to the end of the line in pieces and return the number of bytes."""
    skipped = 0
    while piece := handle.readline(_PIECE_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
        skipped += skip_hole(handle)
    return skipped
