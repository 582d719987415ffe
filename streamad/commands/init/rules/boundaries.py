"""Rules: fields whose words begin and end batches, and fields or tags with the state of the machine or the id."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from streamad.commands.init.facts.columns import TRUE, Column
from streamad.commands.init.facts.rows import Rows
from streamad.commands.init.facts.words import SEQUENCE, STREAM, hints, id_hints
from streamad.language import percent
from streamad.types import IntArray

_BEGIN = re.compile(r"(?:[a-z0-9]+[ _.-])*(?:start|started|begin|begins|begun|open|opened)", re.IGNORECASE)
_END = re.compile(
    r"(?:[a-z0-9]+[ _.-])*(?:end|ended|ends|stop|stopped|finish|finished|complete|completed|close|closed)",
    re.IGNORECASE,
)
_OF_BATCH = re.compile(r"(?:(?:batch|lot|order|cycle|run|job)[ _.-])?[a-z]+", re.IGNORECASE)
"""A word with another one before it, such as dosing_start, is of a phase."""
_RUNS = re.compile(
    r"run|runs|running|run[ _]?mode|prod|production|producing|active|busy|working|in[ _]?cycle", re.IGNORECASE
)
_RESTS = re.compile(
    r"idle|off|wait|waiting|standby|stand[ _-]?by|stop|stopped|ready|pause|paused|setup|down|empty|clean|cleaning|maint"
    r"|maintenance",
    re.IGNORECASE,
)
_STATE = frozenset({"state", "mode", "phase", "status", "zustand", "modus", "betriebsart"})
_FLAG = frozenset({"run", "running", "active", "producing"})
_BESIDE = STREAM | SEQUENCE | {"in", "is", "process", "production", "operation", "operating", "current"}
"""Words beside these that name no part of the machine: a valve_state is no state of the batch."""
_MOST_WORDS = 12
_MOST_EVENTS = 0.2
"""Share of messages with a begin or end word."""
_FEWEST_RUNS, _FEWEST_TOGETHER = 5, 5


class Words(NamedTuple):
    """A field of events, and its words that begin and end a batch; () for none."""

    path: str
    begins: tuple[str, ...]
    ends: tuple[str, ...]

    def rows(self, column: Column) -> set[int]:
        """Return the rows in which the field holds one of the words."""
        return _rows_of(column, (*self.begins, *self.ends))

    def note(self, outside: float) -> str:
        """Return the guess, the share of samples that lie ``outside``, and the alternative."""
        parts = [f"{_some(self.begins)} begins"] * bool(self.begins) + [f"{_some(self.ends)} ends"] * bool(self.ends)
        return (
            f"{self.path}: {' and '.join(parts)} a batch (decode.fields.{'begin' if self.begins else 'end'})"
            f"{_lie(outside)}; if its words are something else, leave them out and {_OTHERWISE}"
        )


class State(NamedTuple):
    """A field, or a tag, with the state of the machine, the words of a running batch, and the others."""

    path: str
    runs: tuple[str | bool | int, ...]
    others: tuple[str | bool | int, ...]
    is_tag: bool = False

    @property
    def said(self) -> str:
        """Return the words of a running batch, for people."""
        return _some(self.runs)

    def note(self, outside: float) -> str:
        """Return the guess, the share of samples that lie ``outside``, and the alternative."""
        how = "" if self.is_tag else " in runs of many samples"
        return (
            f"{self.path} holds {_some(self.runs)}{how}, {_some(self.others)} between them: a sequence is such a run "
            f"(sequences.while){_lie(outside)}; if they belong to batches, add their states to the list, or leave it "
            f"out and {_OTHERWISE}"
        )


_FEW_OUTSIDE = 0.005
_OTHERWISE = "name an id (decode.fields.sequence) or write sequences.end: [gap]"


def _lie(outside: float) -> str:
    return f"; {percent(outside)} of the samples lie outside and are left out" if outside >= _FEW_OUTSIDE else ""


def _some(words: Sequence[str | bool | int]) -> str:
    return " or ".join(str(word).lower() if isinstance(word, bool) else str(word) for word in words)


def find_words(columns: Mapping[str, Column], n: int) -> Words | None:
    """Return the field with words that end batches, and perhaps begin them; None if there is none."""
    for path, column in columns.items():
        if column.is_numeric or not 1 <= len(column.counts) <= _MOST_WORDS:
            continue
        begins = tuple(text for text in column.texts if _BEGIN.fullmatch(text))
        ends = tuple(text for text in column.texts if _END.fullmatch(text))
        n_begins = sum(column.counts[text] for text in begins)
        n_ends = sum(column.counts[text] for text in ends)
        if not ends or n_ends < 2 or n_begins + n_ends > _MOST_EVENTS * n:
            continue
        if begins and not 0.5 <= n_begins / n_ends <= 2:
            continue
        if _comes_alone(column, {*begins, *ends}):
            return Words(path, begins, ends)
    return None


def _comes_alone(column: Column, words: set[str]) -> bool:
    """Return whether such words seldom follow each other at once: a state that lasts is no event."""
    rows = [row for row, value in zip(column.rows, column.values, strict=True) if str(value).strip() in words]
    pairs = sum(later == row + 1 for row, later in pairwise(rows))
    return 2 * pairs <= len(rows)


def are_needed(words: Words, column: Column, named: Container[int], rows: Rows, streams: IntArray) -> bool:
    """Return whether words cut what nothing else does: most samples have no id, and pauses lie where the words do.

    ``named`` are the rows with an id, ``streams`` the number of each row's stream, int64 [n].
    """
    if not all(_OF_BATCH.fullmatch(word) for word in (*words.begins, *words.ends)):
        return False
    begins, ends = (_rows_of(column, of) for of in (words.begins, words.ends))
    samples = [row for row in range(rows.n) if row not in begins | ends]
    if 2 * sum(row in named for row in samples) > len(samples):
        return False
    before, after = (of.tolist() for of in rows.pauses(streams))
    n_agree = sum(last in ends or first in begins for last, first in zip(before, after, strict=True))
    return 2 * len(before) < len(ends) or 2 * n_agree >= len(before)


def share_outside(found: Words | State, column: Column, stream: Column | None, n: int) -> float:
    """Return the share of ``n`` rows that lie between two batches; what a row says holds for its stream's next ones."""
    if isinstance(found, Words) and not found.begins:
        return 0.0
    begins = found.begins if isinstance(found, Words) else found.runs
    on = _rows_of(column, begins)
    off = _rows_of(column, found.ends) if isinstance(found, Words) else {*column.rows} - on
    of_row = {} if stream is None else stream.by_row
    are_on: dict[str, bool] = {}
    n_outside = 0
    for row in range(n):
        name = str(of_row.get(row))
        are_on[name] = row in on or (are_on.get(name, False) and row not in off)
        n_outside += not are_on[name] and not (isinstance(found, Words) and row in off)
    return n_outside / max(1, n)


