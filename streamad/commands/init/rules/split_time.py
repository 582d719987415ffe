"""Finds dates and times of day that lie in two fields, and joins them as the decoder does."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.words import TIME, hints
from streamad.commands.init.rules.dates import formats_of
from streamad.settings.time_format import join_clock

_LOOKED_AT = 200
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp]\.?[Mm]\.?)?")
_HOURS = re.compile("%[HIT]")
_DATE_WORD = re.compile("datum|date|day|tag", re.IGNORECASE)
_CLOCK_WORD = re.compile("zeit|time|uhr|clock", re.IGNORECASE)
_SPAN = re.compile("dauer|duration|elapsed|lauf|zyklus|cycle|runtime|run.?time|takt", re.IGNORECASE)
"""Names of durations: 00:10:00 is no time of day then."""
_WORDS = "time[ _]?of[ _]?day|datum|date|day|tag|uhrzeit|zeit|time|uhr|clock"
_ENDS = re.compile(rf"^({_WORDS})[ _.-]+|[ _.-]*({_WORDS})$", re.IGNORECASE)
_FIRST_STEMS = ("", "mess", "sample", "start", "begin", "beginn")
"""The stems that the times of samples have, the likeliest first."""
_SHORT, _LONG = 4, 6
"""Digits of a time of day without seconds, and with them."""


@dataclass(frozen=True, slots=True)
class Split:
    """The columns, each date joined with its time of day, and the path of the time of day by that of the date."""

    columns: list[Column]
    clocks: dict[str, str] = field(default_factory=dict)


def join_split(columns: Collection[Column]) -> Split:
    """Join dates and times of day: those of one stem (Startdatum and Startzeit), else the only ones that there are.

    Of several pairs the likeliest stays in its place, the others come last.
    """
    clocks = [column for column in columns if _are_clocks(column) and not _SPAN.search(column.path)]
    dates = [column for column in columns if _are_dates(column)] if clocks else []
    pairs = [(date, clock) for date in dates for clock in clocks if _stem(date.path) == _stem(clock.path)]
    if not pairs and dates and clocks:
        pairs = [(_best(dates), _best(clocks))]
    if not pairs:
        return Split(list(columns))
    pairs = list({id(date): (date, clock) for date, clock in reversed(pairs)}.values())[::-1]  # one for each date
    first = min(pairs, key=lambda pair: _rank(_stem(pair[0].path)))
    joined = {date.path: _joined(date, clock) for date, clock in pairs}
    used = {path for pair in pairs if pair is not first for path in (pair[0].path, pair[1].path)}
    used.add(first[1].path)
    kept = [joined.get(column.path, column) for column in columns if column.path not in used]
    others = [joined[date.path] for date, clock in pairs if (date, clock) != first]
    return Split([*kept, *others], {date.path: clock.path for date, clock in pairs})


def are_dates_or_clocks(column: Column) -> bool:
    """Return whether the values are times, dates or times of day, so that the field is no id."""
    return _are_clocks(column) or bool(formats_of(Column(column.path, values=column.values[:_LOOKED_AT])))


def _stem(path: str) -> str:
    """Return the path without the word for date or time: Start of Startdatum, start_time and Time Start."""
    parent, dot, last = path.rpartition(".")
    return f"{parent}{dot}{_ENDS.sub('', last.strip())}".lower()


def _rank(stem: str) -> int:
    last = stem.rpartition(".")[2]
    return _FIRST_STEMS.index(last) if last in _FIRST_STEMS else len(_FIRST_STEMS)


def _joined(date: Column, clock: Column) -> Column:
    form = "%H%M" if _width(clock) == _SHORT else None
    clocks = clock.by_row
    both = [(row, value) for row, value in zip(date.rows, date.values, strict=True) if row in clocks]
    texts = [join_clock(value, _whole(clocks[row]), form) for row, value in both]
    return Column(date.path, [row for row, _ in both], texts)


def _width(clock: Column) -> int:
    """Return how many digits times of day without a mark have: 6, or 4 without seconds."""
    texts = [str(_whole(value)).strip() for value in clock.values]
    are_digits = all(text.isdecimal() for text in texts)
    return _SHORT if are_digits and all(len(text) <= _SHORT and int(text) <= 2359 for text in texts) else _LONG


def _whole(value: object) -> str | int:
    if type(value) is float and value.is_integer():
        return int(value)
    return value if isinstance(value, (str, int)) else str(value)


def _best(candidates: list[Column]) -> Column:
    """Return the first field with a time's name, else the first one."""
    return next((column for column in candidates if hints(column.path) & TIME), candidates[0])


def _are_clocks(column: Column) -> bool:
    found = column.values[:_LOOKED_AT]
    if found and all(isinstance(value, str) and _CLOCK.fullmatch(value.strip()) for value in found):
        return True
    return bool(_CLOCK_WORD.search(column.path)) and column.varies and _are_digits_of_clocks(column)


def _are_digits_of_clocks(column: Column) -> bool:
    """Return whether all values are hours, minutes and perhaps seconds without a mark, with a clock's steps."""
    texts = [str(_whole(value)).strip() for value in column.values]
    if not all(text.isascii() and text.isdecimal() and len(text) <= _LONG for text in texts):
        return False
    width = _width(column)
    padded = [text.zfill(width) for text in texts]
    parts = [[int(text[at : at + 2]) for at in range(0, len(text), 2)] for text in padded]
    longest = max(map(len, texts))
    return longest > 2 and all(hour < 24 and max(rest) < 60 for hour, *rest in parts)


def _are_dates(column: Column) -> bool:
    """Return whether the texts, or the numbers of a field with a time's name, are dates without a time of day."""
    found = list(islice(column.values, _LOOKED_AT))
    if not found or not all(isinstance(value, (str, int)) for value in found) or any(":" in str(one) for one in found):
        return False
    head = Column(column.path, column.rows[:_LOOKED_AT], found)
    if head.is_numeric and not (hints(column.path) & TIME or _DATE_WORD.search(column.path)):
        return False
    formats = formats_of(head)
    return bool(formats) and not any(_HOURS.search(form) for form in formats)
