"""Finds the formats that read a field's dates: those of ``decode.time_format``, if RFC 3339 does not read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import TypeVar

import numpy as np

from streamad.commands.init.facts.columns import Column
from streamad.settings.time_format import EPOCHS, SERIALS, WEEKDAYS, Epoch, TimeFormat

_Value = TypeVar("_Value")
_MOST_FORMS = 20
_READABLE = 0.95
_LONGEST_PAUSE = timedelta(days=4)
_MONTH = timedelta(days=25)
_YEARS = (1970, 2200)
_SERIALS = (32_874, 73_050)
"""1990 to 2100 as Excel has it."""
_SERIAL_0 = datetime(1899, 12, 30)  # noqa: DTZ001 - a local date
_NAME = r"[^\W\d_]{3,9}\.?"
# Each shape of a date with the orders that plants write it in; with dots the day comes first.
_DATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\d{1,2}\.\d{1,2}\.\d{4}", ("%d.%m.%Y",)),
    (r"\d{1,2}\.\d{1,2}\.\d{2}", ("%d.%m.%y",)),
    (r"\d{1,2}/\d{1,2}/\d{4}", ("%d/%m/%Y", "%m/%d/%Y")),
    (r"\d{1,2}/\d{1,2}/\d{2}", ("%d/%m/%y", "%m/%d/%y", "%y/%m/%d")),
    (r"\d{1,2}-\d{1,2}-\d{4}", ("%d-%m-%Y", "%m-%d-%Y")),
    (r"\d{1,2}-\d{1,2}-\d{2}", ("%d-%m-%y", "%m-%d-%y", "%y-%m-%d")),
    (r"\d{4}-\d{1,2}-\d{1,2}", ("%Y-%m-%d",)),
    (r"\d{4}/\d{1,2}/\d{1,2}", ("%Y/%m/%d",)),
    (r"\d{4}\.\d{1,2}\.\d{1,2}", ("%Y.%m.%d",)),
    (rf"\d{{1,2}}-{_NAME}-\d{{4}}", ("%d-%b-%Y",)),
    (rf"\d{{1,2}}-{_NAME}-\d{{2}}", ("%d-%b-%y",)),
    (rf"\d{{1,2}}\.? {_NAME} \d{{4}}", ("%d %b %Y", "%d. %b %Y")),
    (rf"{_NAME} \d{{1,2}}, ?\d{{4}}", ("%b %d, %Y",)),
    (r"\d{8}(?=\d{6}|\D|$)", ("%Y%m%d",)),
)
_CLOCKS = (
    (r"\d{1,2}:\d{2}:\d{2}\.\d+", "{}:%M:%S.%f"),
    (r"\d{1,2}:\d{2}:\d{2},\d+", "{}:%M:%S,%f"),
    (r"\d{1,2}:\d{2}:\d{2}", "{}:%M:%S"),
    (r"\d{1,2}:\d{2}", "{}:%M"),
    (r"\d{1,2}\.\d{2}\.\d{2}", "{}.%M.%S"),
    (r"\d{6}", "{}%M%S"),
    (r"\d{4}(?!\d)", "{}%M"),
    (r"", ""),
)
_BETWEEN = re.compile(r"(T|,? +| - |)")
_AFTER = re.compile(r"( ?)([AaPp]\.?[Mm]\.?)?( ?)(?:(Z|[+-]\d{2}:?\d{2})|(GMT|UTC|UT))?")
_WEEKDAY = re.compile(r"([^\W\d_]{2,10})(\.?,? +)")
_YEAR_LAST = re.compile(rf"{_NAME} +\d{{1,2}} \d{{1,2}}:\d{{2}}:\d{{2}}( (?:GMT|UTC))? \d{{4}}")
"""As C writes it: Jan  2 10:00:00 2023."""


def formats_of(column: Column) -> list[str]:
    """Return the formats that read the dates of a text column, nearly all of them; [] if none does."""
    texts = _texts(column)
    if not texts:
        return []
    by_shape: dict[str, str] = {}
    for text in texts[:1_000]:
        by_shape.setdefault(re.sub(r"\d+", "0", text), text)
    samples = list(by_shape.values())[:3]
    candidates = list(dict.fromkeys(form for text in samples for form in _forms(text)))[:_MOST_FORMS]
    found = {form: _share(form, texts) for form in candidates}
    best = max(found.values(), default=0.0)
    return [form for form, share in found.items() if share == best and share >= _READABLE]


def _forms(text: str) -> Iterator[str]:
    """Yield the formats of one date by its shape; a day of the week may stand before it."""
    day = _WEEKDAY.match(text)
    if day is not None and day[1].lower() in WEEKDAYS:
        yield from (f"%a{day[2].lstrip('.')}{form}" for form in _forms(text[day.end() :]))
        return
    if (last := _YEAR_LAST.fullmatch(text)) is not None:
        yield f"%b %d %H:%M:%S{' %Z' if last[1] else ''} %Y"
        return
    for (shape, orders), (clock, time) in product(_DATES, _CLOCKS):
        match = re.match(shape, text)
        if match is None:
            continue
        between = _BETWEEN.match(text, match.end())
        assert between is not None
        hours = re.compile(clock).match(text, between.end())
        if hours is None or (not between[1] and clock not in ("", r"\d{6}")):
            continue
        after = _AFTER.fullmatch(text, hours.end())
        if after is None or (not clock and after[0]):
            continue
        halves = f"{after[1]}%p" if after[2] else after[1]
        rest = halves + (f"{after[3]}%z" if after[4] else f"{after[3]}%Z" if after[5] else "")
        for order in orders:
            yield order + between[1] + time.format("%I" if after[2] else "%H") + rest
        return


def nearly_all(values: Sequence[_Value], is_read: Callable[[_Value], bool]) -> bool:
    """Return whether a rule reads nearly all values: titles and sums may stand between rows."""
    return bool(values) and sum(map(is_read, values)) >= _READABLE * len(values)


def is_read_by(form: str, column: Column) -> bool:
    """Return whether a format reads the column's dates, nearly all of them."""
    dates = TimeFormat(form)
    return nearly_all(_texts(column), lambda text: _is_of_our_time(dates.read(text)))


