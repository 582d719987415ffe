"""Formats of dates in messages: strptime tokens, read without the machine's locale, and names of numeric times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator

TimeUnit = Literal["d", "h", "min", "s", "ms", "us", "ns"]
StepUnit = Literal[TimeUnit, "hz"]
"""Units of a step between samples; hz: samples in a second."""
UNITS_US: dict[TimeUnit, float] = {
    "d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1e-3,
}  # fmt: skip
"""Microseconds of each unit."""

EXCEL = "excel"
SERIALS = {EXCEL: 1.0, "wincc_time_ms": 1e6}
"""Numbers of days since 1899-12-30, and what they are multiplied by: WinCC writes its column Time_ms so."""
UNIX_UNITS: dict[str, TimeUnit] = {"unix_s": "s", "unix_ms": "ms", "unix_us": "us", "unix_ns": "ns"}


class Epoch(NamedTuple):
    """A count in UTC that does not begin in 1970: its units in a second, and its beginning in Unix seconds."""

    per_s: int
    begin_s: int


EPOCHS = {
    "dotnet_ticks": Epoch(10_000_000, -62_135_596_800),  # DateTime.Ticks: since 0001-01-01
    "filetime": Epoch(10_000_000, -11_644_473_600),  # Windows: since 1601-01-01
    "garmin_fit": Epoch(1, 631_065_600),  # the FIT protocol's date_time: since 1989-12-31
}
NAMES = tuple(dict.fromkeys((EXCEL, *UNIX_UNITS, *SERIALS, *EPOCHS)))

_ENGLISH = "january february march april may june july august september october november december"
_GERMAN = "januar februar märz april mai juni juli august september oktober november dezember"
# Names and their first three letters; Mrz is usual, too.
_MONTHS = {
    short: number
    for names in (_ENGLISH, _GERMAN)
    for number, name in enumerate(names.split(), 1)
    for short in (name, name[:3])
} | {"mrz": 3, "sept": 9}
_ENGLISH_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_GERMAN_DAYS = "montag dienstag mittwoch donnerstag freitag samstag sonntag"
WEEKDAYS = {
    short: number
    for names, shortest in ((_ENGLISH_DAYS, 3), (_GERMAN_DAYS, 2))
    for number, name in enumerate(names.split())
    for short in (name, name[:3], name[:shortest])
} | {"tues": 1, "thur": 3, "thurs": 3}
"""Names of the days of the week, English and German, and their usual short forms: Monday is 0."""
_NUMBERS = {"m": "month", "d": "day", "H": "hour", "I": "hour12", "M": "minute", "S": "second", "y": "year2"}
_PATTERNS = {
    "Y": r"(?P<year>[0-9]{4})",
    "j": r"(?P<day_of_year>[0-9]{1,3})",
    "f": r"(?P<fraction>[0-9]{1,9})",
    "p": r"(?P<half>[AaPp]\.?[Mm]\.?)",
    "z": r"(?P<offset>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)",
    "b": r"(?P<name>[^\W\d_]{3,9})\.?",
    "B": r"(?P<name>[^\W\d_]{3,9})\.?",
    "a": r"(?P<weekday>[^\W\d_]{2,10})\.?",
    "A": r"(?P<weekday>[^\W\d_]{2,10})\.?",
    "Z": r"(?P<utc>GMT|UTC|UT|Z)",
    "%": "%",
}
_SHORT = {"T": "%H:%M:%S", "F": "%Y-%m-%d"}
_TOKEN = re.compile(r"%(.)?", re.DOTALL)


class TimeFormat:
    """Reads dates of one format. Raises ValueError for a format that names no date, or an unknown token.

    Tokens are those of strptime: %Y %y %m %d %j %b %B %a %A, %H %I %M %S %f %p, %z %Z, %T %F, %%. Months and weekdays
    have English or German names; a weekday must be that of the date. %Z is GMT or UTC. %f has up to nine digits, and
    after %S it may be absent with its mark. 24:00:00 is the next day's midnight.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        text = _TOKEN.sub(lambda match: _SHORT.get(match[1], match[0]), text)
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]
        self._regex = re.compile(self._pattern(text))
        found = set(self._tokens)
        if not (found & {"Y", "y"} and ((found & {"m", "b", "B"} and "d" in found) or "j" in found)):
            raise ValueError(f"{self.text!r} names no whole date: it needs %Y, %m and %d, as in %d.%m.%Y %H:%M:%S")
        if ("I" in found) != ("p" in found) or {"H", "I"} <= found:
            raise ValueError(f"{self.text!r}: hours are %H, or %I with %p")
        if {"z", "Z"} <= found:
            raise ValueError(f"{self.text!r}: an offset is %z, or %Z for the words GMT and UTC")
        self.has_offset = bool({"z", "Z"} & found)

    def _pattern(self, text: str) -> str:
        parts, at = [], 0
        for match in _TOKEN.finditer(text):
            parts += [_literal(text[at : match.start()]), self._token(match, text)]
            at = match.end()
        parts.append(_literal(text[at:]))
        pattern = "".join(parts)
        for mark in (r"\.", ","):
            fraction = mark + _PATTERNS["f"]
            pattern = pattern.replace(fraction, f"(?:{fraction})?")
        return pattern

    def _token(self, match: re.Match[str], text: str) -> str:
        token = match[1]
        if token in _NUMBERS:
            # Without a mark between two numbers each has both of its digits.
            stands_close = (match.start() > 1 and text[match.start() - 2] == "%") or text[match.end() :].startswith("%")
            digits = "2" if stands_close or token == "y" else "1,2"
            pattern = f"(?P<{_NUMBERS[token]}>[0-9]{{{digits}}})"
        elif token in _PATTERNS:
            pattern = _PATTERNS[token]
        else:
            raise ValueError(f"{self.text!r}: unknown token %{token or ''}; known are {_known()}")
        if token != "%" and self._tokens.count(token) > 1:
            raise ValueError(f"{self.text!r}: %{token} stands there twice")
        return pattern

    def read(self, text: str) -> datetime | None:
        """Return the date of ``text``, without a zone if the format has no %z; None if it is not of the format."""
        match = self._regex.fullmatch(text)
        if match is None:
            return None
        try:
            return _datetime(match.groupdict())
        except (ValueError, OverflowError):
            return None


