"""Readers of a message's values: ids, numbers, flags and rows of readings, and the readings that cannot be used.

A reader of a single value returns it or raises DecodeError. It accepts anything that a parser can produce (huge
integers, lone surrogates, msgpack extensions) and quotes at most 80 characters of it. A reading of a row that
cannot be used is missing in its channel alone.
"""

from __future__ import annotations

import math
import struct
import unicodedata
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec
import numpy as np

from streamad.errors import DecodeError
from streamad.settings.numerals import MISSING_WORDS
from streamad.types import BAD_REASONS, MAX_TIME_US, BadValues, Boundaries, Boundary, FloatArray, IntArray, Record

DecodeErrorKind = Literal[
    "malformed",
    "schema_registry",
    "unknown_schema",
    "too_large",
    "too_many_samples",
    "wrong_type",
    "wrong_shape",
    "missing_field",
    "bad_id",
    "unknown_channel",
    "bad_time",
    "clock_skew",
    "mixed_message",
]

MAX_ID_CHARACTERS = 256
_MAX_MESSAGE_CHARACTERS = 280
_MAX_SHOWN_CHARACTERS = 60
MAX_NUMBER_CHARACTERS = 64
_ENDS_OF_NUMBERS = tuple("0123456789.")
_EXACT_BELOW = 2**53
_SCHEMA_IDS = 2**31
_CONFLUENT_BYTES, _GLUE_BYTES, _GLUE_MARK = 5, 18, 3
_REGISTRY = "set decode.registry, the address of its registry"
_PLAIN = "let its producer write plain JSON or msgpack, or convert the topic (Kafka Connect, ksqlDB)"
_FLAGS = {"": False, "false": False, "0": False, "no": False, "true": True, "1": True, "yes": True}
_JSON_TYPES = {dict: "an object", list: "a list", type(None): "null", datetime: "a timestamp", bytes: "binary data"}


def fail(kind: DecodeErrorKind, message: str) -> NoReturn:
    """Raise DecodeError with ``message`` cut to a length fit for a log line and a dead letter."""
    raise DecodeError(kind, message[:_MAX_MESSAGE_CHARACTERS])


def located(error: DecodeError, where: str) -> DecodeError:
    """Return ``error`` with the place in the message before its text."""
    return DecodeError(error.kind, f"{where}: {error}"[:_MAX_MESSAGE_CHARACTERS])


def shown(value: object) -> str:
    """Return a short printable form of any parsed value; containers are named, not printed."""
    if isinstance(value, str):
        cut = value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "…"
        return ascii(cut)[:80] if not cut.isprintable() else repr(cut)[:80]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**40 else "an integer of more than 40 digits"
    if isinstance(value, float):
        return repr(value)
    return _JSON_TYPES.get(type(value), "an extension value")


def read_id(value: object, field: str) -> str:
    """Return a stream or sequence id: text or a whole number (as text), one line, 1 to 256 characters.

    1042.0 is 1042: tables with empty cells hold whole numbers so. A point in time (msgpack, Avro) is its text.
    """
    if type(value) is float and value.is_integer() and abs(value) < _EXACT_BELOW:
        value = int(value)
    if type(value) is int and abs(value) < 10**MAX_ID_CHARACTERS:
        value = str(value)
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        fail("wrong_type", f"{field}: must be text or a whole number, got {shown(value)}")
    if not value:
        fail("bad_id", f"{field}: is empty")
    if len(value) > MAX_ID_CHARACTERS:
        fail("bad_id", f"{field}: is longer than {MAX_ID_CHARACTERS} characters")
    if not value.isprintable() and any(unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} for c in value):
        fail("bad_id", f"{field}: holds control characters: {shown(value)}")
    return value


def read_number(value: object, in_text: Callable[[str], float] | None, missing: Collection[str] = ()) -> float | None:
    """Return a reading, NaN for missing (null, NaN; with ``in_text`` also an empty text), None for anything else.

    Infinities pass through. ``in_text`` reads numbers written as text, as CSV gives them, and raises ValueError for
    other texts; without it there are none. ``missing`` holds further texts that mean missing, in lower case.
    """
    if type(value) is float:
        return value
    if value is None:
        return math.nan
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _number_in(value, in_text, missing) if isinstance(value, str) else None


