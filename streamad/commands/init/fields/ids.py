"""Finds the stream id, the sequence id and the end marker among the fields of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from streamad.commands.init.fields.columns import LONGEST_ID, Column, is_number
from streamad.commands.init.fields.names import END, SEQUENCE, STREAM, hints, last_part
from streamad.errors import some_of


class Ids(NamedTuple):
    """The fields of the stream, the sequence and the end; None if no field holds it."""

    stream: str | None
    sequence: str | None
    end: str | None


def find_ids(columns: Mapping[str, Column], notes: list[str]) -> Ids:
    """Return the fields of the stream, the sequence and the end; guesses are added to ``notes``."""
    ends = [path for path, column in columns.items() if hints(path) & END and column.is_flag]
    end = _first(ends, columns, "end of a sequence", notes)
    free = {path: column for path, column in columns.items() if path != end and _may_be_id(column)}
    sequence = _first(
        [path for path, column in free.items() if _named(path, SEQUENCE, column)], free, "sequence id", notes
    )
    free.pop(sequence or "", None)
    streams = [path for path, column in free.items() if _named(path, STREAM, column)]
    stream = _first(streams, free, "stream", notes)
    free.pop(stream or "", None)
    texts = [path for path, column in free.items() if isinstance(column.values[0], str) and not column.is_numeric]
    if sequence is None and texts and stream is None:
        # No name helps: an id of one run of messages is a sequence's, one that comes back is a stream's.
        path = texts[0]
        if runs_in(columns[path]) == len(columns[path].counts) > 1:
            sequence = path
        elif len(columns[path].counts) <= 100:
            stream = path
        if path in (sequence, stream):
            notes.append(f"{path} was taken for the {'sequence id' if path == sequence else 'stream'} by its values")
    return Ids(stream, sequence, end)


def lie_between(n_messages: int, sequences: Mapping[int, object], streams: Mapping[int, object]) -> bool:
    """Return whether the messages without a sequence id lie between two sequences of their stream.

    ``sequences`` and ``streams`` are the ids by row. Messages before the first and after the last sequence may be of
    either kind.
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
                return False  # a hole in a sequence
            found = True
        waiting.discard(stream)
        last[stream] = sequence
    return found


def _may_be_id(column: Column) -> bool:
    repeats = len(column.counts) <= max(1, len(column.values) // 2)
    whole = all(isinstance(value, str) or float(value).is_integer() for value in column.values if is_number(value))
    scalars = all(isinstance(value, (str, int, float)) and not isinstance(value, bool) for value in column.values)
    are_short = all(len(value) <= LONGEST_ID for value in column.values if isinstance(value, str))
    return bool(column.values) and scalars and are_short and repeats and (whole or _named_id(column.path))


def _named_id(path: str) -> bool:
    return bool(hints(path) & {"id", "no", "nr", "number", "name"}) or last_part(path).lower() in SEQUENCE


def _named(path: str, words: frozenset[str], column: Column) -> bool:
    """Return whether a field has an id's name and its values come in runs."""
    if not hints(path) & words:
        return False
    if column.is_numeric:  # a reading may be named cycle, or pressure of the press
        return _named_id(path) and runs_in(column) <= len(column.values) / 2
    return True


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
