"""Finds dates and times of day that lie in two fields, and joins them as the decoder does."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import islice

from streamad.commands.init.fields.columns import Column
from streamad.commands.init.fields.dates import formats_of
from streamad.commands.init.fields.names import TIME, hints

_LOOKED_AT = 200
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp]\.?[Mm]\.?)?")
_HOURS = re.compile("%[HIT]")


def join_split(columns: Collection[Column]) -> tuple[list[Column], str | None, str | None]:
    """Return the columns, dates and times of day as one, and the paths of both; None, None if there are none."""
    clock = _best([column for column in columns if _are_clocks(column)])
    date = None if clock is None else _best([column for column in columns if _are_dates(column)])
    if clock is None or date is None:
        return list(columns), None, None
    clocks = dict(zip(clock.rows, clock.values, strict=True))
    both = [(row, value) for row, value in zip(date.rows, date.values, strict=True) if row in clocks]
    joined = Column(date.path, [row for row, _ in both], [f"{value} {clocks[row]}".strip() for row, value in both])
    return [joined if column is date else column for column in columns if column is not clock], date.path, clock.path


def are_dates_or_clocks(column: Column) -> bool:
    """Return whether the values are times, dates or times of day, so that the field is no id."""
    return _are_clocks(column) or bool(formats_of(Column(column.path, values=column.values[:_LOOKED_AT])))


def _best(candidates: list[Column]) -> Column | None:
    """Return the first field with a time's name, else the first one."""
    return next((column for column in candidates if hints(column.path) & TIME), next(iter(candidates), None))


def _are_clocks(column: Column) -> bool:
    found = column.values[:_LOOKED_AT]
    return bool(found) and all(isinstance(value, str) and _CLOCK.fullmatch(value.strip()) for value in found)


def _are_dates(column: Column) -> bool:
    """Return whether the texts, or the numbers of a field with a time's name, are dates without a time of day."""
    found = list(islice(column.values, _LOOKED_AT))
    kinds = (str, int) if hints(column.path) & TIME else (str,)
    if not found or not all(isinstance(value, kinds) for value in found) or any(":" in str(value) for value in found):
        return False
    formats = formats_of(Column(column.path, column.rows[:_LOOKED_AT], found))
    return bool(formats) and not any(_HOURS.search(form) for form in formats)
