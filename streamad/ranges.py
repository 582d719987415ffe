"""Ranges of record time: ``--since 2h``, ``--until 2026-11-01T08:00:00Z``."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

import msgspec

from streamad.errors import UsageError
from streamad.settings.fields import parse_duration_us
from streamad.types import from_us

_AGO = re.compile(r"\s*[0-9.]+\s*[A-Za-zµμ]+\s*")
_HOW = "write a time such as 2026-11-01T08:00:00Z, a date (its midnight in UTC), or how long ago: 30m, 2h, 7d"


class Span(NamedTuple):
    """Records from ``since_us`` on and before ``until_us``, in Unix microseconds; None: no limit on that side."""

    since_us: int | None = None
    until_us: int | None = None


EVERYTHING = Span()


def parse_time_us(text: str, now_us: int, what: str) -> int:
    """Return Unix microseconds of a time (RFC 3339), a date, or a duration before ``now_us``.

    Raises UsageError with the name ``what``.
    """
    try:
        if _AGO.fullmatch(text):
            return max(0, now_us - parse_duration_us(text))
        if len(text) == len("2026-11-01"):
            moment = datetime.combine(date.fromisoformat(text), time(), UTC)
        else:
            moment = _moment(text)
        if moment.tzinfo is None:
            raise UsageError(f"{what} {text}: has no time zone; add Z for UTC, or an offset such as +01:00")
        found_us = max(0, (moment - from_us(0)) // timedelta(microseconds=1))  # no record is older
        from_us(found_us)  # 9999-12-31T23:59:59-12:00 is no time in UTC
        return found_us
    except (ValueError, OverflowError, msgspec.ValidationError) as error:
        raise UsageError(f"{what} {text}: is no time; {_HOW}") from error


def _moment(text: str) -> datetime:
    """Return a time, also one without seconds or without an offset, which its caller asks for. Raises ValueError."""
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return datetime.fromisoformat(text)


def span_of(since: str | None, until: str | None, now_us: int) -> Span:
    """Return the range of ``--since`` and ``--until`` at ``now_us``. Raises UsageError."""
    since_us = None if since is None else parse_time_us(since, now_us, "--since")
    until_us = None if until is None else parse_time_us(until, now_us, "--until")
    if since_us is not None and until_us is not None and since_us >= until_us:
        raise UsageError(f"--since {since} does not lie before --until {until}: nothing can be between")
    return Span(since_us, until_us)
