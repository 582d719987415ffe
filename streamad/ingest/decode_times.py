"""Times in records: RFC 3339 texts, Unix seconds, seconds relative to a sequence's start."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from streamad.ingest.decode_values import MAX_NUMBER_CHARACTERS, fail, shown
from streamad.settings.time_format import EXCEL, NAMES, TimeFormat
from streamad.types import MAX_TIME_US, IntArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_SERIAL_0 = datetime(1899, 12, 30)  # noqa: DTZ001 - the zone is that of decode.timezone
_LAST_SERIAL = 2_958_466  # 10000-01-01
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,4})?", re.ASCII)


class TimeReader:
    """Reads event times into integer microseconds: since the Unix epoch, or since the sequence's start (``relative``).

    Numbers are in ``unit`` and rounded to the nearest microsecond; integers never pass through a float. Texts are
    numbers or RFC 3339 (absolute times only; without a UTC offset only if ``zone`` is given; of times that come twice
    there, when clocks are set back, ``fold`` 0 is the first and 1 the second, PEP 495). 0 is accepted, earlier is not.
    ``form`` is ``decode.time_format``: its dates and RFC 3339 are read, and numbers only if it names them.
    """

    def __init__(
        self,
        unit: Literal["s", "ms", "us", "ns"],
        *,
        relative: bool,
        zone: tzinfo | None = None,
        fold: Literal[0, 1] = 0,
        form: str | None = None,
    ) -> None:
        self._form = form
        self._dates = None if form is None or form in NAMES else TimeFormat(form)
        self._relative = relative
        self._zone = zone
        self._fold = fold
        self._factor = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}[unit]
        self._latest = MAX_TIME_US // self._factor if self._factor else MAX_TIME_US * 1_000

    def one(self, value: object) -> int:
        """Return the microseconds of one time. Raises DecodeError (bad_time, wrong_type)."""
        if self._form is not None:
            value = self._of_form(value)
        elif type(value) is str:
            value = self._from_text(value)
        if type(value) is int:
            time_us = value * self._factor if self._factor else (value + 500) // 1_000
        elif type(value) is float:
            scaled = value * self._factor if self._factor else value / 1_000
            if not math.isfinite(scaled):
                fail("bad_time", f"{shown(value)} is not a time")
            time_us = round(scaled)
        elif isinstance(value, datetime):
            time_us = self._from_datetime(value)
        else:
            fail("wrong_type", f"must be an RFC 3339 time or a number, got {shown(value)}")
        if time_us < 0:
            fail("bad_time", f"{shown(value)} lies before {'the start' if self._relative else '1970'}")
        if time_us > MAX_TIME_US:
            fail("bad_time", f"{shown(value)} lies after the year 2200: is decode.time_unit right?")
        return time_us

    def many(self, values: list[datetime | float | int]) -> IntArray:
        """Return int64 [n] of typed times, the same microseconds as ``one``. Raises DecodeError."""
        if self._dates is not None or self._form == EXCEL:
            return np.array([self.one(value) for value in values], dtype=np.int64)
        raw = np.array(values)
        regular = raw.dtype.kind == "i" or (raw.dtype.kind == "f" and self._factor)
        if not regular or not (raw.min() >= 0 and raw.max() <= self._latest):  # false for NaN
            return np.array([self.one(value) for value in values], dtype=np.int64)
        if raw.dtype.kind == "i":
            exact: IntArray = raw * self._factor if self._factor else (raw + 500) // 1_000
            return exact
        rounded: IntArray = np.rint(raw * self._factor).astype(np.int64)
        return rounded

    def _from_text(self, text: str) -> int | float | datetime:
        stripped = text.strip() if len(text) <= MAX_NUMBER_CHARACTERS else ""
        if _INTEGER.fullmatch(stripped):
            return int(stripped)
        if _DECIMAL.fullmatch(stripped):
            return float(stripped)
        found = _rfc3339(stripped)
        if found is None:
            fail(
                "bad_time",
                f"{shown(text)} is neither an RFC 3339 time like 2026-03-01T08:15:30.250Z nor a number; "
                "decode.time_format names other formats",
            )
        return found

    def _of_form(self, value: object) -> object:
        if self._dates is not None:
            return self._of_format(value, self._dates)
        if type(value) is str:
            value = self._from_text(value)
        return self._from_serial(value) if self._form == EXCEL else value

    @staticmethod
    def _of_format(value: object, dates: TimeFormat) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value) if type(value) is int else value  # 20260301081530 in a column of numbers
        if not isinstance(text, str):
            fail("wrong_type", f"must be a date of decode.time_format {shown(dates.text)}, got {shown(value)}")
        stripped = text.strip() if len(text) <= MAX_NUMBER_CHARACTERS else ""
        found = dates.read(stripped) or _rfc3339(stripped)
        if found is None:
            fail("bad_time", f"{shown(text)} is not of decode.time_format {shown(dates.text)}")
        return found

    @staticmethod
    def _from_serial(value: object) -> object:
        """Return the date of an Excel serial number, days since 1899-12-30, to the millisecond as Excel has it."""
        if type(value) not in {int, float} or not 0 <= value < _LAST_SERIAL:  # type: ignore[operator]
            if isinstance(value, datetime):
                return value
            fail("bad_time", f"{shown(value)} is no Excel date such as 46082.34375 (decode.time_format is excel)")
        return _SERIAL_0 + timedelta(milliseconds=round(value * 86_400_000))  # type: ignore[operator]

    def _from_datetime(self, value: datetime) -> int:
        if self._relative:
            fail("bad_time", "is a date, but decode.time is relative: write seconds since the sequence's start")
        if value.tzinfo is None:
            if self._zone is None:
                fail("bad_time", f"{value.isoformat()} has no UTC offset: write ...Z or set decode.timezone")
            value = value.replace(tzinfo=self._zone, fold=self._fold)
        return (value - _EPOCH) // _TICK


def _rfc3339(text: str) -> datetime | None:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None


@lru_cache(maxsize=1_000)
def may_come_twice(hour: int, zone: tzinfo) -> bool:
    """Return whether local times of the hour ``hour`` (since the epoch) come again in ``zone``, clocks set back."""
    for seconds in (0, 1_800, 3_599):
        local = datetime.fromtimestamp(hour * 3_600 + seconds, zone)
        if local.fold == 0 and local.replace(fold=1).utcoffset() != local.utcoffset():
            return True
    return False
