"""Reads the columns of a table as samples: what the decoder would return of each row, many at once.

The readers of single fields are the decoder's own: each is asked once for every different cell. A row of which anything
is not plain is marked, and the decoder reads it from its bytes.
Shapes: n rows, C channels.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamad.errors import DecodeError
from streamad.ingest.columns.support import why_rows
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_times import may_come_twice
from streamad.ingest.decode_values import BadCells, FieldPath
from streamad.settings.plant_yaml import Settings
from streamad.settings.time_format import UNIX_UNITS
from streamad.tables import NO_STREAM, Column, ColumnBatch, Singles, Wanted
from streamad.types import FILE_OFFSETS, MAX_TIME_US, BoolArray, FloatArray, IntArray, Record, from_us, to_us

_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 3_600_000_000
_OFFSETS_OF_MINUTES_US: Final = 94_694_400_000_000  # 1973-01-01: Africa/Monrovia was the last with seconds, in 1972
_NOTHING: Final = Record(0, b"")


class _RowsError(Exception):
    """Raised inside this module for columns that cannot be taken: their rows can."""


class ColumnReader:
    """Reads batches of columns; ``wanted`` are those that it needs."""

    @staticmethod
    def of(settings: Settings, decoder: Decoder) -> ColumnReader | None:
        """Return the reader of a plant's tables, None if its rows must be read one by one."""
        return None if why_rows(settings) is not None else ColumnReader(settings, decoder)

    def __init__(self, settings: Settings, decoder: Decoder) -> None:
        self._settings = settings.decode
        self._fields = fields = decoder.fields
        self._zone = decoder.zone
        self._has_ids = settings.decode.sequence_from == "message"
        others = (fields.time.path, fields.end_path)
        self._paths = [*fields.rows.channels, *fields.id_paths, *(path for path in others if path is not None)]
        names = frozenset(path.name for path in self._paths)
        self.wanted = Wanted(names, names - {path.name for path in self._paths[len(fields.rows.channels) :]})

    def read(self, batch: ColumnBatch) -> Singles | None:
        """Return the samples of the rows; None if they must be read one by one.

        A row that is not plain has the stream ``NO_STREAM``.
        """
        if batch.row_bytes > self._settings.max_message_bytes or not batch.n:
            return None
        outer = {key for path in self._paths if path.name not in batch.names for key in path.outer}
        if outer & batch.names:
            return None  # an error that only a row shows
        try:
            times_us, is_odd = self._times(batch)
            values = self._values(batch, is_odd)
            codes, ids = self._ids(batch)
            ends = self._ends(batch, is_odd)
        except _RowsError:
            return None
        written_us = batch.written_of_all()
        if written_us is not None:
            is_odd |= times_us - written_us > self._settings.max_clock_skew
        is_odd |= np.array([each is None for each in ids])[codes]
        known = [each or (NO_STREAM, None, None) for each in ids] + [(NO_STREAM, None, None)]
        codes[is_odd] = len(ids)
        of_rows = [known[code] for code in codes.tolist()]
        has_routes = any(route is not None for _, _, route in known)
        is_break = (codes[1:] != codes[:-1]) | (times_us[1:] <= times_us[:-1]) | ends[:-1]
        bounds = np.concatenate(([0], np.flatnonzero(is_break) + 1, [batch.n]))
        behind = np.repeat(bounds[1:] - ends[bounds[1:] - 1], np.diff(bounds))  # an end mark ends more than it joins
        return Singles(
            list(range(batch.offset, batch.next_offset)),
            [None] * batch.n,
            [stream for stream, _, _ in of_rows],
            [sequence for _, sequence, _ in of_rows],
            times_us.tolist(),
            self._fields.rows.without_sentinels(values),
            ends.tolist(),
            [route for _, _, route in of_rows] if has_routes else None,
            (times_us, behind.tolist()),
        )

    # --- times ---

    def _times(self, batch: ColumnBatch) -> tuple[IntArray, BoolArray]:
        """Return the time of each row, int64 [n], and whether it is another than that."""
        path = self._fields.time.path
        if path is None:
            places = np.arange(batch.offset % FILE_OFFSETS, batch.offset % FILE_OFFSETS + batch.n)
            times_us: IntArray = places * self._settings.row_period
            return times_us, times_us > MAX_TIME_US
        column = batch.columns.get(path.name)
        if column is None:
            raise _RowsError
        times_us, is_read = self._read_times(column, path)
        if column.valid is not None:
            is_read = is_read & column.valid
        return times_us, ~is_read

    def _read_times(self, column: Column, path: FieldPath) -> tuple[IntArray, BoolArray]:
        values = column.values
        if column.kind == "number":
            if values.dtype == np.uint64:
                values = np.minimum(values, np.uint64(1 << 62)).astype(np.int64)
            found = self._fields.time.numbers(values)
            if found is None:
                raise _RowsError
            return found
        if column.kind == "cell":
            return self._times_of_cells(column, path)
        if column.kind == "other" or self._settings.time_format not in (None, *UNIX_UNITS):
            raise _RowsError
        earliest_us = 0 if column.kind == "time" else _OFFSETS_OF_MINUTES_US
        is_read = (values >= earliest_us) & (values <= MAX_TIME_US)
        if column.kind == "local":
            values = self._from_local(np.where(is_read, values, earliest_us))
            is_read &= ~self._may_come_twice(values)
        return values, is_read

    def _times_of_cells(self, column: Column, path: FieldPath) -> tuple[IntArray, BoolArray]:
        times: list[int] = []
        is_read: list[bool] = []
        for cell in column.cells:
            try:
                times.append(self._fields.time_of({path.name: cell}, _NOTHING, 0))
                is_read.append(True)
            except DecodeError:
                times.append(0)
                is_read.append(False)
        times_us = np.array([*times, 0], dtype=np.int64)
        are_read = np.array([*is_read, False])
        if self._zone is not None:
            are_read &= ~self._may_come_twice(times_us)
        return times_us[column.values], are_read[column.values]

    def _from_local(self, local_us: IntArray) -> IntArray:
        """Return the first readings of local times since 1973, int64 [n]; offsets change at whole minutes."""
        if self._zone is None:
            raise _RowsError
        minutes, places = np.unique(local_us // _MINUTE_US, return_inverse=True)
        begins_us = [to_us(from_us(minute * _MINUTE_US).replace(tzinfo=self._zone)) for minute in minutes.tolist()]
        times_us: IntArray = np.array(begins_us, dtype=np.int64)[places] + local_us % _MINUTE_US
        return times_us

    def _may_come_twice(self, times_us: IntArray) -> BoolArray:
        """Return whether each local time may come again, [n]: the assembler then takes both readings."""
        assert self._zone is not None
        hours, places = np.unique(times_us // _HOUR_US, return_inverse=True)
        found: BoolArray = np.array([may_come_twice(hour, self._zone) for hour in hours.tolist()])[places]
        return found

    # --- readings ---

    def _values(self, batch: ColumnBatch, is_odd: BoolArray) -> FloatArray:
        """Return the readings, float32 [n, C], and mark rows of which one cannot be read."""
        paths = self._fields.rows.channels
        if not any(path.name in batch.names for path in paths):
            raise _RowsError
        values = np.full((batch.n, len(paths)), np.nan, dtype=np.float32)
        for index, path in enumerate(paths):
            column = batch.columns.get(path.name)
            if column is None:
                continue
            numbers = self._numbers(column, index, is_odd)
            with np.errstate(over="ignore", invalid="ignore"):  # infinite, or NaN without a signal
                values[:, index] = numbers
            if not column.has_all:
                values[~column.valid, index] = np.nan  # type: ignore[operator]
        is_odd |= np.isinf(values).any(axis=1)
        return values

    def _numbers(self, column: Column, index: int, is_odd: BoolArray) -> npt.NDArray[np.float64]:
        if column.kind == "number":
            return column.values.astype(np.float64, copy=False)
        if column.kind != "cell":
            raise _RowsError
        numbers, is_bad = [], []
        for cell in column.cells:
            bad = BadCells()
            numbers.append(self._fields.rows.number(cell, bad, index))
            is_bad.append(bad.cells is not None)
        is_odd |= np.array([*is_bad, False])[column.values]
        of_rows: npt.NDArray[np.float64] = np.array([*numbers, np.nan])[column.values]
        return of_rows

    # --- ids and end marks ---

    def _ids(self, batch: ColumnBatch) -> tuple[npt.NDArray[np.intp], list[tuple[str, str | None, str | None] | None]]:
        """Return for each row a number, [n], and for each number stream, id and route: None if they cannot be read."""
        codes = np.zeros(batch.n, dtype=np.int64)
        rows = np.zeros(1, dtype=np.int64)
        cells: dict[str, tuple[npt.NDArray[Any], list[Any]]] = {}
        for path in self._fields.id_paths:
            if path.name in batch.columns and path.name not in cells:
                own, found = cells[path.name] = _different(batch.columns[path.name])
                _, rows, codes = np.unique(codes * len(found) + own, return_index=True, return_inverse=True)
        ids: list[tuple[str, str | None, str | None] | None] = []
        for row in rows.tolist():
            message = {name: found[own[row]] for name, (own, found) in cells.items()}
            try:
                stream, sequence, route = self._fields.ids_of(message, _NOTHING)
                if not self._has_ids:
                    sequence = batch.sequence
                ids.append((stream, sequence, route))
            except DecodeError:
                ids.append(None)
        return codes.astype(np.intp), ids

    def _ends(self, batch: ColumnBatch, is_odd: BoolArray) -> BoolArray:
        """Return the end mark of each row, [n], and mark rows of which it cannot be read."""
        path = self._fields.end_path
        if path is None or path.name not in batch.columns:
            return np.zeros(batch.n, dtype=np.bool_)
        own, found = _different(batch.columns[path.name])
        ends, is_bad = [], []
        for cell in found:
            try:
                ends.append(self._fields.end_of({path.name: cell}))
                is_bad.append(False)
            except DecodeError:
                ends.append(False)
                is_bad.append(True)
        is_odd |= np.array(is_bad)[own]
        of_rows: BoolArray = np.array(ends)[own]
        return of_rows


def _different(column: Column) -> tuple[npt.NDArray[Any], list[Any]]:
    """Return a number for each cell of a column, [n], and the different cells by number, as rows have them."""
    cells: list[Any]
    if column.kind == "cell":
        codes, cells = column.values, [*column.cells]
    elif column.kind == "number":
        different, codes = np.unique(column.values, return_inverse=True)
        cells = different.tolist()
    else:
        raise _RowsError
    if not column.has_all:
        codes = np.where(column.valid, codes, len(cells))  # type: ignore[arg-type]
        cells.append(None)
    return codes, cells
