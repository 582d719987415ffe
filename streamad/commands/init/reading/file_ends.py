"""Reads the beginnings and the ends of a sample's files, also if they are far larger than the sample."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamad.commands.init.reading.sample import read_raw
from streamad.commands.shared.console import run_async
from streamad.errors import SourceError
from streamad.plugins import ConnectorContext, connect_source, split_url
from streamad.ports import Source
from streamad.system.clock import SystemClock
from streamad.types import PartitionAssigned, Record, RecordBatch

_MOST_FILES = 12
_PIECE_BYTES = 256_000
_PIECE_RECORDS = 2_000
_WHOLE_RECORDS = 300_000
"""Files that cannot be cut at a line are read so far; of longer ones nothing is known."""
_LINES = (".csv", ".tsv", ".jsonl", ".ndjson")
_OTHERS = (".parquet", ".pq", *(f"{ending}.gz" for ending in _LINES))
_WIDE_TEXT = ("utf-16", "utf-32", "utf16", "utf32")


@dataclass(slots=True)
class FileEnds:
    """The first and the last records of some files, by the file's place in the order of names."""

    n_files: int
    names: dict[int, str] = field(default_factory=dict)
    records: dict[int, Sequence[Record]] = field(default_factory=dict)


def ends_of(url: str, home: Path, options: Mapping[str, Any]) -> FileEnds:
    """Return the ends of the files of ``url``, of 12 at most, in pairs of neighbours.

    Files of another kind, and those that cannot be cut at a line and are too long to be read whole, are left out.
    """
    _, rest, in_url = split_url(url)
    files = _files(home / Path(rest).expanduser())
    query = f"?{url.partition('?')[2]}" if "?" in url else ""
    given = {**in_url, **options}
    found = FileEnds(len(files))
    for place in _places(len(files)):
        path = files[place]
        try:
            records = _ends(path, query, home, options, given)
        except SourceError:
            continue  # of another kind, such as a table beside the recordings
        if records:
            found.names[place], found.records[place] = path.name, records
    return found


def _files(path: Path) -> list[Path]:
    """Return the recordings in a folder or of a pattern, in the order in which joined files are read."""
    path = Path(os.path.normpath(path))
    if path.is_dir():
        found = list(path.iterdir())
    else:
        first = next((n for n, part in enumerate(path.parts) if any(mark in part for mark in "*?[")), None)
        found = [] if first is None else list(Path(*path.parts[:first]).glob(str(Path(*path.parts[first:]))))
    kept = [
        one for one in found if one.is_file() and one.name.lower().endswith(_LINES + _OTHERS) and one.name[0] != "."
    ]
    return sorted(kept, key=lambda one: [(int(p), "") if p.isdecimal() else (-1, p) for p in _numbers(one.as_posix())])


def _numbers(name: str) -> list[str]:
    return re.split("([0-9]+)", name)


def _places(n_files: int) -> list[int]:
    """Return the places of at most 12 files: all, else pairs of neighbours from all over the order."""
    if n_files <= _MOST_FILES:
        return list(range(n_files))
    n_pairs = _MOST_FILES // 2
    firsts = [round(n * (n_files - 2) / (n_pairs - 1)) for n in range(n_pairs)]
    return sorted({place for first in firsts for place in (first, first + 1)})


def _ends(path: Path, query: str, home: Path, options: Mapping[str, Any], given: Mapping[str, Any]) -> Sequence[Record]:
    is_wide = str(given.get("encoding", "")).lower().startswith(_WIDE_TEXT)
    if not path.name.lower().endswith(_LINES) or is_wide:
        return run_async(_first_and_last(connect_source(f"{path}{query}", options, _context(home), where="sample")))
    with TemporaryDirectory() as folder:
        is_table = path.name.lower().endswith((".csv", ".tsv"))
        pieces = _pieces(path, Path(folder), n_head_lines=_head_lines(given) if is_table else 0)
        samples = [read_raw(f"{piece}{query}", home, options) for piece in pieces]
    return [record for sample in samples for records in sample.records.values() for record in records]


def _head_lines(options: Mapping[str, Any]) -> int:
    """Return how many lines of a table lie above its rows."""
    return int(options.get("first_row", int(options.get("header", 1)) + 1)) - 1


def _pieces(path: Path, folder: Path, *, n_head_lines: int) -> list[Path]:
    """Write the first and the last whole lines of a file as files of its name, the last ones below its head."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_PIECE_BYTES)
            file.seek(max(len(head), size - _PIECE_BYTES))
            tail = file.read(_PIECE_BYTES)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    texts = [head if len(head) == size else head[: head.rfind(b"\n") + 1]]
    if tail:
        header = b"".join(head.splitlines(keepends=True)[:n_head_lines])
        begin = 0 if len(head) + len(tail) == size and head.endswith(b"\n") else tail.find(b"\n") + 1
        texts.append(header + tail[begin:])
    written = []
    for number, text in enumerate(texts):
        if text.strip():
            place = folder / str(number)
            place.mkdir()
            written.append(place / path.name)
            written[-1].write_bytes(text)
    return written


async def _first_and_last(source: Source) -> Sequence[Record]:
    """Return the first and last records of a source; none if it is too long."""
    first: list[Record] = []
    last: deque[Record] = deque(maxlen=_PIECE_RECORDS)
    n_records = 0
    try:
        async for event in source.batches():
            if isinstance(event, PartitionAssigned):
                await source.seek(event.partition, None)
            elif isinstance(event, RecordBatch):
                n_records += len(event.records)
                first += event.records[: _PIECE_RECORDS - len(first)]
                last += event.records
            if n_records > _WHOLE_RECORDS:
                return []
    finally:
        await source.close()
    return [*first, *list(last)[-max(0, n_records - len(first)) :]] if n_records > len(first) else first


def _context(home: Path) -> ConnectorContext:
    return ConnectorContext((), SystemClock(), home, local_times=True)
