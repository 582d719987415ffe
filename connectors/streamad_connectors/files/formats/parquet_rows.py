"""Reads Parquet: each row is one record, a msgpack map from column to value; the offset counts rows from 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.types import Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_pages import PageHeaderError, unpacked_bytes
from streamad_connectors.files.formats.reading import (
    MAX_BATCH_RECORDS,
    ReadRecord,
    read_error,
    shrunk_error,
    too_large_error,
)

_TICKS_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000}
# What pyarrow raises besides its own errors, for example for a column's name that is no UTF-8.
_DAMAGED = (ValueError, KeyError, IndexError, OverflowError)
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
            _check_groups(path, handle, file, groups, options.max_decompressed_bytes)
            packed = _packed_texts(file.metadata)
        with path.open("rb") as handle, parquet.ParquetFile(handle, read_dictionary=packed) as file:
            for batch in file.iter_batches(batch_size=MAX_BATCH_RECORDS, row_groups=groups):
                for row in _rows(pyarrow, batch, "" if context.local_times else "UTC"):
                    if number >= offset:
                        yield Record(number, encoder.encode(row)), number + 1
                    number += 1
    except MemoryError as error:  # pyarrow's is an ArrowException, too
        raise read_error(path, error) from error
    except (pyarrow.ArrowException, *_DAMAGED) as error:
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


def _check_groups(path: Path, handle: BinaryIO, file: Any, groups: list[int], limit: int) -> None:
    """Raise SourceError if a row group takes more than ``limit`` bytes, two columns have one name, or a name a NUL.

    The footer's size is a claim; what is unpacked is what the headers of the pages say.
    """
    names = Counter(file.schema_arrow.names)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise SourceError(f"{path}: column {twice!r} appears twice; rename one")
    if (cut := next((name for name in names if "\0" in name), None)) is not None:
        raise SourceError(f"{path}: the name of column {cut!r} holds a NUL character, where pyarrow ends it; rename it")
    for number in groups:
        group = file.metadata.row_group(number)
        total = 0
        for i in range(group.num_columns if group.total_byte_size <= limit else 0):
            has_lists = file.metadata.schema.column(i).max_repetition_level > 0
            total += _unpacked(path, handle, group.column(i), limit - total, has_lists)
            if total > limit:
                break
        if max(total, group.total_byte_size) > limit:
            raise too_large_error(path, f"row group {number}", limit)


def _unpacked(path: Path, handle: BinaryIO, column: Any, at_most: int, has_lists: bool) -> int:
    try:
        return unpacked_bytes(handle, column, at_most, has_lists=has_lists)
    except PageHeaderError as error:
        raise SourceError(f"{path}: cannot be read as Parquet ({error}); write it anew") from error


def _packed_texts(metadata: Any) -> list[str]:
    """Return the columns of text that stand as numbers of texts in the file.

    They are read as that: some KB may stand for GB of one long text that comes again and again.
    """
    if not metadata.num_row_groups:
        return []
    columns = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
    return [
        column.path_in_schema
        for i, column in enumerate(columns)
        if column.has_dictionary_page and "." not in column.path_in_schema and _is_text(metadata.schema.column(i))
    ]


def _is_text(column: Any) -> bool:
    return column.physical_type == "BYTE_ARRAY" and column.logical_type.type in ("STRING", "NONE")


def _rows(pyarrow: Any, batch: Any, zone: str) -> Iterator[dict[str, Any]]:
    kept = [(i, name) for i, name in enumerate(batch.schema.names) if not name.startswith(_PANDAS_INDEX)]
    names = [name for _, name in kept]
    columns = [_plain(pyarrow, batch.column(i), zone) for i, _ in kept]
    for cells in zip(*columns, strict=True):
        yield dict(zip(names, cells, strict=True))


def _plain(pyarrow: Any, column: Any, zone: str) -> list[Any]:
    """Return the cells of ``column`` as numbers, text, lists of them, or None; times without a zone are of ``zone``.

    A text that is no UTF-8 becomes bytes, a time that no calendar of Python has a text that is no time: the decoder
    refuses both.
    """
    if pyarrow.types.is_dictionary(column.type):
        values = _plain(pyarrow, column.dictionary, zone)
        return [None if index is None else values[index] for index in column.indices.to_pylist()]
    try:
        return _converted(pyarrow, column, zone)
    except (UnicodeDecodeError, OverflowError, ValueError):  # pyarrow.ArrowInvalid is a ValueError
        if len(column) == 1:
            return [_unreadable(column)]
        return [_plain(pyarrow, column.slice(i, 1), zone)[0] for i in range(len(column))]


def _unreadable(column: Any) -> object:
    cell = column[0]
    if hasattr(cell, "as_buffer"):
        return cell.as_buffer().to_pybytes()
    value = getattr(cell, "value", None)
    return f"{column.type} out of range" if value is None else f"{value} as {column.type}"


def _converted(pyarrow: Any, column: Any, zone: str) -> list[Any]:
    """Return the cells as ``_plain``. Raises UnicodeDecodeError, OverflowError, ValueError."""
    kind = column.type
    types = pyarrow.types
    if types.is_timestamp(kind):
        # Nanoseconds are cut, which a safe cast refuses; coarser times must not wrap around.
        is_finer = kind.unit == "ns"
        times = column.cast(pyarrow.timestamp("us", tz=kind.tz or zone or None), safe=not is_finer)
        return [None if time is None else time.isoformat() for time in times.to_pylist()]
    if types.is_duration(kind):
        ticks = column.cast(pyarrow.int64()).to_pylist()
        return [None if count is None else _seconds(count, kind.unit) for count in ticks]
    if types.is_decimal(kind):
        column = column.cast(pyarrow.float64())
    elif types.is_boolean(kind):
        column = column.cast(pyarrow.int8())
    plain: list[Any] = column.to_pylist()
    return plain


def _seconds(count: int, unit: str) -> float:
    """Return a duration in seconds, cut to microseconds."""
    return count // 1_000 / 1_000_000 if unit == "ns" else count / _TICKS_PER_S[unit]
