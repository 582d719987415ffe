"""Reads Parquet: each row is one record, a msgpack map from column to value; the offset counts rows from 0."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.types import Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import MAX_BATCH_RECORDS, ReadRecord, shrunk_error

_PANDAS_INDEX = "__index_level_"


def read_parquet(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the rows from number ``offset`` on; row groups before it are not read.

    Timestamps become RFC 3339 text (without a zone: UTC, or local ones for the decoder), durations seconds, decimals
    numbers, booleans 0 and 1.
    """
    pyarrow, parquet = _pyarrow()
    encoder = msgspec.msgpack.Encoder()
    try:
        with path.open("rb") as handle, parquet.ParquetFile(handle) as file:
            total = file.metadata.num_rows
            if offset > total:
                raise shrunk_error(path, offset, total, "rows")
            groups, number = _groups_from(file.metadata, offset)
            for batch in file.iter_batches(batch_size=MAX_BATCH_RECORDS, row_groups=groups):
                for row in _rows(pyarrow, batch, "" if context.local_times else "UTC"):
                    if number >= offset:
                        yield Record(number, encoder.encode(row)), number + 1
                    number += 1
    except pyarrow.ArrowException as error:
        detail = " ".join(str(error).split())
        raise SourceError(f"{path}: cannot be read as Parquet ({detail}); write it anew") from error


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # noqa: PLC0415 - an extra, needed for Parquet alone
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise SourceError("reading Parquet needs pyarrow: pip install pyarrow") from error
    return pyarrow, pyarrow.parquet


def _groups_from(metadata: Any, offset: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows from ``offset`` on, and the number of the first group's first row."""
    first = 0
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if first + n_rows > offset:
            return list(range(group, metadata.num_row_groups)), first
        first += n_rows
    return [], first


def _rows(pyarrow: Any, batch: Any, zone: str) -> Iterator[dict[str, Any]]:
    names = [name for name in batch.schema.names if not name.startswith(_PANDAS_INDEX)]
    columns = [_plain(pyarrow, batch.column(batch.schema.get_field_index(name)), zone) for name in names]
    for cells in zip(*columns, strict=True):
        yield dict(zip(names, cells, strict=True))


def _plain(pyarrow: Any, column: Any, zone: str) -> list[Any]:
    """Return the cells of ``column`` as numbers, text, lists of them, or None; times without a zone are of ``zone``."""
    kind = column.type
    types = pyarrow.types
    if types.is_timestamp(kind):
        times = column.cast(pyarrow.timestamp("us", tz=kind.tz or zone or None), safe=False)
        return [None if time is None else time.isoformat() for time in times.to_pylist()]
    if types.is_duration(kind):
        spans = column.cast(pyarrow.duration("us"), safe=False).to_pylist()
        return [None if span is None else span.total_seconds() for span in spans]
    if types.is_decimal(kind):
        column = column.cast(pyarrow.float64())
    elif types.is_boolean(kind):
        column = column.cast(pyarrow.int8())
    plain: list[Any] = column.to_pylist()
    return plain
