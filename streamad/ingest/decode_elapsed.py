"""Texts of times that count from a start: 00:00:01.5, 10 ms, 0 days 00:00:01.5, PT1.5S."""

from __future__ import annotations

import math
import re
from datetime import timedelta

import msgspec

from streamad.settings.numerals import Numerals
from streamad.settings.time_format import UNITS_US, TimeUnit

_DAY_US, _HOUR_US, _MINUTE_US, _SECOND_US = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
_CLOCK = re.compile(
    r"(?P<sign>[+-])?(?P<hours>[0-9]{1,7}):(?P<minutes>[0-5]?[0-9]):(?P<seconds>[0-5]?[0-9])"
    r"(?:[.,](?P<fraction>[0-9]{1,12}))?",
    re.ASCII,
)
# As pandas, PostgreSQL (-1 days +23:59:59) and Python (-1 day, 23:59:59) write it: the clock counts forward.
_DAYS = re.compile(r"(?P<days>[+-]?[0-9]{1,7}) days?(?P<comma>,?)\s*(?P<clock>.*)", re.ASCII)
_QUANTITY = re.compile(r"(?P<number>.*[0-9.,])\s*(?P<unit>[^\W\d_]+)\.?", re.DOTALL)
_NAMES: dict[TimeUnit, str] = {
    "ns": "nanosecond nanoseconds",
    "us": "\u00b5s \u03bcs usec microsecond microseconds",
    "ms": "msec millisecond milliseconds",
    "s": "sec secs second seconds",
    "min": "mins minute minutes",
    "h": "hr hrs hour hours",
}
_UNITS_US = {name: UNITS_US[unit] for unit, names in _NAMES.items() for name in (unit, *names.split())}
_LONGEST_US = 1e18


def read_elapsed(text: str, numerals: Numerals) -> timedelta | None:
    """Return the time that ``text`` counts from a start, to the microsecond; None if it is none of the known kinds.

    Kinds: hours, minutes and seconds; the same after a number of days; a number with its unit (ns to h); ISO 8601
    durations of days and below. Each may be negative.
    """
    if text.lstrip("+-")[:1] in ("P", "p"):
        return _iso_8601(text)
    match = _DAYS.fullmatch(text)
    if match is not None:
        return _after_days(match)
    found = _clock(text)
    return _quantity(text, numerals) if found is None else found


def _after_days(match: re.Match[str]) -> timedelta | None:
    days, clock = int(match["days"]), match["clock"]
    is_clear = days >= 0 or not clock or match["comma"] or clock[0] == "+"
    if not is_clear or clock[:1] == "-":
        return None
    after = _clock(clock) if clock else timedelta(0)
    return None if after is None else timedelta(days=days) + after


def _clock(text: str) -> timedelta | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    time_us = int(match["hours"]) * _HOUR_US + int(match["minutes"]) * _MINUTE_US + int(match["seconds"]) * _SECOND_US
    time_us += round(int((match["fraction"] or "0").ljust(12, "0")) / 1_000_000)
    return timedelta(microseconds=-time_us if match["sign"] == "-" else time_us)


def _quantity(text: str, numerals: Numerals) -> timedelta | None:
    match = _QUANTITY.fullmatch(text)
    unit_us = _UNITS_US.get(match["unit"].lower()) if match is not None else None
    if match is None or unit_us is None:
        return None
    try:
        time_us = numerals.number(match["number"]) * unit_us
    except ValueError:
        return None
    if not math.isfinite(time_us) or abs(time_us) > _LONGEST_US:
        return None
    return timedelta(microseconds=round(time_us))


def _iso_8601(text: str) -> timedelta | None:
    try:
        return msgspec.convert(text.replace(",", "."), timedelta)
    except (msgspec.ValidationError, OverflowError):
        return None
