"""Bytes to samples: JSON and msgpack, streamad's own format or a plant's, every bad message a DecodeError.

The own format is decoded into a typed struct and one array call (the hot path); everything irregular or foreign takes
the general way in ``_decode_fields.py``, which gives the same samples.
"""

from __future__ import annotations

__all__ = ["DECODE_ERROR_KINDS", "DecodeErrorKind", "Decoder"]

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np

from streamad.errors import ConfigError, Problem
from streamad.ingest._decode_fields import FieldReader, Samples, ValueReader
from streamad.ingest._decode_scalars import DECODE_ERROR_KINDS, DecodeErrorKind, TimeReader, fail, read_id
from streamad.settings import ChannelSettings, DecodeSettings
from streamad.types import IntArray, Record, SampleBlock

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What parsers raise for hostile bytes: RecursionError for deep nesting, ValueError for bad UTF-8 and endless integers.
_PARSE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)


class _OwnMessage(msgspec.Struct, gc=False):
    """The own format, single or chunked; other top-level keys are skipped."""

    stream: str | int | None = None
    sequence: str | int | None = None
    time: datetime | float | int | None = None
    times: list[datetime | float | int] | None = None
    values: dict[str, float | None] | list[list[float | None]] | None = None
    channels: list[str] | None = None
    end: bool | None = None


class Decoder:
    """Decodes records into blocks of samples; pure, so one decoder serves every partition.

    Raises ConfigError where two channels read the same field, or ``decode`` contradicts itself.
    """

    def __init__(self, settings: DecodeSettings, channels: Sequence[ChannelSettings]) -> None:
        _check(settings, channels)
        self._settings = settings
        self._names = [channel.name for channel in channels]
        self._columns = {channel.field or channel.name: column for column, channel in enumerate(channels)}
        self._values = ValueReader(self._names)
        self._missing = [math.nan] * len(channels)
        self._relative = settings.time == "relative"
        times = TimeReader(settings.time_unit, relative=self._relative)
        native_times = TimeReader("s", relative=self._relative)
        self._plain = _Way(FieldReader(settings, channels, times), times, own=settings.fields is None)
        self._native = _Way(FieldReader(settings, channels, native_times, native=True), native_times, own=True)
        self._own_json = msgspec.json.Decoder(_OwnMessage)
        self._own_msgpack = msgspec.msgpack.Decoder(_OwnMessage)
        self._any_json = msgspec.json.Decoder()
        self._any_msgpack = msgspec.msgpack.Decoder()

    def decode(self, record: Record, now_us: int) -> SampleBlock | None:
        """Return the samples of ``record``, ordered by time; None where it holds only ignored channels.

        ``now_us`` stands in for the record's own time in the clock-skew check. ``end`` of an unordered message belongs
        to its last sample in time. Raises DecodeError for anything unreadable, and nothing else, whatever the bytes.
        """
        value = record.value
        if len(value) > self._settings.max_message_bytes:
            fail("too_large", f"{len(value)} bytes, allowed are {self._settings.max_message_bytes}")
        way = self._native if record.native else self._plain
        wire = "msgpack" if record.native else _wire_format(value, self._settings.format)
        samples = self._fast(value, wire, way) if way.own else None
        if samples is None:
            samples = way.reader.read(self._parse(value, wire), record)
        return None if samples is None else self._block(samples, record, now_us)

    def _fast(self, value: bytes, wire: Literal["json", "msgpack"], way: _Way) -> Samples | None:
        """Return the samples of a regular message of the own format; None for whatever needs the general way."""
        try:
            message = (self._own_json if wire == "json" else self._own_msgpack).decode(value)
        except _PARSE_ERRORS:
            return None
        values = message.values
        if message.stream is None or values is None:
            return None
        if isinstance(values, list):
            return self._fast_chunk(message, values, way)
        if message.time is None or message.times is not None:
            return None
        row = self._missing.copy()
        for name, number in values.items():
            column = self._columns.get(name)
            if column is None:
                return None
            if number is not None:
                row[column] = number
        return self._samples(message, np.array([way.times.one(message.time)]), [row])

    def _fast_chunk(self, message: _OwnMessage, rows: list[list[float | None]], way: _Way) -> Samples | None:
        times = message.times
        if not times or len(times) != len(rows) or len(times) > self._settings.max_samples_per_message:
            return None
        columns = None if message.channels is None else [self._columns.get(name, -1) for name in message.channels]
        if columns is not None and (-1 in columns or len(set(columns)) < len(columns)):
            return None
        width = len(self._names) if columns is None else len(columns)
        if any(len(row) != width for row in rows):
            return None
        times_us = way.times.many(times)
        return None if times_us is None else self._samples(message, times_us, rows, columns)

    def _samples(
        self, message: _OwnMessage, times_us: IntArray, rows: list[Any], columns: list[int] | None = None
    ) -> Samples | None:
        values = self._values.finite(rows)
        if values is None:
            return None
        if columns is not None:
            listed, values = values, np.full((len(rows), len(self._names)), np.nan, dtype=np.float32)
            values[:, columns] = listed
        sequence = None if message.sequence is None else read_id(message.sequence, "sequence")
        return Samples(read_id(message.stream, "stream"), sequence, times_us, values, message.end is True)

    def _parse(self, value: bytes, wire: Literal["json", "msgpack"]) -> Any:
        if wire == "msgpack":
            try:
                return self._any_msgpack.decode(value)
            except _PARSE_ERRORS as error:
                fail("malformed", f"not msgpack: {_reason(error)}")
        value = value.removeprefix(_BYTE_ORDER_MARK)
        try:
            return self._any_json.decode(value)
        except _PARSE_ERRORS as error:
            # Not JSON, but what Python's and others' encoders write for missing and infinite numbers.
            if b"NaN" in value or b"Infinity" in value or "out of range" in str(error):
                return _parse_lenient_json(value)
            fail("malformed", f"not JSON: {_reason(error)}")

    def _block(self, samples: Samples, record: Record, now_us: int) -> SampleBlock:
        times_us, values, indexes = samples.times_us, samples.values, samples.indexes
        if not self._relative:
            latest_us = int(times_us.max()) if len(times_us) > 1 else int(times_us[0])
            self._check_skew(latest_us, now_us if record.timestamp_us is None else record.timestamp_us)
        if len(times_us) > 1 and not (times_us[1:] >= times_us[:-1]).all():
            order = np.argsort(times_us, kind="stable")
            times_us, values = times_us[order], values[order]
            indexes = order.astype(np.int64) if indexes is None else indexes[order]
        return SampleBlock(samples.stream, samples.sequence, record.offset, times_us, values, samples.end, indexes)

    def _check_skew(self, latest_us: int, reference_us: int) -> None:
        ahead_us = latest_us - reference_us
        if ahead_us > self._settings.max_clock_skew:
            allowed_s = self._settings.max_clock_skew / 1e6
            fail(
                "clock_skew",
                f"the event time is {ahead_us / 1e6:.6g} s ahead of the record's own time,"
                f" decode.max_clock_skew is {allowed_s:.6g} s",
            )


