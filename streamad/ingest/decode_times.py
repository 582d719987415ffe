"""Times in records: RFC 3339 texts, Unix seconds, times relative to a sequence's start."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.ingest.decode_elapsed import read_elapsed
from streamad.ingest.decode_values import MAX_NUMBER_CHARACTERS, fail, shown
from streamad.settings.numerals import Numerals
from streamad.settings.time_format import EPOCHS, NAMES, SERIALS, UNITS_US, Epoch, TimeFormat, TimeUnit
from streamad.types import MAX_TIME_US, BoolArray, IntArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_S = MAX_TIME_US // 1_000_000
_TICK = timedelta(microseconds=1)
_SERIAL_0 = datetime(1899, 12, 30)  # noqa: DTZ001 - the zone is that of decode.timezone
_LAST_SERIAL = 2_958_466  # 10000-01-01
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
# As .NET's older JSON serializers write it; the milliseconds are UTC whatever the offset.
_JSON_DATE = re.compile(r"\\?/Date\((-?[0-9]{1,17})(?:[+-][0-9]{4})?\)\\?/", re.ASCII)
_SHORT_OFFSET = re.compile(r"([0-9-]{10}[ T][0-9:.]+) ?([+-][0-9]{2})(?::?([0-9]{2}))?", re.ASCII)
_LIKE_ELAPSED = "such as 1.5, 00:00:01.5, 1.5 s or PT1.5S"
_TOO_EARLY = "more than 230 years before the start: is decode.time_unit right?"
_FOR_ELAPSED = "write decode.time: relative, or name the field of its date, too (decode.fields.time: [date, time])"
_USUAL = Numerals()
_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,4})?", re.ASCII)


class TimeReader:
    """Reads event times into integer microseconds: since the Unix epoch, or since the sequence's start (``relative``).

    Numbers are in ``unit`` and rounded to the nearest microsecond; integers never pass through a float. Texts are
    numbers, as ``numerals`` has them, /Date(ms)/ or RFC 3339 (without a UTC offset only if ``zone`` is given; of times
    that come twice there, when clocks are set back, ``fold`` 0 is the first and 1 the second, PEP 495). Absolute times
    begin at 0. Relative ones may be negative, and their texts are those of ``read_elapsed`` instead of RFC 3339.
    ``form`` is ``decode.time_format``: its dates and these are read, and numbers only if it names them.
    """

    def __init__(
        self,
        unit: TimeUnit,
        *,
        relative: bool,
        zone: tzinfo | None = None,
        fold: Literal[0, 1] = 0,
        form: str | None = None,
        numerals: Numerals = _USUAL,
    ) -> None:
        self._form = form
        self._per_day = SERIALS.get(form or "")
        self._epoch = EPOCHS.get(form or "")
        self._dates = None if form is None or form in NAMES else TimeFormat(form)
        self._relative = relative
        self._zone = zone
        self._fold = fold
        self._numerals = numerals
        self._factor = int(UNITS_US[unit])  # 0: a fraction of a microsecond
        self._latest = MAX_TIME_US // self._factor if self._factor else MAX_TIME_US * 1_000
        self._earliest, self._earliest_us = (-self._latest, -MAX_TIME_US) if relative else (0, 0)

    def one(self, value: object) -> int:
        """Return the microseconds of one time. Raises DecodeError (bad_time, wrong_type)."""
        given = value
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
            time_us = self._from_datetime(value, given)
        elif isinstance(value, timedelta):
            time_us = value // _TICK
        else:
            fail("wrong_type", f"must be an RFC 3339 time or a number, got {shown(value)}")
        if time_us < self._earliest_us:
            fail("bad_time", f"{shown(given)} lies {_TOO_EARLY if self._relative else 'before 1970'}")
        if time_us > MAX_TIME_US:
            fail("bad_time", f"{shown(given)} lies after the year 2200: is decode.time_unit right?")
        return time_us

    def many(self, values: list[datetime | float | int]) -> IntArray:
        """Return int64 [n] of typed times, the same microseconds as ``one``. Raises DecodeError."""
        found = self.numbers(np.array(values))
        if found is None or not found[1].all():
            return np.array([self.one(value) for value in values], dtype=np.int64)
        return found[0]

    def numbers(self, raw: npt.NDArray[Any]) -> tuple[IntArray, BoolArray] | None:
        """Return the same microseconds as ``one`` of numbers, int64 [n], and which of them are that.

        None if they must be read one by one.
        """
        is_other = self._dates is not None or self._per_day is not None or self._epoch is not None
        if is_other or not (raw.dtype.kind == "i" or (raw.dtype.kind == "f" and self._factor)):
            return None
        is_read: BoolArray = (raw >= self._earliest) & (raw <= self._latest)  # false for NaN
        if np.count_nonzero(is_read) < len(is_read):
            raw = np.where(is_read, raw, 0)
        if raw.dtype.kind == "i":
            exact: IntArray = raw * self._factor if self._factor else (raw + 500) // 1_000
            return exact, is_read
        rounded: IntArray = np.rint(raw * self._factor).astype(np.int64)
        return rounded, is_read

    def _from_text(self, text: str) -> int | float | datetime | timedelta:
        stripped = text.strip() if len(text) <= MAX_NUMBER_CHARACTERS else ""
        number = self._numerals.usual(stripped) or ""
        if _INTEGER.fullmatch(number):
            return int(number)
        if _DECIMAL.fullmatch(number):
            return float(number)
        found: datetime | timedelta | None = read_elapsed(stripped, self._numerals) if self._relative else None
        if found is None:
            found = _date(stripped)
        if found is None:
            if self._relative:
                fail("bad_time", f"{shown(text)} is no time since the start, {_LIKE_ELAPSED}")
            if read_elapsed(stripped, self._numerals) is not None:
                fail("bad_time", f"{shown(text)} counts from a start or is a time of day: {_FOR_ELAPSED}")
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
        if self._epoch is not None:
            return self._since(value, self._epoch)
        return value if self._per_day is None else self._from_serial(value, self._per_day)

    @staticmethod
    def _of_format(value: object, dates: TimeFormat) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value) if type(value) is int else value  # 20260301081530 in a column of numbers
        if not isinstance(text, str):
            fail("wrong_type", f"must be a date of decode.time_format {shown(dates.text)}, got {shown(value)}")
        stripped = text.strip() if len(text) <= MAX_NUMBER_CHARACTERS else ""
        found = dates.read(stripped) or _date(stripped)
        if found is None:
            fail("bad_time", f"{shown(text)} is not of decode.time_format {shown(dates.text)}")
        return found

    def _since(self, value: object, epoch: Epoch) -> object:
        """Return the time since 1970 of a count since ``epoch``, to the nearest microsecond."""
        begin = epoch.begin_s * epoch.per_s
        if (type(value) is int or type(value) is float) and 0 <= value + begin <= _LATEST_S * epoch.per_s:
            if isinstance(value, int):
                return timedelta(microseconds=((value + begin) * 2_000_000 + epoch.per_s) // (2 * epoch.per_s))
            return timedelta(microseconds=round((value + begin) * (1e6 / epoch.per_s)))
        if isinstance(value, datetime):
            return value
        fail("bad_time", f"{shown(value)} is no time of 1970 to 2200 (time_format is {self._form})")

    def _from_serial(self, value: object, scale: float) -> object:
        """Return the date of a serial number, days since 1899-12-30 times ``scale``, to the millisecond."""
        if type(value) not in {int, float} or not 0 <= value < _LAST_SERIAL * scale:  # type: ignore[operator]
            if isinstance(value, datetime):
                return value
            what = "Excel date" if scale == 1 else f"Excel date times {scale:,.0f}"
            fail("bad_time", f"{shown(value)} is no {what} such as {46082.34375 * scale} (time_format is {self._form})")
        return _SERIAL_0 + timedelta(milliseconds=round(value * (86_400_000 / scale)))  # type: ignore[operator]

    def _from_datetime(self, value: datetime, given: object) -> int:
        if self._relative:
            fail(
                "bad_time",
                f"{shown(given)} is a date, but decode.time is relative: write the time since the sequence's start, "
                f"{_LIKE_ELAPSED}",
            )
        if value.tzinfo is None:
            if self._zone is None:
                fail("bad_time", f"{value.isoformat()} has no UTC offset: write ...Z or set decode.timezone")
            value = value.replace(tzinfo=self._zone, fold=self._fold)
        return (value - _EPOCH) // _TICK


def _date(text: str) -> datetime | None:
    """Return the date of RFC 3339 text, whose offset may be of hours only and stand behind a space, or /Date(ms)/."""
    try:
        return msgspec.convert(text, datetime)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of lone surrogates, which json.loads accepts
        match = _SHORT_OFFSET.fullmatch(text)
    if match is None:
        return _json_date(text)
    try:
        return msgspec.convert(f"{match[1]}{match[2]}:{match[3] or '00'}", datetime)
    except msgspec.ValidationError:
        return None


def _json_date(text: str) -> datetime | None:
    match = _JSON_DATE.fullmatch(text)
    try:
        return None if match is None else _EPOCH + timedelta(milliseconds=int(match[1]))
    except OverflowError:
        return None


@lru_cache(maxsize=1_000)
def may_come_twice(hour: int, zone: tzinfo) -> bool:
    """Return whether local times of the hour ``hour`` (since the epoch) come again in ``zone``, clocks set back."""
    for seconds in (0, 1_800, 3_599):
        local = datetime.fromtimestamp(hour * 3_600 + seconds, zone)
        if local.fold == 0 and local.replace(fold=1).utcoffset() != local.utcoffset():
            return True
    return False