def _rows_of(column: Column, words: Sequence[str | bool | int]) -> set[int]:
    """Return the rows in which a column holds one of ``words``."""
    texts = {str(word) for word in words}
    return {row for row, value in zip(column.rows, column.values, strict=True) if str(value).strip() in texts}


def find_state(columns: Mapping[str, Column], stream: Column | None, rows: Rows) -> State | None:
    """Return the field whose states, in long runs of each stream, say when a batch runs; None if there is none.

    There is none either where pauses cut already.
    """
    n_pauses = len(rows.pauses(rows.codes(stream))[0])
    for path, column in columns.items():
        if len(column) < rows.n or not 2 <= len(column.counts) <= _MOST_WORDS:
            continue
        runs = _true_of(column) if is_run_flag(column) else _runs_of(column)
        texts = {str(word) for word in runs}
        n_runs = _n_runs(column, stream, texts) if runs and len(texts) < len(column.texts) else 0
        if n_runs >= _FEWEST_RUNS and 2 * n_pauses < n_runs:
            return State(path, runs, tuple(value for value in _different(column) if str(value) not in texts))
    return None


def is_run_flag(column: Column) -> bool:
    """Return whether a column of two values is named as one that is true, again and again, while a batch runs."""
    words = hints(column.path)
    is_named = bool(words & _FLAG or ("in" in words and words & SEQUENCE)) and words <= _FLAG | _BESIDE
    return is_named and column.is_two_valued and len(column.counts) == 2 and column.n_runs >= 2 * _FEWEST_RUNS


