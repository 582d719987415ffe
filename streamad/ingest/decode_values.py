"""Readers of single values of a message: ids, numbers, flags; each returns a value or raises DecodeError.

They accept anything a parser can produce (huge integers, lone surrogates, msgpack extensions) and quote at most 80
characters of it.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec

from streamad.errors import DecodeError
from streamad.types import MAX_TIME_US, BadValues, FloatArray, IntArray, Record

DecodeErrorKind = Literal[
    "malformed",
    "schema_registry",
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
_EXACT_BELOW = 2**53
_SCHEMA_IDS = 2**31
_CONFLUENT_BYTES, _GLUE_BYTES, _GLUE_MARK = 5, 18, 3
_MISSING = frozenset({"", "null", "none", "na", "n/a"})
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

    1042.0 is 1042: tables with empty cells hold whole numbers so.
    """
    if type(value) is float and value.is_integer() and abs(value) < _EXACT_BELOW:
        value = int(value)
    if type(value) is int and abs(value) < 10**MAX_ID_CHARACTERS:
        value = str(value)
    if not isinstance(value, str):
        fail("wrong_type", f"{field}: must be text or a whole number, got {shown(value)}")
    if not value:
        fail("bad_id", f"{field}: is empty")
    if len(value) > MAX_ID_CHARACTERS:
        fail("bad_id", f"{field}: is longer than {MAX_ID_CHARACTERS} characters")
    if not value.isprintable() and any(unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} for c in value):
        fail("bad_id", f"{field}: holds control characters: {shown(value)}")
    return value


def read_number(value: object, *, as_text: bool, missing: Collection[str] = ()) -> float | None:
    """Return a reading, NaN for missing (null, NaN; with ``as_text`` also an empty text), None for anything else.

    Infinities pass through. ``as_text`` accepts numbers written as text, as CSV gives them; ``missing`` holds further
    texts that mean missing, in lower case.
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
    return _number_in(value, as_text=as_text, missing=missing) if isinstance(value, str) else None


def _number_in(text: str, *, as_text: bool, missing: Collection[str]) -> float | None:
    if as_text and len(text) <= MAX_NUMBER_CHARACTERS and "_" not in text:
        try:
            return float(text)
        except ValueError:
            if text.strip().lower() in _MISSING:
                return math.nan
    return math.nan if missing and text.strip().lower() in missing else None


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


def serializer_of(record: Record) -> str | None:
    """Return what shows that a Schema Registry serializer wrote a record that is no message; None if nothing does.

    The framings are those of Confluent (0x00, four bytes of id; or a header) and of AWS Glue (0x03, a version's UUID).
    """
    value = record.value
    if record.schema is not None:
        return f"written by a Schema Registry serializer (a header names schema {shown(record.schema)})"
    if len(value) > _CONFLUENT_BYTES and value[0] == 0:
        schema, payload = int.from_bytes(value[1:_CONFLUENT_BYTES], "big"), value[_CONFLUENT_BYTES:]
        kind = "JSON Schema" if payload[:1] in (b"{", b"[") else "Avro or Protobuf"
        if 0 < schema < _SCHEMA_IDS:
            return f"framed by a Schema Registry serializer (0x00, schema id {schema}; {kind})"
    if len(value) > _GLUE_BYTES and value[0] == _GLUE_MARK and value[1] in (0, 5):
        return "framed by an AWS Glue Schema Registry serializer (0x03)"
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
                fail("wrong_type", f"{self.name}: {shown(inner)} stands where an object should be")
            if (value := _path(rest).get(inner)) is not ABSENT:
                return value
        return ABSENT


@lru_cache(maxsize=4096)
def _path(name: str) -> FieldPath:
    return FieldPath(name)