class _Way:
    """How a kind of record is read: its general reader, its times, and whether the fast way may be tried first."""

    def __init__(self, reader: FieldReader, times: TimeReader, *, own: bool) -> None:
        self.reader = reader
        self.times = times
        self.own = own


def _check(settings: DecodeSettings, channels: Sequence[ChannelSettings]) -> None:
    names = [channel.field or channel.name for channel in channels]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = [Problem("channels", f"two channels read the field {name}") for name in twice]
    if settings.fields is not None and settings.fields.time == "record" and settings.time == "relative":
        problems.append(Problem("decode.time", "relative times cannot be the record's own: name their field"))
    if problems:
        raise ConfigError(problems)


def _wire_format(value: bytes, setting: Literal["auto", "json", "msgpack"]) -> Literal["json", "msgpack"]:
    """Return the wire format: msgpack maps and arrays begin with a byte that JSON text never begins with."""
    if setting != "auto":
        return setting
    first = value[0] if value else 0
    return "msgpack" if 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF else "json"


def _parse_lenient_json(value: bytes) -> Any:
    try:
        return json.loads(value.decode())
    except _PARSE_ERRORS as error:
        fail("malformed", f"not JSON: {_reason(error)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "text that is not UTF-8"
    return str(error).removeprefix("JSON is malformed: ").removeprefix("MessagePack data is malformed: ")[:120]