def _true_of(column: Column) -> tuple[str | bool | int, ...]:
    """Return the value of a flag that means true, as the messages write it."""
    return tuple(value for value in _different(column) if str(value).lower() in TRUE)


def _different(column: Column) -> list[str | bool | int]:
    """Return the different values as the messages write them."""
    return [
        *{(text := str(value).strip()): text if isinstance(value, str) else value for value in column.values}.values()
    ]


def _runs_of(column: Column) -> tuple[str, ...]:
    """Return the words of a running batch; without such a word, those of a state that are no rest."""
    if column.is_numeric:
        return ()
    runs = tuple(text for text in column.texts if _RUNS.fullmatch(text))
    rests = [text for text in column.texts if _RESTS.fullmatch(text)]
    is_state = _is_state(column.path) and bool(rests)
    return runs or tuple(text for text in column.texts if is_state and text not in rests)


def _is_state(path: str) -> bool:
    """Return whether a field or tag is named as the state of the machine or of the batch, not of a part of it."""
    words = hints(path)
    return bool(words & _STATE) and words <= _STATE | _BESIDE


def find_id_tag(readings: Mapping[str, Column], stream: Column | None) -> str | None:
    """Return the tag whose readings name batches: it is called so, and each id has one stretch of its stream."""
    for tag, column in readings.items():
        if column.is_id and len(column.counts) > 1 and id_hints(tag) & SEQUENCE:
            streams = _by_stream(column, stream)
            if all(len([*groupby(texts)]) == len({*texts}) for texts in streams):
                return tag
    return None


def find_state_tag(readings: Mapping[str, Column], stream: Column | None) -> State | None:
    """Return the tag whose readings say when a batch runs, by words that mean it; None if there is none."""
    for tag, column in readings.items():
        runs = tuple(text for text in column.texts if _RUNS.fullmatch(text))
        if column.is_numeric or not runs or not _is_state(tag) or not len(runs) < len(column.counts) <= _MOST_WORDS:
            continue
        n = sum(text in runs for of_stream in _by_stream(column, stream) for text, _ in groupby(of_stream))
        if n >= _FEWEST_RUNS:
            return State(tag, runs, tuple(text for text in column.texts if text not in runs), is_tag=True)
    return None


def says_the_same(column: Column, state: Column) -> bool:
    """Return whether a column has one value in each state, as a flag beside it."""
    found = zip(column.rows, column.codes.tolist(), strict=True)
    of_state: dict[str, set[int]] = {}
    for row, code in found:
        of_state.setdefault(str(state.by_row.get(row)), set()).add(code)
    return len(column.counts) > 1 and all(len(codes) == 1 for codes in of_state.values())


def _n_runs(column: Column, stream: Column | None, runs: Container[str]) -> int:
    """Return in how many runs samples of these states come, one after the other in a stream; 0 if these are short."""
    pieces = (groupby(texts, key=runs.__contains__) for texts in _by_stream(column, stream))
    lengths = [len([*texts]) for of_stream in pieces for is_on, texts in of_stream if is_on]
    return len(lengths) if lengths and float(np.median(lengths)) >= _FEWEST_TOGETHER else 0


def _by_stream(column: Column, stream: Column | None) -> list[list[str]]:
    """Return the values of each stream as texts, in order."""
    of_row = {} if stream is None else stream.by_row
    found: dict[str, list[str]] = {}
    for row, value in zip(column.rows, column.values, strict=True):
        found.setdefault(str(of_row.get(row)), []).append(str(value).strip())
    return [*found.values()]
