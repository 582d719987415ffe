"""How a sample writes numbers in text: the decimal mark, and the mark between groups of three digits."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from streamad.settings.numerals import DecimalMark, Numerals, ThousandsMark

_MARKED = re.compile(r"[+-]?[0-9][0-9.,'\u2019 \u00a0\u202f]*(?:[eE][+-]?[0-9]{1,4})?")
_PADDED = re.compile(r"\s*[+-]?0[0-9]")
_MOST_CELLS = 2_000  # of a column
_FEWEST = 10


@dataclass(frozen=True)
class Marks:
    """The marks of numbers in text: ``decode.decimal`` and ``decode.thousands``."""

    decimal: DecimalMark = "."
    thousands: ThousandsMark | None = None

    @cached_property
    def numerals(self) -> Numerals:
        """Return their reader."""
        return Numerals(self.decimal, self.thousands)

    def read(self, text: str) -> float | None:
        """Return the number; None for anything else, such as 007, which is an id, and nan."""
        if _PADDED.match(text) or not any(map(str.isdigit, text)):
            return None
        try:
            number = self.numerals.number(text)
        except ValueError:
            return None
        return number if math.isfinite(number) else None


PLAIN = Marks()
_STYLES = tuple(
    Marks(decimal, thousands)
    for thousands in (None, *get_args(ThousandsMark))
    for decimal in get_args(DecimalMark)
    if thousands != decimal
)


def find_marks(columns: Iterable[Collection[object]], delimiter: str | None) -> tuple[Marks, str | None]:
    """Return how the texts of ``columns`` write numbers, and why if that is a guess.

    The marks that read the most cells are taken. If every marked cell has the form ``1,234`` (or ``1.234``), both fit.
    Beside numbers below 1,000 without a mark it is a mark of thousands: a writer of decimals would also leave out one
    or two zeros alone. Else a point is decimal; of a comma the ``delimiter`` of a table decides (semicolons are
    usual where commas are decimal), and the guess is said.
    """
    marked: list[str] = []
    below: list[bool] = []
    for column in columns:
        cells = list(column)
        texts = [cell.strip() for cell in cells[:: max(1, len(cells) // _MOST_CELLS)] if isinstance(cell, str)]
        of_numbers = [text for text in texts if _MARKED.fullmatch(text) is not None]
        if 2 * len(of_numbers) < len(texts):
            continue  # dates, ids and words
        unmarked = [text for text in of_numbers if text.lstrip("+-").isdecimal()]
        if len(unmarked) < len(of_numbers):
            marked += [text for text in of_numbers if not text.lstrip("+-").isdecimal()]
            # A column of few numbers shows nothing, and one with 4500 beside 1,001 has no groups.
            below += [len(text.lstrip("+-")) <= 3 for text in unmarked] if len(of_numbers) >= _FEWEST else []
    for mark, grouped in ((",", Marks(".", ",")), (".", Marks(",", "."))):
        of_threes = re.compile(rf"[+-]?[1-9][0-9]{{0,2}}(?:\{mark}[0-9]{{3}})+")
        if marked and all(of_threes.fullmatch(text) for text in marked):
            if any(text.count(mark) > 1 for text in marked) or (below and all(below)):
                return grouped, None
            return _guessed(marked[0], grouped, is_table_of_semicolons=delimiter == ";")
    if all(PLAIN.read(text) is not None for text in marked):
        return PLAIN, None
    counts = {style: sum(style.read(text) is not None for text in marked) for style in _STYLES}
    return max(counts, key=lambda style: counts[style]), None


def _guessed(text: str, grouped: Marks, *, is_table_of_semicolons: bool) -> tuple[Marks, str | None]:
    """Return the likelier reading of numbers that all have three digits behind their only mark, and the other one."""
    decimal = Marks(grouped.thousands) if grouped.thousands in (",", ".") else PLAIN
    is_grouped = grouped.thousands == "," and not is_table_of_semicolons
    best, other = (grouped, decimal) if is_grouped else (decimal, grouped)
    if best == PLAIN and not is_table_of_semicolons:
        return PLAIN, None  # as numbers with three decimals are written
    lines = [f"decode.decimal: '{other.decimal}'"] * (other.decimal != ".")
    lines += [f"decode.thousands: '{other.thousands}'"] * (other.thousands is not None)
    return best, f"{text} is read as {best.read(text):g}; if it means {other.read(text):g}, set {', '.join(lines)}"
