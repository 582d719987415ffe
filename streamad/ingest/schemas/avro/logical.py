"""Avro's logical types: what a number, text or bytes means (Avro 1.12, "Logical Types").

A point in time becomes a datetime, which tells its instant whatever ``decode.time_unit`` says: with a zone for
``timestamp-*``, without one for ``local-timestamp-*``. Dates and times of day become texts. One that no calendar has
becomes a text that no reader takes for a time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from streamad.ingest.schemas.decimals import MAX_SCALE, decimal_of

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is that of decode.timezone
_FIRST_DAY = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
_UUID_BYTES = 16


def conversion(of: str, schema: dict[str, Any]) -> Convert | None:
    """Return what changes a value of the Avro type ``of`` as the schema's logical type says.

    None if the schema has none, or one that is unknown or not allowed there: the value stays (Avro's rule).
    """
    name = schema.get("logicalType")
    if not isinstance(name, str):
        return None
    make = _MAKERS.get((of, name))
    return None if make is None else make(schema)


def _timestamp(name: str, factor: int | None, epoch: datetime) -> Convert:
    def convert(value: int) -> datetime | str:
        # A fraction of a microsecond is rounded as a number in nanoseconds is.
        micros = (value + 500) // 1_000 if factor is None else value * factor
        try:
            return epoch + timedelta(0, 0, micros)
        except OverflowError:
            return _beyond(name, value)

    return convert


def _time_of_day(name: str, factor: int) -> Convert:
    def convert(value: int) -> str:
        micros = value * factor
        if not 0 <= micros < _DAY_US:
            return _beyond(name, value)
        return (_LOCAL_EPOCH + timedelta(0, 0, micros)).time().isoformat()

    return convert


def _date(value: int) -> str:
    try:
        return date.fromordinal(_FIRST_DAY + value).isoformat()
    except (ValueError, OverflowError):
        return _beyond("date", value)


def _decimal(schema: dict[str, Any]) -> Convert | None:
    scale = schema.get("scale", 0)
    if not isinstance(scale, int) or not 0 <= scale <= MAX_SCALE:
        return None
    power: int = 10**scale

    def convert(value: bytes) -> int | float:
        return decimal_of(value, power)

    return convert


def _uuid(value: bytes) -> str:
    return str(UUID(bytes=value))


def _beyond(name: str, value: int) -> str:
    return f"{name} {value}"


_MAKERS: dict[tuple[str, str], Callable[[dict[str, Any]], Convert | None]] = {
    ("int", "date"): lambda _: _date,
    ("int", "time-millis"): lambda _: _time_of_day("time-millis", 1_000),
    ("long", "time-micros"): lambda _: _time_of_day("time-micros", 1),
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("fixed", "uuid"): lambda schema: _uuid if schema.get("size") == _UUID_BYTES else None,
}


def _add_timestamps() -> None:
    for kind, epoch in (("timestamp", _EPOCH), ("local-timestamp", _LOCAL_EPOCH)):
        for unit, factor in (("millis", 1_000), ("micros", 1), ("nanos", None)):
            convert = _timestamp(f"{kind}-{unit}", factor, epoch)
            _MAKERS["long", f"{kind}-{unit}"] = lambda _, convert=convert: convert  # type: ignore[misc]


_add_timestamps()
