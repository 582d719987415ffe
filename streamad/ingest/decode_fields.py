"""The general reader: any parsed message, own or foreign field names, each field checked.

``decode_own.py`` reads regular messages of the own format faster; irregular ones come here, so every error text is
made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamad.errors import DecodeError
from streamad.ingest.decode_rows import WRONG_TYPE, BadCells, Qualities, ValueReader
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import (
    ABSENT,
    FieldPath,
    Samples,
    check_own_time,
    fail,
    located,
    read_flag,
    read_id,
    read_number,
    read_route,
    shown,
)
from streamad.settings.plant_yaml import ChannelSettings, DecodeSettings, FieldSettings
from streamad.settings.time_format import join_clock
from streamad.types import Record


class _Single(NamedTuple):
    stream: str
    sequence: str | None
    time_us: int
    row: list[float]
    end: bool
    route: str | None


class FieldReader:
    """Reads parsed messages by their fields; mapped formats (``decode.fields``) may write numbers as text."""

    def __init__(
        self,
        settings: DecodeSettings,
        channels: Sequence[ChannelSettings],
        times: TimeReader,
        *,
        native: bool = False,
        route: FieldPath | None = None,
    ) -> None:
        fields = FieldSettings() if native or settings.fields is None else settings.fields
        self._fields = fields
        self._as_text = not native and settings.fields is not None
        self._times = times
        self._form = settings.time_format
        self._default_stream = settings.default_stream
        numbers = {column: channel.missing for column, channel in enumerate(channels)}
        self._value_reader = ValueReader(len(channels), numbers)
        self._missing_texts = frozenset(text.strip().lower() for text in settings.missing)
        common = None if native else settings.quality
        self._qualities = Qualities(common, [None if native else channel.quality for channel in channels])
        self._has_qualities = self._qualities.are_given
        self._max_samples = settings.max_samples_per_message
        self._channels = [FieldPath(channel.field or channel.name) for channel in channels]
        self._columns = {path.name: column for column, path in enumerate(self._channels)}
        self._stream = None if fields.stream == "key" and self._as_text else FieldPath(fields.stream)
        self._time = None if fields.time == "record" and self._as_text else FieldPath(fields.time)
        self._clock = FieldPath(fields.time_of_day) if fields.time_of_day else None
        self._sequence = FieldPath(fields.sequence) if fields.sequence else None
        self._end = FieldPath(fields.end) if fields.end else None
        self._values = FieldPath(fields.values) if fields.values else None
        self._channel = FieldPath(fields.channel) if fields.channel else None
        self._value = FieldPath(fields.value) if fields.value else None
        self._route = route
        used = (self._stream, self._time, self._clock, self._sequence, self._end, self._channel, self._value, route)
        known = (*self._channels, *filter(None, used), *self._qualities.paths, *self._qualities.common)
        self._known_keys = {key for path in known for key in (path.name, *path.outer)}
        common_paths = [*self._qualities.common, *([] if route is None else [route])]
        inside = [*self._channels, *self._qualities.paths, *_inside(self._values, common_paths)]
        self._keys_of_values = {key for path in inside for key in (path.name, *path.outer)}

    def read(self, message: object, record: Record) -> Samples | None:
        """Return the samples of a parsed message; None if it holds only ignored channels. Raises DecodeError."""
        if isinstance(message, list):
            return self._list(message, record)
        if not isinstance(message, dict):
            fail("wrong_type", f"a message must be an object, got {shown(message)}")
        if self._is_chunk(message):
            return self._chunk(message, record)
        bad = BadCells()
        single = self._single(message, record, bad)
        return None if single is None else self._joined([single], None, bad)

    # --- single samples ---------------------------------------------------------------------------------------------

    def _list(self, messages: list[Any], record: Record) -> Samples | None:
        self._check_count(len(messages))
        if not messages:
            fail("wrong_shape", "an empty list")
        singles: list[_Single] = []
        indexes, bad = [], BadCells()
        for index, message in enumerate(messages):
            try:
                if not isinstance(message, dict):
                    fail("wrong_type", f"must be an object with one sample, got {shown(message)}")
                if self._is_chunk(message):
                    fail("wrong_shape", "a chunk inside a list: send chunks as messages of their own")
                bad.row = len(singles)
                single = self._single(message, record, bad)
            except DecodeError as error:
                raise located(error, f"[{index}]") from None
            if single is not None:
                singles.append(single)
                indexes.append(index)
        return self._joined(singles, indexes, bad) if singles else None

    def _joined(self, singles: list[_Single], indexes: list[int] | None, bad: BadCells) -> Samples:
        stream, sequence, *_ = singles[0]
        latest = max(single.time_us for single in singles)
        routes = {single.route for single in singles} - {None}
        if len(routes) > 1:
            assert self._route is not None
            fail("mixed_message", f"holds several values of {self._route.name}: send one message for each")
        for single in singles:
            if (single.stream, single.sequence) != (stream, sequence):
                fail("mixed_message", "holds samples of several sequences: send one message for each")
            if single.end and single.time_us < latest:
                fail("mixed_message", "holds samples after the end of the sequence: send them as another message")
        values = self._value_reader.read([single.row for single in singles], bad)
        return Samples(
            stream,
            sequence,
            np.array([single.time_us for single in singles], dtype=np.int64),
            values,
            any(single.end for single in singles),
            None if indexes is None else np.array(indexes, dtype=np.int64),
            routes.pop() if routes else None,
            None if bad.cells is None else bad.values(*values.shape),
        )

    def _single(self, message: dict[Any, Any], record: Record, bad: BadCells) -> _Single | None:
        end = self._read_end(message)
        row = self._row(message, end, bad)
        if row is None:
            return None
        time_us = self._read_time(message, record)
        return _Single(*self._ids(message, record), time_us, row, end, self._read_route(message))

    def _row(self, message: dict[Any, Any], end: bool, bad: BadCells) -> list[float] | None:
        """Return one value per channel; None if the message holds no channel and no end mark."""
        missing = [math.nan] * len(self._channels) if end else None
        if self._channel is not None and self._value is not None:
            return self._row_of_one_channel(message, missing, bad)
        if self._values is None:
            if not self._fields.ignore_unknown:
                self._refuse_unknown(message, self._known_keys)
            return self._row_of_object(message, message, bad) or missing
        values = self._values.get(message)
        if values is ABSENT or values is None:
            return missing or fail("missing_field", f"{self._values.name}: is missing")
        if not isinstance(values, dict):
            fail("wrong_type", f"{self._values.name}: must be an object of channels, got {shown(values)}")
        self._refuse_unknown(values, self._keys_of_values)
        return self._row_of_object(values, message, bad) or [math.nan] * len(self._channels)

    def _row_of_object(self, values: dict[Any, Any], message: dict[Any, Any], bad: BadCells) -> list[float] | None:
        """Return one value per channel; None if the object ``values`` of ``message`` has none of them."""
        row: list[float] = []
        found = False
        for path in self._channels:
            value = values.get(path.name, ABSENT)
            if value is ABSENT and path.outer:
                value = _inner(path, values)
            found = found or value is not ABSENT
            row.append(value if type(value) is float else self._number(value, bad, len(row)))
        if not found:
            return None
        if self._has_qualities:
            self._qualities.apply(row, message, values, bad)
        return row

    def _row_of_one_channel(
        self, message: dict[Any, Any], missing: list[float] | None, bad: BadCells
    ) -> list[float] | None:
        assert self._channel is not None
        assert self._value is not None
        name = self._channel.get(message)
        if name is ABSENT or name is None:
            return missing or fail("missing_field", f"{self._channel.name}: is missing")
        column = self._columns.get(read_id(name, self._channel.name))
        if column is None:
            if not self._fields.ignore_unknown:
                fail("unknown_channel", f"{shown(name)} is not among the channels")
            return missing
        value = self._value.get(message)
        if value is ABSENT:
            fail("missing_field", f"{self._value.name}: is missing")
        row = [math.nan] * len(self._channels)
        row[column] = self._number(value, bad, column)
        if self._has_qualities:
            self._qualities.apply(row, message, message, bad)
        return row

    def _number(self, value: Any, bad: BadCells, column: int) -> float:
        """Return a reading; NaN for one that is missing, or that cannot be read and is added to ``bad``."""
        if value is ABSENT:
            return math.nan
        number = read_number(value, as_text=self._as_text, missing=self._missing_texts)
        if number is None:
            bad.add(column, WRONG_TYPE, value)
            return math.nan
        return number

    def _refuse_unknown(self, values: dict[Any, Any], known: set[str]) -> None:
        for key in values:
            if key not in known:
                fail("unknown_channel", f"{shown(key)} is not among the channels")

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _is_chunk(self, message: dict[Any, Any]) -> bool:
        if self._values is None or self._channel is not None:
            return False
        return isinstance(self._values.get(message), list) or isinstance(self._chunk_times(message), list)

    def _chunk_times(self, message: dict[Any, Any]) -> Any:
        times = message.get("times", ABSENT)
        return self._time.get(message) if times is ABSENT and self._time is not None else times

    def _chunk(self, message: dict[Any, Any], record: Record) -> Samples:
        assert self._values is not None
        times, rows, where = self._chunk_times(message), self._values.get(message), self._values.name
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            fail("wrong_shape", f"{where}: holds a list of objects: flatten it first (docs/guide/exports.md)")
        if not isinstance(times, list):
            fail("wrong_shape", f"{where}: is a list, so times must be a list as well")
        if not isinstance(rows, list):
            fail("wrong_shape", f"times: is a list, so {where} must be a list of rows")
        if len(times) != len(rows):
            fail("wrong_shape", f"{len(times)} times for {len(rows)} rows of {where}")
        if self._clock is not None:
            fail("wrong_shape", f"{self._clock.name}: times of day are for messages of one sample, not for chunks")
        if not rows:
            fail("wrong_shape", "an empty chunk: an end needs the time of at least one sample")
        self._check_count(len(rows))
        columns = self._chunk_columns(message)
        bad = BadCells()
        matrix = [self._chunk_row(row, index, columns, message, bad) for index, row in enumerate(rows)]
        values = self._value_reader.read(matrix, bad)
        return Samples(
            *self._ids(message, record),
            np.array([self._chunk_time(value, index) for index, value in enumerate(times)], dtype=np.int64),
            values,
            self._read_end(message),
            route=self._read_route(message),
            bad=None if bad.cells is None else bad.values(*values.shape),
        )

    def _chunk_columns(self, message: dict[Any, Any]) -> list[int]:
        names = message.get("channels")
        if names is None:
            return list(range(len(self._channels)))
        if not isinstance(names, list):
            fail("wrong_type", f"channels: must be a list of names, got {shown(names)}")
        columns: list[int] = []
        for name in names:
            column = self._columns.get(name) if isinstance(name, str) else None
            if column is None:
                fail("unknown_channel", f"{shown(name)} is not among the channels")
            if column in columns:
                fail("wrong_shape", f"channels: {shown(name)} is named twice")
            columns.append(column)
        return columns

    def _chunk_row(
        self, row: Any, index: int, columns: list[int], message: dict[Any, Any], bad: BadCells
    ) -> list[float]:
        where = f"{self._fields.values}[{index}]"
        if not isinstance(row, list):
            fail("wrong_type", f"{where}: must be a list of numbers, got {shown(row)}")
        if len(row) != len(columns):
            fail("wrong_shape", f"{where}: has {len(row)} values for {len(columns)} channels")
        full = [math.nan] * len(self._channels)
        bad.row = index
        for column, value in zip(columns, row, strict=True):
            full[column] = self._number(value, bad, column)
        if self._has_qualities:
            self._qualities.apply(full, message, message, bad)
        return full

    def _chunk_time(self, value: Any, index: int) -> int:
        try:
            return self._times.one(value)
        except DecodeError as error:
            raise located(error, f"times[{index}]") from None

    # --- fields of both ---------------------------------------------------------------------------------------------

    def _check_count(self, count: int) -> None:
        if count > self._max_samples:
            fail("too_many_samples", f"{count} samples, decode.max_samples_per_message is {self._max_samples}")

    def _ids(self, message: dict[Any, Any], record: Record) -> tuple[str, str | None]:
        return self.read_stream(self._raw_stream(message, record)), self._read_sequence(message)

    def _raw_stream(self, message: dict[Any, Any], record: Record) -> Any:
        if self._stream is not None:
            return self._stream.get(message)
        try:
            return None if record.key is None else record.key.decode()
        except UnicodeDecodeError:
            fail("bad_id", "the record's key is not UTF-8 text")

    def read_stream(self, value: Any) -> str:
        """Return the stream's id, or the configured default if the message names none. Raises DecodeError."""
        if value is None or value is ABSENT or (self._as_text and value == ""):
            if self._default_stream is None:
                fail("missing_field", f"{self._fields.stream}: is missing, and decode.default_stream is not set")
            value = self._default_stream
        return read_id(value, self._fields.stream)

    def _read_sequence(self, message: dict[Any, Any]) -> str | None:
        value = None if self._sequence is None else self._sequence.get(message)
        if self._sequence is None or value is None or value is ABSENT or (self._as_text and value == ""):
            return None
        return read_id(value, self._sequence.name)

    def _read_route(self, message: dict[Any, Any]) -> str | None:
        value = ABSENT if self._route is None else self._route.get(message)
        if self._route is None or value is ABSENT:
            return None
        return read_route(value, self._route.name, as_text=self._as_text)

    def _read_time(self, message: dict[Any, Any], record: Record) -> int:
        if self._time is None:
            if record.timestamp_us is None:
                fail("missing_field", "decode.fields.time is record, but the record has no time of its own")
            check_own_time(record)
            return record.timestamp_us
        value = self._time.get(message)
        if value is ABSENT or value is None:
            fail("missing_field", f"{self._time.name}: is missing")
        where = self._time.name
        if self._clock is not None:
            value, where = self._with_clock(value, self._clock.get(message)), f"{where}, {self._clock.name}"
        try:
            return self._times.one(value)
        except DecodeError as error:
            raise located(error, where) from None

    def _with_clock(self, date: object, clock: object) -> str:
        """Return a date and a time of day as one text."""
        assert self._clock is not None
        if clock is ABSENT or clock is None or clock == "":
            fail("missing_field", f"{self._clock.name}: is missing")
        if type(clock) is float and clock.is_integer():
            clock = int(clock)
        if not isinstance(clock, str) and type(clock) is not int:
            fail("wrong_type", f"{self._clock.name}: must be a time of day as text or digits, got {shown(clock)}")
        if not isinstance(date, (str, int)):
            fail("wrong_type", f"{self._fields.time}: must be a date as text, got {shown(date)}")
        return join_clock(date, clock, self._form)

    def _read_end(self, message: dict[Any, Any]) -> bool:
        value = None if self._end is None else self._end.get(message)
        if self._end is None or value is ABSENT:
            return False
        return read_flag(value, self._end.name, as_text=self._as_text)


def _inner(path: FieldPath, values: dict[Any, Any]) -> Any:
    """Return the value at a dotted path; if it meets no object, the error that says so."""
    try:
        return path.get(values)
    except DecodeError as error:
        return error


def _inside(values: FieldPath | None, paths: Sequence[FieldPath]) -> list[FieldPath]:
    """Return those of ``paths`` that lie inside the object of channels, as seen from there."""
    if values is None:
        return []
    before = f"{values.name}."
    return [FieldPath(path.name.removeprefix(before)) for path in paths if path.name.startswith(before)]
