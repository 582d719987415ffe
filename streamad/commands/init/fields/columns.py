"""The fields of a sample's messages as columns, and properties of their values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

_DECIMAL = re.compile(r"\s*[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?\s*")
_FLAGS = frozenset({"", "false", "0", "no", "true", "1", "yes", "none"})
_TRUE = frozenset({"true", "1", "1.0", "yes"})
_DEPTH = 6
LONGEST_ID = 256
_EXACT_BELOW = 2**53


def is_number(value: object) -> bool:
    """Return whether ``value`` is a finite number, also written as text; ``007`` is not a number."""
    if isinstance(value, str):
        return bool(value.strip()) and any(c.isdigit() for c in value) and _DECIMAL.fullmatch(value) is not None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 10**300


@dataclass
class Column:
    """One field over all messages: its dotted path, its values, and the number of the message of each value."""

    path: str
    rows: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    @cached_property
    def numbers(self) -> list[float]:
        """Return the values that are numbers."""
        return [float(value) for value in self.values if is_number(value)]

    @property
    def by_row(self) -> dict[int, Any]:
        """Return the values by the number of their message."""
        return dict(zip(self.rows, self.values, strict=True))

    @cached_property
    def is_numeric(self) -> bool:
        """Return whether at least half of the values are numbers (a sensor may also report "Bad Input")."""
        return bool(self.values) and 2 * len(self.numbers) >= len(self.values)

    @cached_property
    def is_id(self) -> bool:
        """Return whether all values could be ids: text or whole numbers."""
        return bool(self.values) and all(
            (isinstance(value, str) and 0 < len(value) <= LONGEST_ID)
            or type(value) is int
            or (type(value) is float and value.is_integer() and abs(value) < _EXACT_BELOW)
            for value in self.values
        )

    @cached_property
    def counts(self) -> Counter[str]:
        """Return how often each value occurs, as text."""
        return Counter(str(value) for value in self.values)

    @cached_property
    def is_flag(self) -> bool:
        """Return whether all values are true or false, at most half of them true."""
        texts = {text.lower() for text in self.counts}
        true = sum(count for text, count in self.counts.items() if text.lower() in _TRUE)
        return texts <= _FLAGS | {"1.0", "0.0"} and 0 < true <= len(self.values) / 2

    @property
    def is_constant(self) -> bool:
        """Return whether all numbers are equal."""
        return len(set(self.numbers)) <= 1

    @property
    def is_constant_text(self) -> bool:
        """Return whether the first 1,000 values, numbers or text, are equal."""
        return len({str(value) for value in self.values[:1000]}) <= 1 < len(self.values)

    @property
    def counts_rows(self) -> bool:
        """Return whether the values increase by one from message to message."""
        whole = [number for number in self.numbers if number.is_integer()]
        if len(whole) != len(self.numbers) or len(whole) < 3:
            return False
        steps = [b - a for a, b in pairwise(whole)]
        return sum(step == 1 for step in steps) > 0.9 * len(steps)


def columns_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Return the columns by path, in the order of their first occurrence; null counts as no value."""
    columns: dict[str, Column] = {}
    for row, message in enumerate(messages):
        for path, value in _leaves(message, "", 0):
            column = columns.setdefault(path, Column(path))
            if value is not None and value != "":
                column.rows.append(row)
                column.values.append(value)
    return columns


def _leaves(message: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in message.items():
        if not isinstance(key, str):
            continue  # no path reaches it
        path = f"{prefix}{key}"
        if isinstance(value, dict) and depth < _DEPTH:
            yield from _leaves(value, f"{path}.", depth + 1)
        else:
            yield path, value
