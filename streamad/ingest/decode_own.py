"""The fast reader of the own format: a typed decoder, one array call, one check; chunks of numbers even without lists.

It reads regular messages only and leaves the rest to ``decode_fields.py``, which gives the same samples for the same
message (a tested law) and makes the error texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, cast

import msgspec
import numpy as np

from streamad.errors import DecodeError
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import ABSENT, FieldPath, Samples, ValueReader, fail, read_id, read_route
from streamad.ingest.forms.arrays import ArrayReader, Chunk
from streamad.ingest.forms.wire import PARSE_ERRORS, Wire
from streamad.settings.decode import ChannelSettings
from streamad.tables import NO_STREAM, Singles
from streamad.types import FloatArray, IntArray, Record

_IDS = ("stream", "sequence")
_REFUSED_IN_NAMES = re.compile(r'[\\"\x00-\x1f]')


class _Message(msgspec.Struct, gc=False):
    """The own format, single or chunked; other top-level keys are skipped."""

    stream: str | int | None = None
    sequence: str | int | None = None
    time: datetime | float | int | None = None
    times: list[datetime | float | int] | None = None
    values: dict[str, float | None] | list[list[float | None]] | None = None
    channels: list[str] | None = None
    end: bool | None = None


class _RoutedMessage(_Message, gc=False):
    """The own format with the field that chooses the model: ``route``, or a field inside ``outer0``, ``outer1``, ...

    ``_message_type`` adds the latter and sets their names.
    """

    route: Any = ABSENT


class OwnReader:
    """Reads regular messages of the own format; ``route`` is the field that chooses the model, if there is one."""

    @staticmethod
    def serves(route: FieldPath | None) -> bool:
        """Return whether ``route`` can be read here: not in a field of another use, or of a name msgspec refuses."""
        if route is None or route.name in _IDS:
            return True
        if any(_REFUSED_IN_NAMES.search(key) for key in (route.name, *route.outer)):
            return False
        return not {route.name, *route.outer} & set(_Message.__struct_fields__)

    def __init__(
        self, channels: Sequence[ChannelSettings], times: TimeReader, max_samples: int, route: FieldPath | None = None
    ) -> None:
        self._type = message = _message_type(route)
        self._route = route
        self._json = msgspec.json.Decoder(message)
        self._msgpack = msgspec.msgpack.Decoder(message)
        self._arrays = ArrayReader.if_installed() if message is _Message else None
        self._times = times
        self._max_samples = max_samples
        self._columns = {channel.field or channel.name: column for column, channel in enumerate(channels)}
        self._missing: list[float | None] = [math.nan] * len(channels)
        self._pick = _picker(list(self._columns))
        numbers = {column: channel.missing for column, channel in enumerate(channels)}
        self._values = ValueReader(len(channels), numbers)

    @property
    def has_route(self) -> bool:
        """Return whether messages have a field that chooses the model."""
        return self._route is not None

    def read(self, value: bytes, wire: Wire) -> Samples | None:
        """Return the samples of a regular message; None for one that needs the general reader."""
        chunk = self._arrays.read(value) if self._arrays is not None and wire == "json" else None
        if chunk is not None and (samples := self._read_arrays(chunk)) is not None:
            return samples
        try:
            message = (self._json if wire == "json" else self._msgpack).decode(value)
        except PARSE_ERRORS:
            return None
        return self._samples_of(message)

    def read_parsed(self, parsed: Any) -> Samples | None:
        """Return the same of a parsed message."""
        try:
            message = msgspec.convert(parsed, self._type)
        except PARSE_ERRORS:
            return None
        return self._samples_of(message)

    def _read_arrays(self, chunk: Chunk) -> Samples | None:
        """Return the samples of a chunk that was read into arrays; None if the typed decoder must read it again."""
        times = self._times.numbers(chunk.times) if len(chunk.times) <= self._max_samples else None
        if times is None or np.count_nonzero(times[1]) < len(times[1]):
            return None
        try:
            columns = self._columns_of(chunk.channels)
            if chunk.values.shape[1] != len(self._missing if columns is None else columns):
                return None
            return self._with_ids(chunk, times[0], chunk.values, columns)
        except DecodeError:
            return None

    def _samples_of(self, message: _Message) -> Samples | None:
        try:
            return self._read(message)
        except DecodeError:  # the general reader raises it again, with its place
            return None

    def singles(self, records: Iterable[Record], wire: Callable[[bytes], Wire]) -> Singles:
        """Return the first of ``records``, up to one that is not a regular message of one sample.

        One whose time or values cannot be used has the stream ``NO_STREAM``. ``wire`` tells a message's wire format.
        The records' own times are those in ``records``, whatever they are.
        """
        found = Singles([], [], [], [], [], np.empty(0, dtype=np.float32), [])
        raw_times: list[datetime | float | int] = []
        packed = bytearray()
        as_json, as_msgpack, row_of, pack = self._json.decode, self._msgpack.decode, self._row, self._values.packed
        try:
            for record in records:
                value = record.value
                message = as_json(value) if wire(value) == "json" else as_msgpack(value)
                values, time, stream, sequence = message.values, message.time, message.stream, message.sequence
                if type(values) is not dict or time is None or message.times is not None or stream is None:
                    break
                row = row_of(values)
                if row is None:
                    break
                if type(stream) is not str:
                    stream = read_id(stream, "stream")
                if sequence is not None and type(sequence) is not str:
                    sequence = read_id(sequence, "sequence")
                packed += pack(row)
                raw_times.append(time)
                found.offsets.append(record.offset)
                found.records_us.append(record.timestamp_us)
                found.streams.append(stream)
                found.sequences.append(sequence)
                found.ends.append(message.end is True)
        except (DecodeError, *PARSE_ERRORS):
            pass
        return self._with_numbers(found, raw_times, packed)

    def _with_numbers(self, found: Singles, raw_times: list[datetime | float | int], packed: bytearray) -> Singles:
        """Return ``found`` with times and values; a record whose time or values cannot be used is marked."""
        n_channels = len(self._columns)
        values = np.frombuffer(packed, np.float32, len(raw_times) * n_channels).reshape(-1, n_channels)
        odd = set(np.flatnonzero(np.isinf(values).any(axis=1)).tolist())
        times_us: list[int] = []
        try:
            times_us = self._times.many(raw_times).tolist() if raw_times else []
        except DecodeError:
            for at, time in enumerate(raw_times):
                try:
                    times_us.append(self._times.one(time))
                except DecodeError:
                    times_us.append(0)
                    odd.add(at)
        for at in odd:
            found.streams[at] = NO_STREAM
        return found._replace(times_us=times_us, values=self._values.without_sentinels(values))

    def _read(self, message: _Message) -> Samples | None:
        if message.stream is None:
            return None
        if isinstance(message.values, list):
            return self._chunk(message, message.values)
        if message.values is None or message.time is None or message.times is not None:
            return None
        return self._single(message, message.values, message.time)

    def _single(
        self, message: _Message, values: dict[str, float | None], time: datetime | float | int
    ) -> Samples | None:
        row = self._row(values)
        return None if row is None else self._samples(message, np.array([self._times.one(time)]), [row], None)

    def _row(self, values: dict[str, float | None]) -> Sequence[float | None] | None:
        """Return the readings of all channels in their order; None if there is one of an unknown channel."""
        if len(values) == len(self._columns):
            try:  # every channel once, in whatever order: several times quicker than one by one
                return self._pick(values)
            except KeyError:
                return None
        row = [*self._missing]
        for name, value in values.items():
            column = self._columns.get(name)
            if column is None:
                return None
            row[column] = value
        return row

    def _chunk(self, message: _Message, rows: list[list[float | None]]) -> Samples | None:
        times = message.times
        if not times or len(times) != len(rows) or len(times) > self._max_samples:
            return None
        columns = self._columns_of(message.channels)
        if set(map(len, rows)) != {len(self._missing if columns is None else columns)}:
            return None
        return self._samples(message, self._times.many(times), rows, columns)

    def _columns_of(self, channels: list[str] | None) -> list[int] | None:
        """Return the columns of the channels that a chunk names, None if it names none. Raises DecodeError."""
        if channels is None:
            return None
        columns = [self._columns.get(name, -1) for name in channels]
        if -1 in columns or len(set(columns)) < len(columns):
            fail("unknown_channel", "channels: one is unknown or named twice")
        return columns

    def _samples(
        self, message: _Message, times_us: IntArray, rows: list[Any], columns: list[int] | None
    ) -> Samples | None:
        values = self._values.finite(rows)
        return None if values is None else self._with_ids(message, times_us, values, columns)

    def _with_ids(
        self, message: _Message | Chunk, times_us: IntArray, values: FloatArray, columns: list[int] | None
    ) -> Samples:
        """Return values, float32 [n, c] of these ``columns``, as samples of all channels. Raises DecodeError."""
        if columns is not None:
            listed, values = values, np.full((len(values), len(self._missing)), np.nan, dtype=np.float32)
            values[:, columns] = listed
        values = self._values.without_sentinels(values)
        sequence = None if message.sequence is None else read_id(message.sequence, "sequence")
        stream = read_id(message.stream, "stream")
        if self._route is None:
            return Samples(stream, sequence, times_us, values, message.end is True)
        route = _route_of(message, self._route)
        return Samples(stream, sequence, times_us, values, message.end is True, None, route)


def _message_type(route: FieldPath | None) -> type[_Message]:
    if route is None or route.name in _IDS:
        return _Message
    places = [("route", route.name), *((f"outer{index}", key) for index, key in enumerate(route.outer))]
    fields = [(place, Any, msgspec.field(default=ABSENT, name=name)) for place, name in places]
    return cast("type[_Message]", msgspec.defstruct("_Routed", fields, bases=(_RoutedMessage,), gc=False))


def _route_of(message: _Message | Chunk, path: FieldPath) -> str | None:
    """Return the value of the field at ``path`` as text, None if it is missing. Raises DecodeError."""
    if not isinstance(message, _RoutedMessage):
        value = message.stream if path.name == "stream" else message.sequence
    elif message.route is not ABSENT or not path.outer:
        value = message.route
    else:
        value = path.get({key: getattr(message, f"outer{index}") for index, key in enumerate(path.outer)})
    return None if value is ABSENT else read_route(value, path.name, as_text=False)


def _picker(names: list[str]) -> Callable[[dict[str, float | None]], tuple[float | None, ...]]:
    """Return a function that picks the values of ``names`` from a mapping; KeyError if one is absent."""
    if len(names) == 1:  # itemgetter would return the value itself
        return lambda values: (values[names[0]],)
    return cast("Callable[[dict[str, float | None]], tuple[float | None, ...]]", itemgetter(*names))