def _number_in(text: str, in_text: Callable[[str], float] | None, missing: Collection[str]) -> float | None:
    if in_text is not None and len(text) <= MAX_NUMBER_CHARACTERS and "_" not in text:
        try:
            return in_text(text)
        except ValueError:
            if text.strip().lower() in MISSING_WORDS:
                return math.nan
    return math.nan if missing and text.strip().lower() in missing else None


def read_quantity(value: object, unit: str, in_text: Callable[[str], float] | None) -> float | None:
    """Return the reading of a number in text that ``unit`` follows (``1.5 bar``); None for anything else.

    ``unit`` is that of the channel, as ``plain_unit`` has it: a text with another unit is no reading.
    """
    if in_text is None or not unit or not isinstance(value, str) or len(value) > MAX_NUMBER_CHARACTERS:
        return None
    written = plain_unit(value)
    number = written.removesuffix(unit).rstrip()
    if number == written or number[-1:] not in _ENDS_OF_NUMBERS:
        return None
    return read_number(number, in_text)


def plain_unit(text: str) -> str:
    """Return a text with a unit for comparison: the two micro signs are one."""
    return text.strip().replace("\u00b5", "\u03bc")


def key_text(record: Record) -> str | None:
    """Return the record's key as text, None if it has none. Raises DecodeError."""
    try:
        return None if record.key is None else record.key.decode()
    except UnicodeDecodeError:
        fail("bad_id", "the record's key is not UTF-8 text")


def read_route(value: object, field: str, *, as_text: bool) -> str | None:
    """Return the value that chooses the model, as text; None if it is missing (null, NaN).

    3 and 3.0 give the same text, booleans are true and false. With ``as_text`` an empty text is missing. Raises
    DecodeError (wrong_type, bad_id).
    """
    if value is None or (as_text and value == ""):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is float:
        if math.isnan(value):
            return None
        if math.isfinite(value):
            return str(int(value)) if value.is_integer() and abs(value) < _EXACT_BELOW else repr(value)
    if not isinstance(value, str) and type(value) is not int:
        fail("wrong_type", f"{field}: must be text, a number, true or false, got {shown(value)}")
    return read_id(value, field)


def read_flag(value: object, field: str, *, as_text: bool) -> bool:
    """Return an end flag: a boolean, null for false; with ``as_text`` also 0, 1 and their usual spellings."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if as_text:
        if type(value) in {int, float} and value in {0, 1}:
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in _FLAGS:
            return _FLAGS[value.strip().lower()]
    fail("wrong_type", f"{field}: must be true or false, got {shown(value)}")


def own_time_us(record: Record) -> int | None:
    """Return the record's own time; None if it has none, or one before 1970 or after 2200, which no clock may show."""
    time_us = record.timestamp_us
    return time_us if time_us is not None and 0 <= time_us <= MAX_TIME_US else None


def check_own_time(record: Record) -> None:
    """Raise DecodeError (bad_time) if the record has a time of its own before 1970 or after 2200."""
    if record.timestamp_us is not None and own_time_us(record) is None:
        fail("bad_time", "the record's own time lies before 1970 or after 2200")


def serializer_advice(record: Record) -> str | None:
    """Return what to do about a record that is no message but a serializer's; None if nothing shows that it is.

    The framings are those of Confluent (0x00, four bytes of id; or a header) and of AWS Glue (0x03, a version's UUID).
    """
    value = record.value
    if record.schema is not None:
        return f"written by a Schema Registry serializer (a header names schema {shown(record.schema)}): {_REGISTRY}"
    if len(value) > _CONFLUENT_BYTES and value[0] == 0:
        schema, payload = int.from_bytes(value[1:_CONFLUENT_BYTES], "big"), value[_CONFLUENT_BYTES:]
        kind = "JSON Schema" if payload[:1] in (b"{", b"[") else "Avro or Protobuf"
        if 0 < schema < _SCHEMA_IDS:
            return f"framed by a Schema Registry serializer (0x00, schema id {schema}; {kind}): {_REGISTRY}"
    if len(value) > _GLUE_BYTES and value[0] == _GLUE_MARK and value[1] in (0, 5):
        return f"framed by an AWS Glue Schema Registry serializer (0x03), which is not read: {_PLAIN}"
    return None


ABSENT: Any = msgspec.UNSET
"""The value of a field that a message does not have (null is a value)."""