def join_clock(date: str | int, clock: str | int, form: str | None) -> str:
    """Return a date and a time of day as one text; digits alone (60000, 0600) get the zeros that numbers have lost.

    They are hours, minutes and seconds, or hours and minutes if ``form`` has no seconds.
    """
    text = str(clock).strip()
    if text.isascii() and text.isdecimal():
        text = text.zfill(4 if form is not None and "%S" not in form and "%T" not in form else 6)
    return f"{date} {text}".strip()


def _known() -> str:
    return " ".join(f"%{token}" for token in ("Y", *_NUMBERS, *_PATTERNS, *_SHORT) if token != "%")


def _literal(text: str) -> str:
    """Return a pattern for the text between tokens; white space may be any."""
    return r"\s+".join(re.escape(part) for part in re.split(r"\s+", text))


def _datetime(found: dict[str, str | None]) -> datetime:
    number = {name: int(text) for name, text in found.items() if text is not None and text.isdecimal()}
    year = number["year"] if "year" in number else _century(number["year2"])
    name = found.get("name")
    month = number.get("month", 1) if name is None else _MONTHS.get(name.lower(), 0)
    hour = number.get("hour", 0)
    if "hour12" in number:
        if not 1 <= number["hour12"] <= 12:
            raise ValueError("an hour from 1 to 12")
        hour = number["hour12"] % 12 + 12 * ((found["half"] or "")[0] in "Pp")
    minute, second = number.get("minute", 0), number.get("second", 0)
    after = timedelta(microseconds=(int((found.get("fraction") or "0").ljust(9, "0")) + 500) // 1_000)
    if (hour, minute, second) == (24, 0, 0):
        hour, after = 0, after + timedelta(days=1)
    if "day_of_year" in number:
        if not 1 <= number["day_of_year"] <= 366:
            raise ValueError("a day of the year from 1 to 366")
        after += timedelta(days=number["day_of_year"] - 1)
    offset = UTC if found.get("utc") else _offset(found.get("offset"))
    date = datetime(year, month, number.get("day", 1), hour, minute, second, tzinfo=offset)
    weekday = found.get("weekday")
    if weekday is not None and WEEKDAYS.get(weekday.lower()) != date.weekday():
        raise ValueError("the day of the week is another")
    if (date + after).year != year and "day_of_year" in number:
        raise ValueError("no such day in this year")
    return date + after


def _century(year: int) -> int:
    return year + (1900 if year >= 69 else 2000)  # as POSIX has it


def _offset(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text in "Zz":
        return UTC
    digits = text[1:].replace(":", "")
    span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-span if text[0] == "-" else span)


def checked_format(text: str) -> str:
    """Return ``text`` if it is a format or the name of one. Raises ValueError."""
    if text in NAMES:
        return text
    if "%" not in text:
        raise ValueError(
            f"{text!r} is no format: write strptime tokens such as %d.%m.%Y %H:%M:%S, or one of {', '.join(NAMES)}"
        )
    TimeFormat(text)
    return text


TimeFormatText = Annotated[str, AfterValidator(checked_format)]
"""strptime tokens, or one of NAMES."""