def running_on(column: Column, formats: Sequence[str]) -> str | None:
    """Return the format by which the dates run on from day to day, if by all others they jump by a month or more.

    The days 03/01 and 03/02 follow each other as dates of March, but not as 3 January and 3 February.
    """
    texts = _texts(column)
    jumps = {form: _longest_jump(form, texts) for form in formats}
    fits = [form for form, jump in jumps.items() if jump is not None and jump <= _LONGEST_PAUSE]
    others = [jump for form, jump in jumps.items() if form not in fits]
    if len(fits) != 1 or any(jump is None or jump < _MONTH for jump in others):
        return None
    return fits[0]


def _longest_jump(form: str, texts: Sequence[str]) -> timedelta | None:
    """Return the longest time without a date; None for less than two of them."""
    dates = TimeFormat(form)
    read = sorted({date for text in texts if (date := dates.read(text)) is not None})
    return max((after - before for before, after in pairwise(read)), default=None)


def _texts(column: Column) -> list[str]:
    """Return the different texts of a column, whole numbers as texts."""
    return list(dict.fromkeys(str(value).strip() for value in column.values if isinstance(value, (str, int))))


def _share(form: str, texts: Sequence[str]) -> float:
    dates = TimeFormat(form)
    return sum(_is_of_our_time(dates.read(text)) for text in texts) / len(texts)


def _is_of_our_time(date: datetime | None) -> bool:
    return date is not None and _YEARS[0] <= date.year < _YEARS[1]


def are_serials(column: Column, factor: float = 1.0) -> bool:
    """Return whether the numbers may be Excel's: days since 1899-12-30, with times of day; ``factor`` times them."""
    days = column.numbers / factor
    low, high = float(days.min()), float(days.max())
    with_time = np.count_nonzero(days != np.floor(days))
    return bool(_SERIALS[0] <= low < high <= _SERIALS[1] and 2 * with_time >= len(days))


def example(form: str, value: object) -> str:
    """Return what ``value`` means by a format: 1 May 2026, 07:00:00."""
    if form in EPOCHS or form == "unix_s":
        assert isinstance(value, (int, float, str))
        epoch = EPOCHS.get(form, Epoch(1, 0))
        date = datetime.fromtimestamp(float(value) / epoch.per_s + epoch.begin_s, UTC)
    elif form in SERIALS:
        assert isinstance(value, (int, float, str))
        date = _SERIAL_0 + timedelta(milliseconds=round(float(value) / SERIALS[form] * 86_400_000))
    else:
        found = TimeFormat(form).read(str(value).strip())
        if found is None:
            return "not read"
        date = found
    return f"{date.day} {date:%B %Y, %H:%M:%S}"
