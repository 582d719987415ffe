"""Reads Parquet: each row is one record, a msgpack map from column to value; the offset counts rows from 0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamad.plugins import ConnectorContext
from streamad.types import Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_files.reader import reading_process
from streamad_connectors.files.formats.reading import ReadRecord


def read_parquet(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the rows from number ``offset`` on; row groups before it are not read.

    Timestamps become RFC 3339 text (without a zone: UTC, or local ones for the decoder), durations seconds, decimals
    numbers, booleans 0 and 1. Another process reads them, so that no file can fill this one's memory or end it.
    """
    with reading_process(path, options.max_decompressed_bytes) as process:
        process.ask(path, offset, "" if context.local_times else "UTC")
        for number, row in enumerate(process.rows(), offset):
            yield Record(number, row), number + 1
