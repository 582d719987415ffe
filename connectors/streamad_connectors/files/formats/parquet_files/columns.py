"""Reads Parquet by column: what each row would be is made only for the rows that are asked for."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np

from streamad.plugins import ConnectorContext
from streamad.tables import Column, ColumnBatch, Wanted
from streamad.types import Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_files.arrays import ArrayAnswer, ColumnsAnswer
from streamad_connectors.files.formats.parquet_files.reader import ReadingProcess, reading_process

_ROWS_OF_A_REQUEST = 64


def read_parquet_columns(
    path: Path, offset: int, options: FileOptions, context: ConnectorContext, wanted: Wanted
) -> Generator[ColumnBatch, None, None]:
    """Yield the columns ``wanted`` of the rows from number ``offset`` on, as ``read_parquet`` would yield the rows."""
    with reading_process(path, options.max_decompressed_bytes) as process:
        process.ask(path, offset, "" if context.local_times else "UTC", wanted.names)
        while (answer := process.columns()) is not None:
            columns = {each.name: _column(each) for each in answer.columns}
            rows = _Rows(process, answer)
            yield ColumnBatch("", answer.number, answer.n, frozenset(answer.names), columns, answer.row_bytes, rows)


def _column(answer: ArrayAnswer) -> Column:
    values = np.frombuffer(answer.values, dtype=answer.dtype)
    valid = np.frombuffer(answer.valid, dtype=np.bool_) if answer.valid else None
    if answer.kind == "cell" and valid is not None:
        values = np.where(valid, values, len(answer.texts))
    return Column(answer.kind, values, valid, tuple(answer.texts))


class _Rows:
    """Makes the records of rows; single ones with those around them."""

    def __init__(self, process: ReadingProcess, answer: ColumnsAnswer) -> None:
        self._process = process
        self._begin, self._n = answer.number, answer.n
        self._first = 0
        self._known: list[bytes] = []

    def __call__(self, first: int, last: int) -> tuple[Record, ...]:
        if not self._first <= first <= last <= self._first + len(self._known):
            self._first = first
            behind = min(max(last, first + _ROWS_OF_A_REQUEST), self._n)
            self._known = self._process.rows_of(self._begin + first, self._begin + behind)
        rows = self._known[first - self._first : last - self._first]
        return tuple(Record(number, row) for number, row in enumerate(rows, self._begin + first))
