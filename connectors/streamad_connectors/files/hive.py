"""Hive folders: the folders NAME=VALUE above a file give each of its rows the field NAME."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace as replace_columns
from typing import TypeAlias
from urllib.parse import unquote

import msgspec
import numpy as np
from msgspec.structs import replace

from streamad.tables import Column, ColumnBatch
from streamad.types import Record
from streamad_connectors.files.formats.reading import ReadRecord

Fields: TypeAlias = tuple[tuple[str, str | None], ...]
"""Names and values of partition columns, in the order of the folders; a value is text, as in the folder's name."""

# Apache Hive's FileUtils: the folder of rows without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_FEW, _MAP_16, _MAP_32 = 0x80, 0xDE, 0xDF  # msgpack: how many pairs a map has
_MOST_FEW, _MOST_16 = 15, 0xFFFF


def is_partition(folder: str) -> bool:
    """Return whether the folder's name is NAME=VALUE."""
    return folder.find("=") > 0


def fields_of(folders: Iterable[str]) -> Fields:
    """Return the partition columns that ``folders`` name, the outermost first; what is in %-escapes is unescaped."""
    pairs = (folder.split("=", 1) for folder in folders if is_partition(folder))
    return tuple((unquote(name), None if value == _NO_VALUE else unquote(value)) for name, value in pairs)


def with_columns(records: Iterator[ReadRecord], fields: Fields) -> Iterator[ReadRecord]:
    """Return ``records`` with ``fields`` in each that is a JSON object or a msgpack map; a row's own field wins."""
    if not fields:
        return records
    as_json = msgspec.json.encode(dict(fields))[1:-1]
    as_packed = b"".join(msgspec.msgpack.encode(part) for pair in fields for part in pair)
    n = len(fields)
    return ((replace(record, value=_with(record.value, as_json, as_packed, n)), after) for record, after in records)


def batch_with_columns(batch: ColumnBatch, fields: Fields) -> ColumnBatch:
    """Return ``batch`` with the same fields as ``with_columns``."""
    if not fields:
        return batch
    columns = dict(batch.columns)
    for name, value in fields:
        if name not in batch.names:
            texts = () if value is None else (value,)
            columns[name] = Column("cell", np.zeros(batch.n, np.int64), np.full(batch.n, value is not None), texts)

    def rows(first: int, last: int) -> tuple[Record, ...]:
        records = ((record, record.offset) for record in batch.rows(first, last))
        return tuple(record for record, _ in with_columns(records, fields))

    names = batch.names | {name for name, _ in fields}
    n_bytes = len(msgspec.msgpack.encode(fields))
    return replace_columns(batch, names=names, columns=columns, row_bytes=batch.row_bytes + n_bytes, rows=rows)


def _with(value: bytes, as_json: bytes, as_packed: bytes, n: int) -> bytes:
    """Return ``value`` with the fields before its own: of two with one name decoders take the last."""
    if (body := value.lstrip()).startswith(b"{"):
        rest = body[1:].lstrip()
        return b"{" + as_json + (b"" if rest.startswith(b"}") else b",") + rest
    first = value[0] if value else 0
    if _FEW <= first <= _FEW + _MOST_FEW:
        return _map_of(first - _FEW + n) + as_packed + value[1:]
    if first == _MAP_16 and len(value) > 2:
        return _map_of(int.from_bytes(value[1:3], "big") + n) + as_packed + value[3:]
    if first == _MAP_32 and len(value) > 4:
        return _map_of(int.from_bytes(value[1:5], "big") + n) + as_packed + value[5:]
    return value


def _map_of(n: int) -> bytes:
    if n <= _MOST_FEW:
        return bytes((_FEW + n,))
    return struct.pack(">BH", _MAP_16, n) if n <= _MOST_16 else struct.pack(">BI", _MAP_32, n)
