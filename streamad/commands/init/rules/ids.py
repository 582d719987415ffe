"""The rules that find the stream, the sequence id and the end marker among the fields of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Literal, NamedTuple

import numpy as np

from streamad.commands.init.facts.columns import LONGEST_ID, Column
from streamad.commands.init.facts.rows import Rows, changes_of, joined
from streamad.commands.init.facts.words import END, SEQUENCE, STREAM, hints, id_hints, last_part
from streamad.commands.init.rules.channels import is_label
from streamad.commands.init.rules.patterns import TOPICS
from streamad.commands.init.rules.split_time import are_dates_or_clocks
from streamad.errors import some_of
from streamad.types import IntArray

_MOST_STREAMS = 100
_IN_ORDER = 0.01
"""A larger share of rows out of order is no accident."""
KEY = "key"
"""The word of ``decode.fields.stream`` for the key of the records."""
_OF_IDS = frozenset({"id", "no", "nr", "number", "name"})


class Ids(NamedTuple):
    """The fields of the stream, of the sequence and of the end; None (of a sequence ()) if no field holds it."""

    stream: str | None
    sequence: tuple[str, ...]
    end: str | None
    restarts: bool = False
    """No field names a sequence, but its time begins anew."""

    @property
    def paths(self) -> list[str]:
        """Return all the fields."""
        return [path for path in (self.stream, *self.sequence, self.end) if path is not None]


def find_ids(
    columns: Mapping[str, Column],
    notes: list[str],
    rows: Rows,
    key: Column | None = None,
    events: Set[int] = frozenset(),
) -> Ids:
    """Return the fields of the stream, the sequence and the end; guesses are added to ``notes``.

    The fields that change where a counting time begins anew name the sequence. If there are none, names decide, then
    values. A field that never changes is an id by its name only, and only if no other field is one. ``key`` is the key
    of the records, which names the stream where no field does. Of ``events``, the rows that begin and end sequences,
    each may have another id.
    """
    ends = [path for path, column in columns.items() if hints(path) & END and column.is_flag]
    end = _first(ends, columns, "end of a sequence", notes)
    free = {path: column for path, column in columns.items() if path != end and _may_be_id(column, events)}
    restarts = rows.restarts()
    if len(restarts) and (found := _at_restarts(free, restarts, rows, notes)) is not None:
        return found._replace(end=end)
    free = {path: column for path, column in free.items() if not is_label(column)}
    named = [path for path, column in free.items() if _named(path, SEQUENCE, column)]
    sequence = _first(named, free, "sequence id", notes)
    of_sequence = free.pop(sequence or "", None)
    stream = _of_key(key, free, of_sequence, rows, notes) or _stream(free, of_sequence, rows, notes)
    of_stream = key if key is not None and stream == KEY else free.pop(stream or "", None)
    if sequence is None:
        sequence = _sequence_by_values(free, of_stream, rows, notes)
        free.pop(sequence or "", None)
    if sequence is None and stream is None:
        stream, sequence = _both_by_values(free, rows, notes)
    streams = rows.codes(key if stream == KEY else columns.get(stream or ""))
    is_cut_by_time = sequence is None and end is None and len(rows.restarts(streams, in_files=True)) > 0
    if is_cut_by_time:
        notes.append(
            f"the time begins anew {len(rows.restarts(streams))} times, and nothing names the sequences: each begins "
            "there (sequences.end: [restart])"
        )
    return Ids(stream, () if sequence is None else (sequence,), end, is_cut_by_time)


def _at_restarts(free: Mapping[str, Column], restarts: IntArray, rows: Rows, notes: list[str]) -> Ids | None:
    """Return the fields that change only where the time begins anew, and together differ in every such piece."""
    starts = set(restarts.tolist())
    fits = {
        path: column
        for path, column in free.items()
        if len(column) == rows.n and column.varies and starts.issuperset(changes_of(column).tolist())
    }
    chosen: list[Column] = []
    at = np.concatenate([[0], restarts])
    while fits:
        codes = {path: rows.codes(*chosen, column)[at] for path, column in fits.items()}
        most = max(len(np.unique(of)) for of in codes.values())
        if chosen and most == len(np.unique(rows.codes(*chosen)[at])):
            return None
        finest = [path for path, of in codes.items() if len(np.unique(of)) == most]
        best = min(finest, key=lambda path: (not _named(path, SEQUENCE, fits[path]), not _named_id(path)))
        chosen.append(fits.pop(best))
        if most == len(at):
            break
    else:
        return None
    streams = [one.path for one in chosen if len(chosen) > 1 and id_hints(one.path) & STREAM]
    sequence = [one for one in chosen if one.path not in streams[:1]]
    names = " and ".join(one.path for one in chosen)
    notes.append(f"{names} {'changes' if len(chosen) == 1 else 'change'} where the time begins anew: the sequence's id")
    if streams:
        return Ids(streams[0], tuple(one.path for one in sequence), None)
    rest = {path: column for path, column in free.items() if all(path != one.path for one in chosen)}
    named = [path for path, column in rest.items() if _named(path, STREAM, column)]
    stream = _first(named, rest, "stream", notes)
    if stream is not None and rows.disorder(rest[stream], joined(sequence)) > _IN_ORDER:
        stream = None
    return Ids(stream, tuple(sorted((one.path for one in sequence), key=list(free).index)), None)


def _of_key(
    key: Column | None, free: Mapping[str, Column], sequence: Column | None, rows: Rows, notes: list[str]
) -> str | None:
    """Return ``key`` if the records' keys name the stream: no field is named so, and they are no sequence ids."""
    if key is None or len(key.counts) > _MOST_STREAMS or any(_named(path, STREAM, one) for path, one in free.items()):
        return None
    is_copy = sequence is not None and len(np.unique(rows.codes(key, sequence))) == len(key.counts) == len(
        sequence.counts
    )
    if (is_copy and key.varies) or rows.disorder(key, sequence) > _IN_ORDER:
        return None
    notes.append("the records' keys name the stream (decode.fields.stream: key)")
    return KEY