class Samples(NamedTuple):
    """The samples of a message in its own order: ``times_us`` int64 [n]; ``values`` float32 [n, C], finite or NaN.

    ``route`` is the value of the field that chooses the model, if any.
    """

    stream: str
    sequence: str | None
    times_us: IntArray
    values: FloatArray
    end: bool
    indexes: IntArray | None = None
    route: str | None = None
    bad: BadValues | None = None
    boundaries: Boundaries | None = None


class Single(NamedTuple):
    """A message of one sample."""

    stream: str
    sequence: str | None
    time_us: int
    row: list[float]
    end: bool
    route: str | None
    boundary: Boundary | None = None


class FieldPath:
    """A field's name: a literal key, or a dotted path into nested objects, whose keys may have dots, too.

    At each level the literal key wins, then the shortest one that leads to a value. ``outer`` holds the keys of the
    outermost object that may lead to it.
    """

    __slots__ = ("_inner", "name", "outer")

    def __init__(self, name: str) -> None:
        self.name = name
        parts = name.split(".")
        cuts = range(1, len(parts))
        self.outer = tuple(".".join(parts[:cut]) for cut in cuts)
        self._inner = tuple(".".join(parts[cut:]) for cut in cuts)

    def get(self, message: dict[Any, Any]) -> Any:
        """Return the field's value, ABSENT if there is none. Raises DecodeError if the path meets no object."""
        value = message.get(self.name, ABSENT)
        if value is not ABSENT:
            return value
        for key, rest in zip(self.outer, self._inner, strict=True):
            inner = message.get(key, ABSENT)
            if inner is None or inner is ABSENT:
                continue
            if not isinstance(inner, dict):
                is_json = isinstance(inner, str) and inner.lstrip()[:1] in ("{", "[")
                advice = ": name this text in decode.fields.nested" if is_json else ""
                fail("wrong_type", f"{self.name}: {shown(inner)} stands where an object should be{advice}")
            if (value := _path(rest).get(inner)) is not ABSENT:
                return value
        return ABSENT

    def changed(self, message: dict[Any, Any], change: Callable[[Any], Any]) -> dict[Any, Any] | None:
        """Return ``message`` with ``change`` of the field's value, or without the field if that is ABSENT.

        None if the message has no such field. A path that meets no object leads nowhere.
        """
        if self.name in message:
            value = change(message[self.name])
            if value is ABSENT:
                return {key: other for key, other in message.items() if key != self.name}
            return {**message, self.name: value}
        for key, rest in zip(self.outer, self._inner, strict=True):
            inner = message.get(key)
            if isinstance(inner, dict) and (changed := _path(rest).changed(inner, change)) is not None:
                return {**message, key: changed}
        return None


@lru_cache(maxsize=4096)
def _path(name: str) -> FieldPath:
    return FieldPath(name)


WRONG_TYPE, INFINITE, QUALITY = range(1, len(BAD_REASONS))
_TEXTS = {
    WRONG_TYPE: "must be a number or null, got {}",
    INFINITE: "{} is infinite or beyond 32-bit floats",
    QUALITY: "its quality is {}",
}


class BadCells:
    """The values of one message that cannot be used, in 13 bytes each; ``row`` is the index of the row being read.

    ``n_lists`` counts those of a sample that are lists. ``of_rows`` keeps the texts of each row, if it is set.
    """

    # Not set by a constructor: there is one object for each message.
    row = 0
    n_lists = 0
    cells: tuple[array[int], array[int], array[int]] | None = None
    of_rows: dict[int, dict[tuple[int, int], str]] | None = None
    _first: dict[tuple[int, int], str]

    def add(self, column: int, code: int, value: object) -> None:
        """Note that ``value`` of the row, or its reading of that quality, cannot be used."""
        if self.cells is None:
            self.cells, self._first = (array("q"), array("i"), array("b")), {}
        for cells, number in zip(self.cells, (self.row, column, code), strict=True):
            cells.append(number)
        if (column, code) not in self._first or self.of_rows is not None:
            self._tell(
                column, code, str(value) if isinstance(value, DecodeError) else _TEXTS[code].format(shown(value))
            )

    def _tell(self, column: int, code: int, text: str) -> None:
        self._first.setdefault((column, code), text)
        if self.of_rows is not None:
            self.of_rows.setdefault(self.row, {})[column, code] = text

    def add_all(self, others: BadCells) -> None:
        """Note those of ``others``, which has read one row, for the row."""
        if self.cells is None:
            self.cells, self._first = (array("q"), array("i"), array("b")), {}
        for column, code in zip(*others.cells[1:], strict=True) if others.cells is not None else ():
            for cells, number in zip(self.cells, (self.row, column, code), strict=True):
                cells.append(number)
            self._tell(column, code, others._first[column, code])

    def values(self, n_rows: int, n_channels: int) -> BadValues | None:
        """Return them for a block of this size; None if there are none."""
        if self.cells is None:
            return None
        rows, columns, codes = (np.asarray(cells) for cells in self.cells)
        found = np.zeros((n_rows, n_channels), dtype=np.uint8)
        found[rows, columns] = codes
        texts = () if self.of_rows is None else tuple(self.of_rows.get(row, {}) for row in range(n_rows))
        return BadValues(found, self._first, texts)


