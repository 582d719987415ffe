"""Finds the event time among the fields of a sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import Literal

from streamad.commands.init.fields.columns import Column
from streamad.commands.init.fields.names import TIME, hints
from streamad.errors import DecodeError, SourceError
from streamad.ingest.decode_times import TimeReader

TimeUnit = Literal["s", "ms", "us", "ns"]
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


def find_time(columns: Iterable[Column], n_messages: int) -> TimeField:
    """Return the field that most likely holds the event time. Raises SourceError if none can be read."""
    ranked: list[tuple[int, TimeField]] = []
    without_offset: Column | None = None
    for column in columns:
        if len(column.values) < 0.9 * n_messages or column.is_constant_text:
            continue
        named = bool(hints(column.path) & TIME)
        if _all_read(column):
            if isinstance(column.values[0], str) and not column.is_numeric and _is_date(column):
                ranked.append((4 if named else 2, TimeField(column.path)))
                continue
        elif _all_read(column, UTC):
            ranked.append((4 if named else 2, TimeField(column.path, how="dates without a UTC offset", zone="UTC")))
            continue
        elif _is_date(column):
            without_offset = without_offset or column
            continue
        if not column.is_numeric or len(column.numbers) < len(column.values):
            continue
        ranked += _numeric(column, named)
    if not ranked:
        raise SourceError(_no_time(without_offset, columns))
    ranked.sort(key=lambda item: -item[0])
    best = ranked[0][1]
    others = tuple(field.path for rank, field in ranked[1:] if rank > 1)
    return replace(best, others=others)


def _all_read(column: Column, zone: tzinfo | None = None) -> bool:
    reader = TimeReader("s", relative=False, zone=zone)
    try:
        for value in column.values[:200]:
            reader.one(value)
    except DecodeError:
        return False
    return True


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


def _no_time(without_offset: Column | None, columns: Iterable[Column]) -> str:
    if without_offset is not None:
        return (
            f"{without_offset.path} holds times such as {str(without_offset.values[0])[:40]!r}, which are not RFC 3339 "
            "with a UTC offset; write them like 2026-03-01T08:15:30Z or 2026-03-01T09:15:30+01:00"
        )
    names = ", ".join(column.path for column in columns)[:200]
    return (
        f"no field holds the time of the samples (fields: {names}); add one: RFC 3339 with an offset, Unix time, or "
        "seconds since the sequence's start"
    )