def _stream(free: Mapping[str, Column], sequence: Column | None, rows: Rows, notes: list[str]) -> str | None:
    """Return the field whose values tell streams apart: one named so, else one that ends the sequences' overlap."""
    named = [path for path, column in free.items() if _named(path, STREAM, column)]
    varying = [path for path in named if free[path].varies]
    if len(varying) == 1 and rows.disorder(free[varying[0]], sequence) <= _IN_ORDER:
        return varying[0]
    overlap = rows.disorder(None, sequence)
    if overlap <= _IN_ORDER:
        return _first(named, free, "stream", notes) or _topic(free, notes)
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


def _topic(free: Mapping[str, Column], notes: list[str]) -> str | None:
    """Return a topic that is the same in every row: a second device would have another."""
    topic = next((path for path, column in free.items() if path.lower() in TOPICS and not column.varies), None)
    if topic is not None:
        notes.append(f"{topic} names the stream: another topic would be another stream")
    return topic


def _sequence_by_values(free: Mapping[str, Column], stream: Column | None, rows: Rows, notes: list[str]) -> str | None:
    """Return the first text whose every value is one course without a pause in its stream, else such a number.

    A number must also change in pauses alone: a phase or a set point changes within a course.
    """
    for path, column in free.items():
        is_one = _is_text(column) or (stream is None and column.is_numeric and rows.changes_in_pauses(column))
        if is_one and column.varies and rows.is_continuous(stream, column):
            notes.append(f"{path} was taken for the sequence id by its values")
            return path
    return None


def _both_by_values(free: Mapping[str, Column], rows: Rows, notes: list[str]) -> tuple[str | None, str | None]:
    """Return a text of few values that come back, and one that then names sequences; None for what there is not."""
    streams = [
        path
        for path, column in free.items()
        if _is_text(column) and _may_be_stream(column) and column.n_runs > len(column.counts)
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


def _may_be_id(column: Column, events: Set[int]) -> bool:
    most = len(column) if id_hints(column.path) & SEQUENCE and set(column.rows) <= events else len(column) // 2
    if not column.values or len(column.counts) > max(1, most):
        return False
    if not all(isinstance(value, (str, int, float)) and not isinstance(value, bool) for value in column.values):
        return False
    are_short = all(len(value) <= LONGEST_ID for value in column.values if isinstance(value, str))
    return are_short and (column.is_whole or _named_id(column.path))


def _named_id(path: str) -> bool:
    return bool(hints(path) & _OF_IDS) or last_part(path).lower() in SEQUENCE


def _named(path: str, words: frozenset[str], column: Column) -> bool:
    """Return whether a field has an id's name and its values come in runs, also in those of interleaved streams."""
    if not id_hints(path) & words:
        return False
    if column.is_numeric:  # a reading may be named cycle, or pressure of the press
        come_in_runs = column.n_runs <= len(column) / 2 or _open_at_once(column) <= len(column.counts) / 2
        return _named_id(path) and come_in_runs
    return True


def _open_at_once(column: Column) -> float:
    """Return how many values lie between their first and their last row on average: of ids, one for each stream."""
    codes = column.codes
    n = len(column.texts)
    first, last = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    places = np.arange(len(codes))
    first[codes[::-1]] = places[::-1]
    last[codes] = places
    return float((last - first + 1).sum() / len(codes))


def _first(candidates: Sequence[str], columns: Mapping[str, Column], what: str, notes: list[str]) -> str | None:
    """Return the first candidate with several values, else the first; the others are named in ``notes``."""
    varying = [path for path in candidates if columns[path].varies]
    best = next(iter(varying or candidates), None)
    if len(varying) > 1:
        notes.append(f"{best} was taken for the {what}; {some_of(varying[1:])} would do as well")
    return best
