"""The table of facts that every rule of ``init`` looks at: a sample's fields as columns, and what their values are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.commands.init.facts.marks import PLAIN, Marks
from streamad.types import IntArray

Numbers: TypeAlias = npt.NDArray[np.float64]
LONGEST_ID = 256
_FLAGS = frozenset({"", "false", "0", "no", "true", "1", "yes", "none", "0.0", "1.0"})
TRUE = frozenset({"true", "1", "1.0", "yes"})
_DEPTH = 6
_EXACT_BELOW = 2**53
_NUMBER = r"[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?"
_PLAIN_LINES = re.compile(rf"{_NUMBER}(?:\n{_NUMBER})*")


@dataclass
class Column:
    """One field over all messages: its dotted path, its values, and the row (message) of each value."""

    path: str
    rows: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    marks: Marks = PLAIN
    unit: str = ""
    """The unit that the table states beside its name."""
    written: list[Any] = field(default_factory=list)
    """The values with their units, if ``take_units`` has left the numbers alone."""

    def __len__(self) -> int:
        return len(self.values)

    def number(self, value: object) -> float | None:
        """Return a value as a finite number; None for flags, ids such as 007 and all else."""
        if isinstance(value, str):
            return self.marks.read(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if isinstance(value, int):
            return float(value) if abs(value) < 10**300 else None
        return value if math.isfinite(value) else None

    @cached_property
    def cells(self) -> Numbers:
        """The values as numbers, float64 [n], NaN for what is none."""
        if self.marks == PLAIN and (cells := _plain_numbers(self.values)) is not None:
            return cells
        found = [self.number(value) for value in self.values]
        return np.array([math.nan if one is None else one for one in found], dtype=np.float64)

    @cached_property
    def numbers(self) -> Numbers:
        """The values that are numbers."""
        numbers: Numbers = self.cells[~np.isnan(self.cells)]
        return numbers

    @cached_property
    def texts(self) -> list[str]:
        """The different values as texts, in the order of their first occurrence."""
        return list(self.counts)

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each value occurs, as text."""
        return Counter(str(value).strip() for value in self.values)

    @cached_property
    def codes(self) -> IntArray:
        """The values as numbers of ``texts``, int64 [n]: equal ones have equal numbers."""
        places = {text: place for place, text in enumerate(self.texts)}
        return np.array([places[str(value).strip()] for value in self.values], dtype=np.int64)

    @cached_property
    def by_row(self) -> dict[int, Any]:
        """The values by row."""
        return dict(zip(self.rows, self.values, strict=True))

    @property
    def is_numeric(self) -> bool:
        """Whether at least half of the values are numbers (a sensor may also report "Bad Input")."""
        return bool(self.values) and 2 * len(self.numbers) >= len(self.values)

    @property
    def is_all_numbers(self) -> bool:
        """Whether every value is a number."""
        return bool(self.values) and len(self.numbers) == len(self.values)

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are whole."""
        return bool((self.numbers == np.floor(self.numbers)).all())

    @cached_property
    def is_id(self) -> bool:
        """Whether all values could be ids as they stand: text or whole numbers, short enough."""
        return bool(self.values) and all(
            (isinstance(value, str) and 0 < len(value) <= LONGEST_ID)
            or type(value) is int
            or (type(value) is float and value.is_integer() and abs(value) < _EXACT_BELOW)
            for value in self.values
        )

    @cached_property
    def is_flag(self) -> bool:
        """Whether all values are true or false, at most half of them true."""
        return self.is_two_valued and 0 < self._n_true <= len(self.values) / 2

    @cached_property
    def is_two_valued(self) -> bool:
        """Whether all values are true or false."""
        return bool(self.values) and {text.lower() for text in self.texts} <= _FLAGS

    @property
    def _n_true(self) -> int:
        return sum(count for text, count in self.counts.items() if text.lower() in TRUE)

    @property
    def varies(self) -> bool:
        """Whether there is more than one value."""
        return len(self.counts) > 1

    @property
    def is_constant(self) -> bool:
        """Whether all numbers are equal."""
        return len(self.numbers) == 0 or bool((self.numbers == self.numbers[0]).all())

    @cached_property
    def n_runs(self) -> int:
        """The number of runs of equal values."""
        return 1 + int(np.count_nonzero(np.diff(self.codes))) if self.values else 0

    @cached_property
    def counts_rows(self) -> bool:
        """Whether the values increase by one from message to message."""
        numbers = self.numbers
        if len(numbers) < 3 or not self.is_whole:
            return False
        return bool(np.mean(np.diff(numbers) == 1) > 0.9)

    def rises(self, streams: Iterable[Column] = ()) -> bool:
        """Return whether the numbers nearly always increase, at least within each of ``streams``.

        Each sequence may begin at 0.
        """
        numbers = self.numbers
        if len(numbers) < 2 or numbers.max() == numbers.min():
            return False
        orders = [np.argsort(of.codes, kind="stable") for of in streams if of.rows == self.rows]
        courses = [numbers, *(self.cells[order] for order in orders)]
        return any(np.count_nonzero(np.diff(course) < 0) <= 0.2 * len(numbers) for course in courses)

    def holds(self, kind: type) -> bool:
        """Return whether all values are lists of ``kind``."""
        return bool(self.values) and all(
            isinstance(value, list) and value and isinstance(value[0], kind) for value in self.values
        )

    def without(self, number: float | None) -> Column:
        """Return the column without the readings of this number."""
        if number is None:
            return self
        kept = np.flatnonzero(self.cells != number).tolist()
        return Column(self.path, [self.rows[at] for at in kept], [self.values[at] for at in kept], self.marks)


def _plain_numbers(values: Sequence[Any]) -> Numbers | None:
    """Return texts that all are plain numbers as float64 [n]; None if one is none: the quick way of ``cells``."""
    if not all(type(value) is str for value in values) or _PLAIN_LINES.fullmatch("\n".join(values)) is None:
        return None
    try:
        cells: Numbers = np.array(values).astype(np.float64)
    except ValueError:  # a mark alone
        return None
    return cells if np.isfinite(cells).all() else None


def columns_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return the columns by path, in the order of their first occurrence; null counts as no value.

    The fields of an object that stands where most messages have a number or a text are none: the object is a bad value.
    """
    columns: dict[str, Column] = {}
    if not any(isinstance(value, dict) for message in messages for value in message.values()):
        keys = dict.fromkeys(key for message in messages for key in message)
        columns = {key: _of_key(messages, key) for key in keys if isinstance(key, str)}  # the quick way, of tables
        messages = ()
    for row, message in enumerate(messages):
        for path, value in _leaves(message, "", 0):
            column = columns.get(path)
            if column is None:
                column = columns[path] = Column(path)
            if value is not None and value != "":
                column.rows.append(row)
                column.values.append(value)
    return {path: column for path, column in columns.items() if not _stands_for_a_value(path, columns)}


def _of_key(messages: Sequence[Mapping[str, Any]], key: str) -> Column:
    rows = [row for row, message in enumerate(messages) if message.get(key) not in (None, "")]
    return Column(key, rows, [messages[row][key] for row in rows])


def _stands_for_a_value(path: str, columns: Mapping[str, Column]) -> bool:
    outer = [columns[path[:at]] for at, mark in enumerate(path) if mark == "." and path[:at] in columns]
    return any(len(one) > len(columns[path]) for one in outer)


def _leaves(message: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in message.items():
        if not isinstance(key, str):
            continue  # no path reaches it
        path = f"{prefix}{key}"
        if isinstance(value, dict) and depth < _DEPTH:
            yield from _leaves(value, f"{path}.", depth + 1)
        else:
            yield path, value
