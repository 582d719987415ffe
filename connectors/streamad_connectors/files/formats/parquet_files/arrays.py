"""Columns of Parquet as arrays, for the process that reads it; what is more than numbers, times and texts is ``other``.

The cells are those of the rows (``process``): the law is that of ``streamad.tables.ColumnarSource``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

_PANDAS_INDEX = "__index_level_"
_MOST_TEXT_BYTES = 1 << 22
_NUMBER_BYTES = 9  # of msgpack
_TIME_BYTES = 128
_HEAD_BYTES = 5  # of a map or a text
_UNBOUNDED = 1 << 62
_UTC = ("UTC", "Etc/UTC", "Z", "+00:00", "GMT")
_EXACT_BELOW = 1 << 53


class ArrayAnswer(msgspec.Struct, array_like=True):
    """One column: ``dtype`` is numpy's of its ``values``, ``valid`` has a byte for each row, empty if all are."""

    name: str
    kind: Literal["number", "cell", "time", "zoned", "local", "other"]
    dtype: str = "<i8"
    values: memoryview = memoryview(b"")
    valid: memoryview = memoryview(b"")
    texts: list[str] = []


class ColumnsAnswer(msgspec.Struct):
    """Some rows by column; ``names`` are those of all columns. No row is longer than ``row_bytes``."""

    number: int
    n: int
    names: list[str]
    row_bytes: int
    columns: list[ArrayAnswer]


def counts_rows(pyarrow: Any, field: Any) -> bool:
    """Return whether ``field`` is an index without a name that pandas wrote, of whole numbers: those of the rows."""
    return bool(field.name.startswith(_PANDAS_INDEX) and pyarrow.types.is_integer(field.type))


def columns_of(batch: Any, number: int, wanted: Collection[str], zone: str) -> ColumnsAnswer:
    """Return the columns ``wanted`` of ``batch``, the first row of which has this number."""
    import pyarrow.compute  # noqa: PLC0415 - within the limit

    kept = [i for i, field in enumerate(batch.schema) if not counts_rows(pyarrow, field)]
    names = [batch.schema.names[i] for i in kept]
    row_bytes = _HEAD_BYTES
    found = []
    for i, name in zip(kept, names, strict=True):
        column = batch.column(i)
        row_bytes += _HEAD_BYTES + len(name.encode()) + _longest(pyarrow, column)
        if name in wanted:
            found.append(_array(pyarrow, name, column, zone))
    return ColumnsAnswer(number, batch.num_rows, names, min(row_bytes, _UNBOUNDED), found)


def _longest(pyarrow: Any, column: Any) -> int:
    """Return how long a cell of ``column`` may be in a row; very long if that is not known."""
    types, kind = pyarrow.types, column.type
    if types.is_dictionary(kind):
        return _longest(pyarrow, column.dictionary)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        from pyarrow import compute  # noqa: PLC0415 - as pyarrow

        longest = compute.max(compute.binary_length(column)).as_py()
        return _HEAD_BYTES + (longest or 0)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return _TIME_BYTES
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    return _NUMBER_BYTES if is_number or types.is_duration(kind) or types.is_null(kind) else _UNBOUNDED


def _array(pyarrow: Any, name: str, column: Any, zone: str) -> ArrayAnswer:
    try:
        found = _converted(pyarrow, name, column, zone)
    except (OverflowError, ValueError, NotImplementedError, MemoryError):  # as are pyarrow.ArrowInvalid and its others
        found = None
    return found or ArrayAnswer(name, "other")


def _converted(pyarrow: Any, name: str, column: Any, zone: str) -> ArrayAnswer | None:
    types, kind = pyarrow.types, column.type
    if types.is_dictionary(kind):
        if _is_text(types, kind.value_type):
            return _texts(pyarrow, name, column)
        column, kind = column.dictionary_decode(), kind.value_type
    if _is_text(types, kind):
        return None if column.nbytes > _MOST_TEXT_BYTES else _texts(pyarrow, name, column.dictionary_encode())
    if types.is_timestamp(kind):
        return _times(pyarrow, name, column, zone)
    if types.is_duration(kind):
        return _durations(pyarrow, name, column)
    return _plain_numbers(pyarrow, name, column)


def _plain_numbers(pyarrow: Any, name: str, column: Any) -> ArrayAnswer | None:
    types, kind = pyarrow.types, column.type
    if types.is_uint64(kind):
        return _numbers(pyarrow, name, column, "<u8")
    if types.is_integer(kind) or types.is_boolean(kind):
        return _numbers(pyarrow, name, column.cast(pyarrow.int64()), "<i8")
    if types.is_float32(kind) or types.is_float64(kind) or types.is_decimal(kind) or types.is_null(kind):
        return _numbers(pyarrow, name, column.cast(pyarrow.float64()), "<f8")
    return None


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _numbers(pyarrow: Any, name: str, column: Any, dtype: str, kind: Any = "number") -> ArrayAnswer:
    valid = memoryview(b"")
    if column.null_count:
        valid = column.is_valid().cast(pyarrow.uint8()).to_numpy(zero_copy_only=False).data
        column = column.fill_null(0)
    return ArrayAnswer(
        name, kind, dtype, _bytes(column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)), valid
    )


def _bytes(array: Any) -> memoryview:
    return memoryview(array.tobytes())


def _times(pyarrow: Any, name: str, column: Any, zone: str) -> ArrayAnswer:
    kind = column.type
    named = kind.tz or zone
    column = column.cast(pyarrow.timestamp("us", tz=named or None), safe=kind.unit != "ns")
    if not named:
        return _numbers(pyarrow, name, column.cast(pyarrow.int64()), "<i8", "local")
    if named not in _UTC:
        column.drop_null()[:1].to_pylist()  # raises for a zone that is not known
    return _numbers(pyarrow, name, column.cast(pyarrow.int64()), "<i8", "time" if named in _UTC else "zoned")


def _durations(pyarrow: Any, name: str, column: Any) -> ArrayAnswer | None:
    ticks = column.cast(pyarrow.int64())
    valid = memoryview(b"")
    if ticks.null_count:
        valid = ticks.is_valid().cast(pyarrow.uint8()).to_numpy(zero_copy_only=False).data
        ticks = ticks.fill_null(0)
    counts = ticks.to_numpy(zero_copy_only=False)
    if (abs(counts) >= _EXACT_BELOW).any():
        return None
    if column.type.unit == "ns":
        counts = counts // 1_000
    seconds = counts / {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000}[column.type.unit]
    return ArrayAnswer(name, "number", "<f8", _bytes(seconds), valid)


def _texts(pyarrow: Any, name: str, column: Any) -> ArrayAnswer | None:
    """Return a column of indexes of texts, with the texts that it has."""
    import numpy as np  # noqa: PLC0415 - as pyarrow

    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    used, places = np.unique(codes, return_inverse=True)
    taken = column.dictionary.take(pyarrow.array(used[used >= 0]))
    if taken.nbytes > _MOST_TEXT_BYTES or taken.null_count:
        return None
    n_null = int(used[0] < 0) if len(used) else 0
    valid = (codes >= 0).astype(np.uint8).data if n_null else memoryview(b"")
    return ArrayAnswer(
        name, "cell", "<i4", _bytes(np.maximum(places - n_null, 0).astype("<i4")), valid, taken.to_pylist()
    )
