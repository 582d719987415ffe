"""Protobuf's well-known types as JSON would give them: times, durations, wrappers, free objects, decimals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from streamad.ingest.schemas.decimals import MAX_SCALE, decimal_of
from streamad.ingest.schemas.protobuf.files import DECIMAL_FILE

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILES = "google/protobuf/"
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")

Charge = Callable[[int], None]


def known_type(name: str, file: str) -> Callable[[Any, Charge], Any] | None:
    """Return what reads a message of a well-known type; None for other types, also for one that borrows the name."""
    return _READERS.get((file, name))


def _timestamp(message: Any, charge: Charge) -> datetime | str:
    """Return the instant, as a number of nanoseconds would be rounded; a text if no calendar has it."""
    try:
        return _EPOCH + timedelta(0, message.seconds, (message.nanos + 500) // 1_000)
    except OverflowError:
        return f"Timestamp {message.seconds} s {message.nanos} ns"


def _duration(message: Any, charge: Charge) -> str:
    """Return seconds with their unit, which no reader takes for a point in time."""
    total = message.seconds * 1_000_000_000 + message.nanos
    seconds, nanos = divmod(abs(total), 1_000_000_000)
    text = f"{seconds}.{nanos:09d}".rstrip("0").rstrip(".")
    return f"{'-' if total < 0 else ''}{text}s"


def _wrapped(message: Any, charge: Charge) -> Any:
    return message.value


def _empty(message: Any, charge: Charge) -> dict[str, Any]:
    return {}


def _object(message: Any, charge: Charge) -> dict[str, Any]:
    charge(1)
    return {key: _value(message.fields[key], charge) for key in message.fields}


def _list(message: Any, charge: Charge) -> list[Any]:
    charge(1)
    return [_value(value, charge) for value in message.values]


def _value(message: Any, charge: Charge) -> Any:
    kind = message.WhichOneof("kind")
    if kind in ("struct_value", "list_value"):
        inner = getattr(message, kind)
        return _object(inner, charge) if kind == "struct_value" else _list(inner, charge)
    return None if kind in (None, "null_value") else getattr(message, kind)


def _decimal(message: Any, charge: Charge) -> int | float | None:
    return decimal_of(message.value, 10**message.scale) if 0 <= message.scale <= MAX_SCALE else None


_READERS: dict[tuple[str, str], Callable[[Any, Charge], Any]] = {
    (f"{_FILES}timestamp.proto", "google.protobuf.Timestamp"): _timestamp,
    (f"{_FILES}duration.proto", "google.protobuf.Duration"): _duration,
    (f"{_FILES}empty.proto", "google.protobuf.Empty"): _empty,
    (f"{_FILES}struct.proto", "google.protobuf.Struct"): _object,
    (f"{_FILES}struct.proto", "google.protobuf.ListValue"): _list,
    (f"{_FILES}struct.proto", "google.protobuf.Value"): _value,
    (DECIMAL_FILE, "confluent.type.Decimal"): _decimal,
    **{(f"{_FILES}wrappers.proto", f"google.protobuf.{name}Value"): _wrapped for name in _WRAPPERS},
}
