"""The rules that find the time of the samples: which field holds it, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, tzinfo

import numpy as np

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.rows import UNREAD, Rows
from streamad.commands.init.facts.words import STREAM, TIME, hints, id_hints, unit_of
from streamad.commands.init.rules.dates import are_serials, example, formats_of, is_read_by, nearly_all, running_on
from streamad.commands.init.rules.epochs import find_epoch, of_epoch, perhaps_fit
from streamad.commands.init.rules.split_time import join_split
from streamad.commands.init.rules.time_field import TimeField, field_of
from streamad.errors import DecodeError, SourceError, some_of
from streamad.ingest.decode_times import TimeReader
from streamad.settings.time_format import NAMES, SERIALS, TimeUnit
from streamad.types import IntArray

_STEPS = frozenset({"sample", "step", "index", "idx", "tick", "row", "n", "i", "no", "nr", "frame", "cycle", "cycles"})
_WORDS_OF_UNITS: dict[TimeUnit, str] = {
    "ms": "ms msec msecs millis milliseconds millitm",
    "us": "us µs usec micros microseconds fine",
    "ns": "ns nsec nanos nanoseconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours std stunden",
    "d": "d day days tage",
}
_RECEIPT = frozenset(
    ["mqtt", "received", "receipt", "recv", "arrival", "arrived", "ingested", "ingestion", "empfangen"]
)
_UNITS = {word: unit for unit, words in _WORDS_OF_UNITS.items() for word in words.split()}
_TIME_UNITS = _UNITS.keys() | {"s", "sec", "secs", "second", "seconds"}
_ENDS: dict[TimeUnit, float] = {"ms": 1e3, "us": 1e6, "ns": 1e9}
_SUBSECOND = {word: (unit, _ENDS[unit]) for word, unit in _UNITS.items() if unit in _ENDS}
_DATE = re.compile(r"\s*(\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]|$)|\\?/Date\()")
_LOOKED_AT = 200
_COUNTER_END = 2**32
_LONGEST_COUNT = 1e9
_FEWEST_STEPS = 20


def find_times(
    columns: Collection[Column],
    n_messages: int,
    wanted: str | None = None,
    watched: Callable[[Collection[Column]], Iterable[Column]] = iter,
) -> list[TimeField]:
    """Return the fields that may hold the event time, the likeliest first; [] if there is none.

    ``wanted`` is the format of its dates, if it is known. Dates in one field and times of day in another are read
    together. ``watched`` yields the columns. Raises SourceError if fields look like times but cannot be read, or if
    several formats read the dates.
    """
    split = join_split(columns)
    columns = split.columns
    ranked: list[tuple[int, TimeField]] = []
    unread: Column | None = None
    streams = [column for column in columns if id_hints(column.path) & STREAM and not column.is_numeric]
    for column in watched(columns):
        if len(column) < 0.9 * n_messages or not column.values or (len(column) > 1 and not column.varies):
            continue
        found = _of_format(column, wanted) if wanted is not None else _readings(column, streams)
        ranked += found
        if wanted is None and not found and _is_date(column):
            unread = unread or column
    if not ranked:
        if wanted is not None:
            raise SourceError(f"no field holds dates of --time-format {wanted!r} (fields: {_names(columns)})")
        if unread is not None:
            raise SourceError(
                f"{of_unknown_format(unread)}: give it with --time-format, in strptime tokens such as "
                "'%d.%m.%Y %H:%M:%S' (decode.time_format)"
            )
        return []
    ranked.sort(key=lambda item: -item[0])
    ranked = _sent_first(ranked)
    by_path = {column.path: column for column in columns}
    fields = [replace(one, time_of_day=split.clocks.get(one.path)) for _, one in ranked]
    best = fields[0]
    if len(best.formats) > 1:
        best = _decided(best, by_path[best.path])
    best = perhaps_fit(best, by_path) if wanted is None else best
    others = tuple(one.title for (rank, _), one in zip(ranked[1:], fields[1:], strict=True) if rank > 1)
    unused = {path for pair in split.clocks.items() if pair[0] != best.path for path in pair}
    best = replace(best, others=others, unused=tuple(unused), time_of_day=split.clocks.get(best.path))
    return [best, *(one for one in fields[1:] if len(one.formats) < 2)]


def _sent_first(ranked: list[tuple[int, TimeField]]) -> list[tuple[int, TimeField]]:
    """Return the ranked fields, times of receipt behind those that the senders gave."""
    received = [item for item in ranked if hints(item[1].path) & _RECEIPT]
    sent = [item for item in ranked if item not in received and item[0] > 1 and not item[1].counts]
    return (
        [*sent, *received, *(item for item in ranked if item not in sent and item not in received)] if sent else ranked
    )


def no_time(columns: Collection[Column]) -> str:
    """Return what to say where no field holds a time and rows cannot be one."""
    return (
        f"no field holds the time of the samples (fields: {_names(columns)}); add one: RFC 3339, Unix time, seconds "
        "since the sequence's start, or dates of a format that --time-format gives"
    )


def of_unknown_format(column: Column) -> str:
    """Return what to say of a field of times that nothing reads."""
    return f"{column.path} holds times such as {str(column.values[0])[:40]!r}, of an unknown format"


def _names(columns: Collection[Column]) -> str:
    return some_of([column.path for column in columns])


def times_of(time: TimeField, columns: Mapping[str, Column], n_rows: int) -> IntArray:
    """Return the time of each row in microseconds, int64 [n_rows], ``UNREAD`` where it cannot be read."""
    found = np.full(n_rows, UNREAD, dtype=np.int64)
    if time.row_period_us is not None:
        return np.arange(n_rows, dtype=np.int64) * time.row_period_us
    column = columns[time.path]
    if time.time_of_day is not None:
        column = next(one for one in join_split([columns[path] for path in time.paths[:2]]).columns if one.values)
    zone = None if time.zone is None else UTC
    reader = TimeReader(time.unit, relative=time.counts, zone=zone, form=time.format, numerals=column.marks.numerals)
    known: dict[object, int] = {}
    for row, value in zip(column.rows, column.values, strict=True):
        key = value if isinstance(value, (str, int, float)) else str(value)
        if key not in known:
            known[key] = _time_us(value, reader)
        found[row] = known[key]
    if time.fraction is not None:
        path, unit = time.fraction
        beside = columns[path]
        kept = ~np.isnan(beside.cells)
        rows = np.array(beside.rows, dtype=np.int64)[kept]
        rows, parts = rows[found[rows] != UNREAD], beside.cells[kept][found[rows] != UNREAD]
        found[rows] += np.rint(parts * 1e6 / _ENDS[unit]).astype(np.int64)
    if time.step is not None and time.step.path in columns:
        beside = columns[time.step.path]  # holds the distance from the first sample of the list: see ``with_steps``
        rows = np.array(beside.rows, dtype=np.int64)[found[beside.rows] != UNREAD]
        found[rows] += np.rint(beside.cells[found[beside.rows] != UNREAD]).astype(np.int64)
    return found


def _time_us(value: object, reader: TimeReader) -> int:
    try:
        return reader.one(value)
    except DecodeError:
        return int(UNREAD)


# --- how one field may be read ---


def _readings(column: Column, streams: Collection[Column]) -> list[tuple[int, TimeField]]:
    """Return the ways to read a field as a time, each with a rank: 4 for a named date, 1 for a likely number."""
    named = bool(hints(column.path) & TIME) or _unit_word(column) in _TIME_UNITS
    dated = _dated(column, named)
    if dated is not None:
        return [(4 if named else 2, dated)]
    if not column.is_numeric and _all_read(column, relative=True):
        how = f"times since a start, such as {column.texts[0]}"
        return [(3 if named else 2, TimeField(column.path, counts=True, how=how, is_elapsed=True))]
    if not column.is_all_numbers:
        return []
    serials = [form for form, factor in SERIALS.items() if (named or factor > 1) and are_serials(column, factor)]
    return [(3, field_of(column, (serials[0],)))] if serials else _numeric(column, streams, named)


def _dated(column: Column, named: bool) -> TimeField | None:
    """Return the field as dates; None if it holds none."""
    if _all_read(column):
        is_text = isinstance(column.values[0], str) and not column.is_numeric and _is_date(column)
        how = "RFC 3339" if "Date(" not in str(column.values[0]) else "/Date(ms)/, Unix time in ms"
        return TimeField(column.path, how=how) if is_text else None
    if _all_read(column, UTC):
        return TimeField(column.path, how="dates without a UTC offset", zone="UTC")
    formats = formats_of(column) if named or not column.is_numeric else []
    return field_of(column, tuple(formats)) if formats else None


def _all_read(column: Column, zone: tzinfo | None = None, *, relative: bool = False) -> bool:
    """Return whether nearly all values are such times."""
    reader = TimeReader("s", relative=relative, zone=zone, numerals=column.marks.numerals)
    return nearly_all(column.values[:_LOOKED_AT], lambda value: _time_us(value, reader) != UNREAD)


def _is_date(column: Column) -> bool:
    return nearly_all(column.values[:_LOOKED_AT], lambda value: isinstance(value, str) and bool(_DATE.match(value)))


def _of_format(column: Column, wanted: str) -> list[tuple[int, TimeField]]:
    """Return rank and field of a column that the wanted format reads."""
    rank = 4 if hints(column.path) & TIME else 2
    if wanted not in NAMES:
        return [(rank, field_of(column, (wanted,)))] if is_read_by(wanted, column) else []
    if not column.is_all_numbers:
        return []
    if wanted in SERIALS:
        return [(4, field_of(column, (wanted,)))] if are_serials(column, SERIALS[wanted]) else []
    found = of_epoch(column, wanted)
    return [] if found is None else [(rank, found)]


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
    return replace(field_of(column, (form,)), note=note)


def _several(field: TimeField, column: Column) -> str:
    texts = [str(value) for value in column.values]
    text = next((text for text in texts if len({example(form, text) for form in field.formats}) > 1), texts[0])
    readings = " or ".join(f"{example(form, text)} (--time-format '{form}')" for form in field.formats)
    return f"{field.path} holds dates such as {text!r}, which may be {readings}: choose one"


def _numeric(column: Column, streams: Collection[Column], named: bool) -> list[tuple[int, TimeField]]:
    lowest, highest = column.numbers.min(), column.numbers.max()
    if counter := _counter(column, named):
        return [(2, counter)]
    if (dated := find_epoch(column)) is not None:
        return [(3 if named else 1, dated)] if named or column.rises(streams) else []
    if highest > _LONGEST_COUNT or not column.rises(streams) or (lowest < 0 and not named):
        return []
    words, unit = hints(column.path), _unit(column)
    if not named and words & _STEPS and column.counts_rows:
        return [(0, TimeField(column.path, unit, counts=True, how="counts samples, taken as seconds"))]
    if not named and (not words & set(_SUBSECOND) or _is_fraction(column)):
        return []
    how = f"a number without a date, taken as {unit}"
    return [(2 if named else 1, TimeField(column.path, unit, counts=True, how=how, is_elapsed=bool(lowest < 0)))]


def _unit_word(column: Column) -> str:
    """Return the unit that the table or the name of a column states, in lower case; an empty text if none does."""
    return (column.unit or unit_of(column.path)).lower()


def _unit(column: Column) -> TimeUnit:
    stated = _unit_word(column)
    words = {stated} if stated else hints(column.path)
    return next((unit for word, unit in _UNITS.items() if word in words), "s")


def _counter(column: Column, named: bool) -> TimeField | None:
    """Return the time of a counter of microseconds with 32 bits: its steps are equal, and no round seconds."""
    if not named or not column.is_whole or not 0 <= column.numbers.min() <= column.numbers.max() < _COUNTER_END:
        return None
    steps = np.diff(column.numbers) % _COUNTER_END
    if len(steps) < 2 or column.numbers.max() < _LONGEST_COUNT:
        return None
    usual = float(np.median(steps))
    is_even = np.mean(np.abs(steps - usual) <= 0.01 * usual + 1) > 0.9
    if usual < 1_000 or usual % 60 == 0 or not is_even:
        return None
    how = "a counter of microseconds with 32 bits"
    return TimeField(column.path, "us", counts=True, how=how, step_us=round(usual))


def even_clocks(columns: Collection[Column], places: IntArray) -> list[TimeField]:
    """Return fields of any name whose numbers rise by equal steps within each of the files ``places``, as a clock does.

    They are the time where no other field can be one. Those that count rows come last.
    """
    found: list[tuple[bool, TimeField]] = []
    for column in columns:
        if not column.is_all_numbers or len(column) != len(places) or len(column) < _FEWEST_STEPS:
            continue
        steps = np.diff(column.cells)[np.diff(places) == 0]
        usual = float(np.median(steps)) if len(steps) else 0.0
        if usual <= 0 or np.mean(np.abs(steps - usual) <= 0.01 * usual) < 0.9:
            continue
        unit = _unit(column)
        note = f"{column.path} is taken for the time, because it rises by equal steps: in {unit} (decode.time_unit)"
        how = f"a number without a date, taken as {unit}"
        is_elapsed = bool(column.numbers.min() < 0)
        time = TimeField(column.path, unit, counts=True, how=how, note=note, is_elapsed=is_elapsed)
        found.append((column.counts_rows, time))
    return [time for _, time in sorted(found, key=lambda item: item[0])]


# --- a finer time beside one that is too coarse ---


def with_parts(time: TimeField, columns: Mapping[str, Column], rows: Rows, notes: list[str]) -> TimeField:
    """Return a time of whole seconds with the parts of a second, if a field's name says nothing but that."""
    known = rows.times_us[rows.times_us != UNREAD]
    if time.counts or (known % 1_000_000).any():
        return time
    for other in finer(time, (), columns):
        if hints(other.paths[-1]) <= TIME | set(_SUBSECOND):
            notes.append(f"{other.paths[-1]} holds the parts of a second that {time.title} does not show: joined")
            return other
    return time


def finer(time: TimeField, candidates: Collection[TimeField], columns: Mapping[str, Column]) -> list[TimeField]:
    """Return other readings of a time that samples share: with the parts of a second beside it, or another field."""
    found = []
    if time.fraction is None and not time.counts:
        found = [
            replace(time, fraction=(path, _SUBSECOND[word][0]))
            for path, column in columns.items()
            if path not in time.paths and _is_fraction(column)
            for word in sorted(hints(path) & set(_SUBSECOND))[:1]
        ]
    rest = [one for one in candidates if one.path not in time.paths]
    return [*found, *sorted(rest, key=lambda one: one.counts)]


def _is_fraction(column: Column) -> bool:
    """Return whether a field is named by a unit below a second and holds whole numbers of it below one second."""
    ends = [_SUBSECOND[word][1] for word in hints(column.path) & set(_SUBSECOND)]
    if not ends or not column.values:
        return False
    numbers = [
        float(text) if (text := str(value).strip()).isdecimal() else column.number(value) for value in column.values
    ]
    return all(number is not None and 0 <= number < max(ends) and number == int(number) for number in numbers)
