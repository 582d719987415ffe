"""Finds the event time among the fields of a sample."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from itertools import pairwise

from streamad.commands.init.fields.columns import Column
from streamad.commands.init.fields.dates import are_serials, example, formats_of, is_read_by, running_on
from streamad.commands.init.fields.names import TIME, hints
from streamad.commands.init.fields.split_time import join_split
from streamad.errors import DecodeError, SourceError, some_of
from streamad.ingest.decode_times import TimeReader
from streamad.settings.time_format import EXCEL, NAMES, UNIX_UNITS, TimeFormat, TimeUnit

# Unix times from 1990 to 2100, in each unit: the ranges do not overlap.
_EPOCH_UNITS: tuple[tuple[TimeUnit, float], ...] = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
_EPOCH_S = (631_152_000, 4_102_444_800)
_STEPS = frozenset({"sample", "step", "index", "idx", "tick", "row", "n", "i", "no", "nr", "frame"})
_UNITS: dict[str, TimeUnit] = {"ms": "ms", "millis": "ms", "us": "us", "micros": "us", "ns": "ns", "nanos": "ns"}
_DATE = re.compile(r"\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]|$)")


@dataclass(frozen=True, slots=True)
class TimeField:
    """The field of the event time and its form; ``counts``: a number without a date."""

    path: str
    unit: TimeUnit = "s"
    counts: bool = False
    how: str = "RFC 3339"
    others: tuple[str, ...] = ()
    zone: str | None = None
    formats: tuple[str, ...] = ()
    """The formats that read its dates (``decode.time_format``): one of them, once chosen."""
    time_of_day: str | None = None
    """The field of the time of day, if ``path`` holds dates alone."""
    unused: tuple[str, ...] = ()
    """The fields of other dates and times of day."""
    note: str | None = None
    """Why one of several formats was chosen."""

    @property
    def format(self) -> str | None:
        """Return the format of its dates, None for RFC 3339 and numbers."""
        return self.formats[0] if self.formats else None


def find_time(columns: Collection[Column], n_messages: int, wanted: str | None = None) -> TimeField:
    """Return the field that most likely holds the event time; ``wanted`` is the format of its dates, if it is known.

    Dates in one field and times of day in another are read together. Raises SourceError if none can be read, or if
    several formats read its dates.
    """
    split = join_split(columns)
    columns = split.columns
    ranked: list[tuple[int, TimeField]] = []
    without_offset: Column | None = None
    for column in columns:
        if len(column.values) < 0.9 * n_messages or column.is_constant_text:
            continue
        named = bool(hints(column.path) & TIME)
        if wanted is not None:
            ranked += _of_format(column, wanted, named)
            continue
        if _all_read(column):
            if isinstance(column.values[0], str) and not column.is_numeric and _is_date(column):
                ranked.append((4 if named else 2, TimeField(column.path)))
                continue
        elif _all_read(column, UTC):
            ranked.append((4 if named else 2, TimeField(column.path, how="dates without a UTC offset", zone="UTC")))
            continue
        elif dated := _dated(column, named):
            ranked.append(dated)
            continue
        elif _is_date(column):
            without_offset = without_offset or column
            continue
        if not column.is_numeric or len(column.numbers) < len(column.values):
            continue
        if named and are_serials(column):
            ranked.append((3, _field_of(column, (EXCEL,))))
            continue
        ranked += _numeric(column, named)
    if not ranked:
        raise SourceError(_no_time(without_offset, columns, wanted))
    ranked.sort(key=lambda item: -item[0])
    best = ranked[0][1]
    if len(best.formats) > 1:
        best = _decided(best, next(column for column in columns if column.path == best.path))
    clocks = split.clocks
    others = tuple(_both(field.path, clocks) for rank, field in ranked[1:] if rank > 1)
    unused = {path for pair in clocks.items() if pair[0] != best.path for path in pair}
    return replace(best, others=others, unused=tuple(unused), time_of_day=clocks.get(best.path))


def _both(path: str, clocks: Mapping[str, str]) -> str:
    return f"{path} and {clocks[path]}" if path in clocks else path


def _decided(field: TimeField, column: Column) -> TimeField:
    """Return the field with the one format by which its dates run on. Raises SourceError if several do, or none."""
    form = running_on(column, field.formats)
    if form is None:
        raise SourceError(_several(field, column))
    others = some_of([other for other in field.formats if other != form])
    note = (
        f"{field.path} is read as {form}, because its days follow each other so; as {others} they would jump by "
        "months: --time-format chooses"
    )
    return replace(_field_of(column, (form,)), note=note)


def _all_read(column: Column, zone: tzinfo | None = None) -> bool:
    reader = TimeReader("s", relative=False, zone=zone)
    try:
        for value in column.values[:200]:
            reader.one(value)
    except DecodeError:
        return False
    return True


def _dated(column: Column, named: bool) -> tuple[int, TimeField] | None:
    """Return the rank and the field of dates in other formats than RFC 3339; None if no format reads them."""
    formats = formats_of(column) if named or not column.is_numeric else []
    return (4 if named else 2, _field_of(column, tuple(formats))) if formats else None


def _of_format(column: Column, wanted: str, named: bool) -> list[tuple[int, TimeField]]:
    """Return rank and field of a column that the wanted format reads."""
    if wanted in NAMES:
        if not column.is_numeric or len(column.numbers) < len(column.values):
            return []
        if wanted == EXCEL:
            return [(4, _field_of(column, (wanted,)))] if are_serials(column) else []
        unit = UNIX_UNITS[wanted]
        low, high = (second * 10 ** (3 * list(UNIX_UNITS).index(wanted)) for second in _EPOCH_S)
        is_in_range = low <= min(column.numbers) <= max(column.numbers) <= high
        field = TimeField(column.path, unit, how=f"Unix time in {unit}", formats=(wanted,))
        return [(4 if named else 2, field)] if is_in_range else []
    return [(4 if named else 2, _field_of(column, (wanted,)))] if is_read_by(wanted, column) else []


def _field_of(column: Column, formats: tuple[str, ...]) -> TimeField:
    has_offset = formats[0] != EXCEL and TimeFormat(formats[0]).has_offset
    how = f"dates such as {column.values[0]} ({example(formats[0], column.values[0])})"
    return TimeField(column.path, how=how, zone=None if has_offset else "UTC", formats=formats)


def _several(field: TimeField, column: Column) -> str:
    texts = [str(value) for value in column.values]
    text = next((text for text in texts if len({example(form, text) for form in field.formats}) > 1), texts[0])
    readings = " or ".join(f"{example(form, text)} (--time-format '{form}')" for form in field.formats)
    return f"{field.path} holds dates such as {text!r}, which may be {readings}: choose one"


def _is_date(column: Column) -> bool:
    return all(isinstance(value, str) and _DATE.match(value) for value in column.values[:200])


def _numeric(column: Column, named: bool) -> list[tuple[int, TimeField]]:
    lowest, highest = min(column.numbers), max(column.numbers)
    for unit, factor in _EPOCH_UNITS:
        if _EPOCH_S[0] * factor <= lowest < highest <= _EPOCH_S[1] * factor:
            return (
                [(3 if named else 1, TimeField(column.path, unit, how=f"Unix time in {unit}"))]
                if (named or _rises(column.numbers))
                else []
            )
    if lowest < 0 or highest > 1e9 or not _rises(column.numbers):
        return []
    words = hints(column.path)
    unit = next((unit for word, unit in _UNITS.items() if word in words), "s")
    if named:
        return [(2, TimeField(column.path, unit, counts=True, how=f"a number without a date, taken as {unit}"))]
    if words & _STEPS and column.counts_rows:
        return [(0, TimeField(column.path, unit, counts=True, how="counts samples, taken as seconds"))]
    return []


def _rises(numbers: Sequence[float]) -> bool:
    """Return whether the numbers nearly always increase; each sequence may begin at 0."""
    falls = sum(b < a for a, b in pairwise(numbers))
    return falls <= 0.2 * len(numbers) and max(numbers) > min(numbers)


def _no_time(without_offset: Column | None, columns: Collection[Column], wanted: str | None) -> str:
    names = some_of([column.path for column in columns])
    if wanted is not None:
        return f"no field holds dates of --time-format {wanted!r} (fields: {names})"
    if without_offset is not None:
        return (
            f"{without_offset.path} holds times such as {str(without_offset.values[0])[:40]!r}, of an unknown format: "
            "give it with --time-format, in strptime tokens such as '%d.%m.%Y %H:%M:%S' (decode.time_format)"
        )
    return (
        f"no field holds the time of the samples (fields: {names}); add one: RFC 3339, Unix time, seconds since the "
        "sequence's start, or dates of a format that --time-format gives"
    )
