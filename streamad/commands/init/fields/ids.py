"""Finds the stream id, the sequence id and the end marker among the fields of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from streamad.commands.init.fields.columns import LONGEST_ID, Column, is_number
from streamad.commands.init.fields.names import END, SEQUENCE, STREAM, hints, id_hints, last_part
from streamad.commands.init.fields.row_order import RowOrder
from streamad.commands.init.fields.split_time import are_dates_or_clocks
from streamad.errors import some_of

_MOST_STREAMS = 100
_IN_ORDER = 0.01
"""A larger share of rows out of order is no accident."""
_OF_IDS = frozenset({"id", "no", "nr", "number", "name"})


class Ids(NamedTuple):
    """The fields of the stream, the sequence and the end; None if no field holds it."""

    stream: str | None
    sequence: str | None
    end: str | None


def find_ids(columns: Mapping[str, Column], notes: list[str], rows: RowOrder) -> Ids:
    """Return the fields of the stream, the sequence and the end; guesses are added to ``notes``.

    A field that never changes is an id by its name only, and only if no other field is one.
    """
    ends = [path for path, column in columns.items() if hints(path) & END and column.is_flag]
    end = _first(ends, columns, "end of a sequence", notes)
    free = {path: column for path, column in columns.items() if path != end and _may_be_id(column)}
    sequence = _first(
        [path for path, column in free.items() if _named(path, SEQUENCE, column)], free, "sequence id", notes
    )
    of_sequence = free.pop(sequence or "", None)
    stream = _stream(free, of_sequence, rows, notes)
    of_stream = free.pop(stream or "", None)
    if sequence is None:
        sequence = _sequence_by_values(free, of_stream, rows, notes)
        free.pop(sequence or "", None)
    if sequence is None and stream is None:
        stream, sequence = _both_by_values(free, rows, notes)
    return Ids(stream, sequence, end)


def _stream(free: Mapping[str, Column], sequence: Column | None, rows: RowOrder, notes: list[str]) -> str | None:
    """Return the field whose values tell streams apart: one named so, else one that ends the sequences' overlap."""
    named = [path for path, column in free.items() if _named(path, STREAM, column)]
    varying = [path for path in named if _varies(free[path])]
    if len(varying) == 1 and rows.disorder(free[varying[0]], sequence) <= _IN_ORDER:
        return varying[0]
    overlap = rows.disorder(None, sequence)
    if overlap <= _IN_ORDER:
        return _first(named, free, "stream", notes)
    most = max(_IN_ORDER, overlap / 10)
    in_order = [path for path in varying if rows.disorder(free[path], sequence) <= most]
    if in_order:
        return _first(in_order, free, "stream", notes)
    others = [path for path, column in free.items() if path not in named and _may_be_stream(column)]
    in_order = [path for path in others if rows.disorder(free[path], sequence) <= most]
    if not in_order:
        return _first(named, free, "stream", notes)
    best = min(in_order, key=lambda path: (free[path].is_numeric, len(free[path].counts)))
    rest = [path for path in in_order if path != best]
    also = f"; {some_of(rest)} would do as well" if rest else ""
    notes.append(f"{best} was taken for the stream, because its values tell overlapping sequences apart{also}")
    return best


def _sequence_by_values(
    free: Mapping[str, Column], stream: Column | None, rows: RowOrder, notes: list[str]
) -> str | None:
    """Return the first text whose every value is one course without a pause in its stream."""
    for path, column in free.items():
        if _is_text(column) and _varies(column) and rows.is_continuous(stream, column):
            notes.append(f"{path} was taken for the sequence id by its values")
            return path
    return None


def _both_by_values(free: Mapping[str, Column], rows: RowOrder, notes: list[str]) -> tuple[str | None, str | None]:
    """Return a text of few values that come back, and one that then names sequences; None for what there is not."""
    streams = [
        path
        for path, column in free.items()
        if _is_text(column) and _may_be_stream(column) and runs_in(column) > len(column.counts)
    ]
    for path in streams:
        finer = {name: of for name, of in free.items() if len(of.counts) > len(free[path].counts)}
        found: list[str] = []
        sequence = _sequence_by_values(finer, free[path], rows, found)
        if sequence is not None:
            notes += [f"{path} was taken for the stream by its values", *found]
            return path, sequence
    if streams:
        notes.append(f"{streams[0]} was taken for the stream by its values")
    return next(iter(streams), None), None


def _varies(column: Column) -> bool:
    return len(column.counts) > 1


def _is_text(column: Column) -> bool:
    return isinstance(column.values[0], str) and not column.is_numeric and not are_dates_or_clocks(column)


def _may_be_stream(column: Column) -> bool:
    return 1 < len(column.counts) <= _MOST_STREAMS and not are_dates_or_clocks(column)


def place_of_missing(
    n_messages: int, sequences: Mapping[int, object], streams: Mapping[int, object]
) -> Literal["between", "inside", "outside"]:
    """Return where the messages without a sequence id lie: between two sequences of their stream, or inside one.

    ``sequences`` and ``streams`` are the ids by row. Messages before the first and after the last sequence are outside,
    which tells nothing.
    """
    last: dict[object, object] = {}
    waiting: set[object] = set()
    found = False
    for row in range(n_messages):
        stream, sequence = streams.get(row), sequences.get(row)
        if sequence is None:
            waiting.add(stream)
            continue
        if stream in waiting and stream in last:
            if last[stream] == sequence:
                return "inside"
            found = True
        waiting.discard(stream)
        last[stream] = sequence
    return "between" if found else "outside"


def _may_be_id(column: Column) -> bool:
    repeats = len(column.counts) <= max(1, len(column.values) // 2)
    whole = all(isinstance(value, str) or float(value).is_integer() for value in column.values if is_number(value))
    scalars = all(isinstance(value, (str, int, float)) and not isinstance(value, bool) for value in column.values)
    are_short = all(len(value) <= LONGEST_ID for value in column.values if isinstance(value, str))
    return bool(column.values) and scalars and are_short and repeats and (whole or _named_id(column.path))


def _named_id(path: str) -> bool:
    return bool(hints(path) & _OF_IDS) or last_part(path).lower() in SEQUENCE


def _named(path: str, words: frozenset[str], column: Column) -> bool:
    """Return whether a field has an id's name and its values come in runs, also in those of interleaved streams."""
    if not id_hints(path) & words:
        return False
    if column.is_numeric:  # a reading may be named cycle, or pressure of the press
        come_in_runs = runs_in(column) <= len(column.values) / 2 or _open_at_once(column) <= len(column.counts) / 2
        return _named_id(path) and come_in_runs
    return True


def _open_at_once(column: Column) -> float:
    """Return how many values lie between their first and their last row on average: of ids, one for each stream."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for row, value in enumerate(map(str, column.values)):
        first.setdefault(value, row)
        last[value] = row
    return sum(last[value] - first[value] + 1 for value in first) / len(column.values)


def runs_in(column: Column) -> int:
    """Return the number of runs of equal values."""
    texts = [str(value) for value in column.values]
    return 1 + sum(a != b for a, b in pairwise(texts))


def _first(candidates: Sequence[str], columns: Mapping[str, Column], what: str, notes: list[str]) -> str | None:
    """Return the first candidate with several values, else the first; the others are named in ``notes``."""
    varying = [path for path in candidates if len(columns[path].counts) > 1]
    best = next(iter(varying or candidates), None)
    if len(varying) > 1:
        notes.append(f"{best} was taken for the {what}; {some_of(varying[1:])} would do as well")
    return best
