"""Times in records: RFC 3339 texts, Unix seconds, seconds relative to a sequence's start."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from streamad.ingest.decode_values import MAX_NUMBER_CHARACTERS, MAX_TIME_US, fail, shown
from streamad.types import IntArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,4})?", re.ASCII)


class TimeReader:
    """Reads event times into integer microseconds: since the Unix epoch, or since the sequence's start (``relative``).

    Numbers are in ``unit`` and rounded to the nearest microsecond; integers never pass through a float. Texts are
    numbers or RFC 3339 (absolute times only; without a UTC offset only if ``zone`` is given; of times that come twice
    there, when clocks are set back, ``fold`` 0 is the first and 1 the second, PEP 495). 0 is accepted, earlier is not.
    """

    def __init__(
        self,
        unit: Literal["s", "ms", "us", "ns"],
        *,
        relative: bool,
        zone: tzinfo | None = None,
        fold: Literal[0, 1] = 0,
    ) -> None:
        self._relative = relative
        self._zone = zone
        self._fold = fold
        self._factor = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}[unit]
        self._latest = MAX_TIME_US // self._factor if self._factor else MAX_TIME_US * 1_000

    def one(self, value: object) -> int:
        """Return the microseconds of one time. Raises DecodeError (bad_time, wrong_type)."""
        if type(value) is str:
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
        try:
            return msgspec.convert(stripped, datetime)
        except msgspec.ValidationError:
            fail("bad_time", f"{shown(text)} is neither an RFC 3339 time like 2026-03-01T08:15:30.250Z nor a number")

    def _from_datetime(self, value: datetime) -> int:
        if self._relative:
            fail("bad_time", "is a date, but decode.time is relative: write seconds since the sequence's start")
        if value.tzinfo is None:
            if self._zone is None:
                fail("bad_time", f"{value.isoformat()} has no UTC offset: write ...Z or set decode.timezone")
            value = value.replace(tzinfo=self._zone, fold=self._fold)
        return (value - _EPOCH) // _TICK


@lru_cache(maxsize=1_000)
def may_come_twice(hour: int, zone: tzinfo) -> bool:
    """Return whether local times of the hour ``hour`` (since the epoch) come again in ``zone``, clocks set back."""
    for seconds in (0, 1_800, 3_599):
        local = datetime.fromtimestamp(hour * 3_600 + seconds, zone)
        if local.fold == 0 and local.replace(fold=1).utcoffset() != local.utcoffset():
            return True
    return False