class ValueReader:
    """Turns rows of Python floats into float32 [n, C]; ``missing`` holds the numbers that mean missing, by channel."""

    def __init__(self, n_channels: int, missing: Mapping[int, Collection[float]] = MappingProxyType({})) -> None:
        self._n_channels = n_channels
        self._pack = struct.Struct(f"={n_channels}f").pack  # "=": only standard packing checks for overflow
        self._missing = {column: frozenset(numbers) for column, numbers in missing.items() if numbers}
        with np.errstate(over="ignore"):
            self._sentinels = [(column, np.float32(number)) for column, of in self._missing.items() for number in of]

    def packed(self, row: Sequence[float | None]) -> bytes:
        """Return the bytes of a row of all channels, NaN for None. Raises OverflowError; infinite values pass."""
        try:
            return self._pack(*row)
        except struct.error:
            return self._pack(*[math.nan if value is None else value for value in row])

    def finite(self, rows: list[Any]) -> FloatArray | None:
        """Return float32 [n, C] of rows of float or None; None if a value is infinite or overflows.

        The rows may be narrower, and numbers that mean missing are still there (see ``without_sentinels``).
        """
        try:  # twice as quick as an array call, for one row several times
            if len(rows) == 1:
                return self._row(rows[0])
            packed = bytearray().join([self._pack(*row) for row in rows])
        except OverflowError:
            return None
        except struct.error:  # a missing value, or some channels only
            with np.errstate(over="ignore"):  # an overflow becomes infinite
                values = np.array(rows, dtype=np.float32)
        else:
            values = np.ndarray((len(rows), self._n_channels), np.float32, packed)
        return None if np.isinf(values).any() else values

    def _row(self, row: Sequence[float]) -> FloatArray | None:
        """Return float32 [1, C]; None if a value is infinite. Raises OverflowError; struct.error if one is missing."""
        packed = bytearray(self._pack(*row))
        total = sum(row)
        if total - total != 0.0 and (math.inf in row or -math.inf in row):  # the total of finite ones is finite
            return None
        return np.ndarray((1, self._n_channels), np.float32, packed)

    def read(self, rows: list[list[float]], bad: BadCells) -> FloatArray:
        """Return float32 [n, C] without sentinels; infinite values are missing there and added to ``bad``."""
        values = self.finite(rows)
        if values is not None:
            return self.without_sentinels(values) if self._sentinels else values
        with np.errstate(over="ignore"):
            values = np.array(rows, dtype=np.float32)
        for bad.row, column in np.argwhere(np.isinf(values)).tolist():
            value = rows[bad.row][column]
            if value not in self._missing.get(column, ()):
                bad.add(column, INFINITE, value)
            values[bad.row, column] = math.nan
        return self.without_sentinels(values)

    def without_sentinels(self, values: FloatArray) -> FloatArray:
        """Return ``values``, float32 [n, C], changed: numbers that mean missing are NaN."""
        for column, number in self._sentinels:
            of_channel = values[:, column]
            of_channel[of_channel == number] = math.nan
        return values


def inner_value(path: FieldPath, values: dict[Any, Any]) -> Any:
    """Return the value at a dotted path; if it meets no object, the error that says so."""
    try:
        return path.get(values)
    except DecodeError as error:
        return error


def paths_inside(values: FieldPath | None, paths: Sequence[FieldPath]) -> list[FieldPath]:
    """Return those of ``paths`` that lie inside the object of channels, as seen from there."""
    if values is None:
        return []
    before = f"{values.name}."
    return [FieldPath(path.name.removeprefix(before)) for path in paths if path.name.startswith(before)]
