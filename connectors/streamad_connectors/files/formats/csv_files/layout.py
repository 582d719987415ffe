"""Looks at the first lines of CSV: which names the columns, which holds units, where rows begin, what stands above."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TextIO

from streamad.tables import TableLayout
from streamad_connectors.files.formats.csv_files.cells import Kind, kind_of, shape_of
from streamad_connectors.files.formats.csv_files.lines import (
    DELIMITERS,
    BoundedLines,
    cells_of,
    header_delimiter,
    opened,
    separator_of,
)
from streamad_connectors.files.formats.csv_files.units import holds_types, holds_units, unit_in
from streamad_connectors.files.formats.options import FileOptions

_MOST_LINES = 500
_MOST_CHARACTERS = 1 << 20
_LINES_OF_A_CELL = 20
_MOST_SHOWN = 4
_LONGEST_SHOWN = 30
_ODD_LINES = 2
_ROWS_TOGETHER = 5
_TYPED: tuple[Kind, ...] = ("number", "time")
_TYPED_ALONE = ({"number"}, {"time"})


def layout_of(path: Path, options: FileOptions) -> TableLayout:
    """Return how the CSV file ``path`` looks to be laid out. Raises SourceError, OSError."""
    with opened(path, options) as handle:
        return find_layout(first_lines(handle), options)


def first_lines(handle: TextIO) -> list[str]:
    """Return the first lines of ``handle``, in bounded memory."""
    lines: list[str] = []
    left = _MOST_CHARACTERS
    for line in islice(BoundedLines(handle, _MOST_CHARACTERS), _MOST_LINES):
        lines.append(line)
        left -= len(line)
        if left <= 0:
            break
    return lines


def find_layout(lines: Sequence[str], options: FileOptions) -> TableLayout:
    """Return how a table that begins with ``lines`` looks to be laid out.

    The table is the longest run of lines with the same number of cells. Its rows begin where each column's cells are of
    the kind that they are further down (numbers, times). The names stand in the nearest line above that is as wide and
    has texts where the rows have numbers or times.
    """
    named = separator_of(lines[0]) if lines else None
    given = named if options.delimiter == "auto" else options.delimiter
    return max((_Table(lines, mark, given) for mark in ((given,) if given else DELIMITERS)), key=_fit).layout()


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """A line, or several if a cell has line ends: its number from 1, cells and their kinds."""

    number: int
    cells: list[str]
    kinds: list[Kind]
    is_after_blank: bool

    @property
    def is_rule(self) -> bool:
        """Return whether it is drawn between names and rows: ----+----."""
        text = "".join(self.cells).strip()
        return "---" in text and not text.strip("-+=|: ")


class _Table:
    """The lines cut by one delimiter; ``given``: the one that the reader will be told.

    ``weight`` says how well it cuts them into numbers and times.
    """

    def __init__(self, lines: Sequence[str], delimiter: str, given: str | None) -> None:
        self._texts, self._delimiter, self._given = lines, delimiter, given
        self._lines = list(_cut(lines, delimiter))
        self._run: list[_Line] = []
        self._kinds: list[Kind] = []
        self.weight = (0.0, 0)
        for run in _runs([line for line in self._lines if not line.is_rule]):
            kinds = _kinds_below(run)
            if (weight := _weight(run, kinds)) > self.weight or not self._run:
                self._run, self._kinds, self.weight = run, kinds, weight
        self._typed = [column for column, kind in enumerate(self._kinds) if kind in _TYPED]
        self._repeated = Counter((column, line.cells[column]) for line in self._run for column in self._typed)

    def layout(self) -> TableLayout:
        """Return the layout of the lines."""
        first = self._first_row()
        if first is None:
            return self._untyped()
        above, row, is_whole = self._above(first)
        return self._named(above, row, is_whole=is_whole) if above else self._nameless(row)

    # --- where rows begin ---

    def _first_row(self) -> _Line | None:
        """Return the first of some lines in a row whose cells are of the kinds further down."""
        if not self._typed:
            return None
        are_rows = [self._is_row(line) for line in self._run]
        starts = (i for i in range(len(are_rows)) if all(are_rows[i : i + _ROWS_TOGETHER]))
        place = next(starts, None)
        return None if place is None else self._run[place]

    def _is_row(self, line: _Line, *, is_strict: bool = False) -> bool:
        """Return whether ``line`` has the kinds of the rows: a time, or more numbers than texts in their place.

        A text that comes again may stand for a number. A text where the rows have times names them, or their unit.
        ``is_strict``: no other text stands for a number, as in a line that may hold the names or stand below it.
        """
        n_same = n_other = n_written = 0
        has_time = False
        for column in self._typed:
            kind, wanted = line.kinds[column], self._kinds[column]
            n_written += kind != "blank"
            if kind == wanted:
                n_same += 1
                has_time |= wanted == "time"
            elif kind != "blank" and not (wanted == "number" and self._repeated[column, line.cells[column]] > 1):
                if is_strict or wanted == "time":
                    return False
                n_other += 1
        return has_time or (n_same > n_other and 2 * n_same >= n_written)

    def _compared(self, line: _Line) -> tuple[set[Kind], set[Kind]]:
        """Return the kinds of columns in which ``line`` has such a cell, and of those in which it has text."""
        pairs = [(self._kinds[column], line.kinds[column]) for column in self._typed]
        return {wanted for wanted, found in pairs if wanted == found}, {
            wanted for wanted, found in pairs if found == "text"
        }

    def _above(self, row: _Line) -> tuple[list[_Line], _Line, bool]:
        """Return the lines above the rows that may hold names, units or types, the lowest first, and the first row.

        They are as wide as the rows and hold texts in columns of numbers and times; no blank line lies between them. A
        line that also has a number of such a column is the names' if there is no other, and a row if there is. The last
        item is False if such lines of text also lie between rows.
        """
        texts: list[_Line] = []
        mixed: _Line | None = None
        is_whole = True
        for line in reversed(self._lines[: self._lines.index(row)]):
            if line.is_rule:
                continue
            if len(line.cells) != len(row.cells) or (texts and texts[-1].is_after_blank):
                break
            same, other = self._compared(line)
            if mixed is not None and not same and not _could_name(line):
                break  # nothing else names the columns
            if "time" in other or (not same and (other or holds_units(line.cells))):
                row, mixed = mixed or row, None
                texts.append(line)
            elif self._is_row(line, is_strict=bool(texts)):
                is_whole &= not texts
                row, mixed, texts = line, None, []
            elif texts or mixed is not None:
                if other and all(holds_units(below.cells) for below in texts):
                    texts.append(line)
                break
            elif "time" in same or not other:
                row = line
            else:
                mixed = line
        return ([mixed] if mixed is not None and not texts else texts), row, is_whole

    # --- what it is ---

    def _named(self, above: list[_Line], row: _Line, *, is_whole: bool) -> TableLayout:
        """Return the layout of rows with lines of text ``above`` them."""
        n_below = 0
        while (holds_units(above[n_below].cells) or holds_types(above[n_below].cells)) and any(
            _could_name(line) or (line is above[n_below + 1] and _could_name(line, is_only=True))
            for line in above[n_below + 1 :]
        ):
            n_below += 1
        others = [line for line in above[n_below + 1 :] if _could_name(line)]
        header = others[-1] if others else above[n_below]
        first = self._lines[0]
        if not others and header is not first and self._may_head(first, row):
            others = [first]
            header = header if _could_name(header) else first
        units = next((line for line in reversed(above[:n_below]) if holds_units(line.cells)), None)
        same, other = self._compared(header)
        is_sure = is_whole and not others and (not same or "time" in other) and _could_name(header, is_only=True)
        why = f"line {header.number} holds the names: it is as wide as the rows, which begin in line {row.number}"
        if others:
            numbers = sorted({others[-1].number, above[n_below].number})
            why = f"lines {numbers[0]} and {numbers[-1]} may both hold the names"
        elif not is_sure:
            why = f"line {header.number} was taken for the names, although rows may lie above it, or it may be a row"
        if units is not None:
            why += f"; line {units.number} holds units"
        return self._found(header, row, units, why, is_sure=is_sure)

    def _may_head(self, first: _Line, row: _Line) -> bool:
        """Return whether the first line may be the header, although lines between it and ``row`` are no rows.

        It is as wide as they, or wider where a lone row says little, or names columns of numbers or times of another
        table, with some rows of its own.
        """
        below = self._lines[1 : 1 + _ROWS_TOGETHER]
        is_table = len(below) == _ROWS_TOGETHER and all(len(line.cells) == len(first.cells) for line in below)
        own = [{line.kinds[column] for line in below} for column in range(len(first.cells))] if is_table else []
        has_rows = any(kind == "text" and kinds in _TYPED_ALONE for kind, kinds in zip(first.kinds, own, strict=False))
        is_wide = len(first.cells) == len(row.cells) or (row is self._run[-1] and len(first.cells) > len(row.cells))
        return _could_name(first) and (has_rows or is_wide)

    def _nameless(self, row: _Line) -> TableLayout:
        """Return the layout of rows without a line of names above them."""
        shown = _shown(row)
        if row is not self._lines[0]:
            why = f"no line above the rows, which begin in line {row.number} ({shown}), names each of their cells"
            return self._without(why, row, is_sure=False)
        if self._looks_like_rows(row):
            is_sure = self._is_row(row, is_strict=True)
            return self._without(f"its cells look like those below: {shown}", row, is_sure=is_sure)
        why = f"line {row.number} was taken for the names, although its numbers look like those below"
        return self._found(row, self._next(row), None, why, is_sure=False)

    def _looks_like_rows(self, first: _Line) -> bool:
        """Return whether the first line, whose numbers and times are those of a row, has the texts of a row, too."""
        if "time" in self._compared(first)[0]:
            return True
        return all(
            self._kinds[column] in _TYPED
            or not cell.strip()
            or shape_of(cell) in {shape_of(line.cells[column]) for line in self._run[1:]}
            for column, cell in enumerate(first.cells)
        )

    def _untyped(self) -> TableLayout:
        """Return the layout of lines without numbers and times."""
        if not self._run or self._run[0] is not self._lines[0]:
            return self._without("no rows with numbers or times were found in the first lines", None, is_sure=False)
        first = self._run[0]
        why = f"line {first.number} was taken for the names: no column below it holds numbers or times"
        return self._found(first, self._next(first), None, why, is_sure=False)

    def _next(self, line: _Line) -> _Line | None:
        return next(iter(self._lines[self._lines.index(line) + 1 :]), None)

    def _without(self, why: str, row: _Line | None, *, is_sure: bool) -> TableLayout:
        return TableLayout(None, None if row is None else row.number, (), self._delimiter, why, is_sure)

    def _found(self, header: _Line, row: _Line | None, units: _Line | None, why: str, *, is_sure: bool) -> TableLayout:
        wanted: dict[str, Any] = {}
        if header is not self._lines[0]:
            wanted["header"] = header.number
        if row is not None and row is not self._next(header):
            wanted["first_row"] = row.number
        if self._delimiter != (self._given or header_delimiter(self._texts[header.number - 1])):
            wanted["delimiter"] = self._delimiter
        return TableLayout(
            header.number,
            None if row is None else row.number,
            tuple(cell.strip() for cell in header.cells),
            self._delimiter,
            why,
            is_sure,
            () if units is None else tuple(map(unit_in, units.cells)),
            wanted,
        )


def _fit(table: _Table) -> tuple[float, int]:
    return table.weight


def _cut(lines: Sequence[str], delimiter: str) -> Iterator[_Line]:
    """Cut ``lines`` into cells; those without any are left out, as is one that names the delimiter."""
    at = 1 if lines and separator_of(lines[0]) else 0
    is_after_blank = False
    while at < len(lines):
        text, n_lines = lines[at].removeprefix("\ufeff" if at == 0 else ""), 1
        cells = cells_of(text, delimiter)
        while cells and cells[-1].endswith(("\n", "\r")) and n_lines < _LINES_OF_A_CELL and at + n_lines < len(lines):
            text, n_lines = text + lines[at + n_lines], n_lines + 1
            cells = cells_of(text, delimiter)
        if cells and cells[-1].endswith(("\n", "\r")):  # the quote is not closed: one line as it is
            cells, n_lines = cells_of(lines[at], delimiter), 1
        if cells and text.strip():
            yield _Line(at + 1, cells, [kind_of(cell) for cell in cells], is_after_blank)
        is_after_blank = not text.strip()
        at += n_lines


def _runs(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Yield the lines of one width that follow each other, also with one or two of another width between."""
    groups = [list(group) for _, group in groupby(lines, key=lambda line: len(line.cells))]
    open_runs: dict[int, tuple[list[_Line], int]] = {}  # by width: its lines, and the place after the last one
    at = 0
    for group in groups:
        width = len(group[0].cells)
        run, end = open_runs.get(width, ([], at))
        if run and at - end > _ODD_LINES:
            yield run
            run = []
        at += len(group)
        run += group
        open_runs[width] = run, at
    for run, _ in open_runs.values():
        yield run


def _kinds_below(run: list[_Line]) -> list[Kind]:
    """Return the kind that most cells of each column have in the last quarter of ``run``, text if none does."""
    last = run[-max(1, len(run) // 4) :]
    below, whole = (zip(*(line.kinds for line in lines), strict=True) for lines in (last, run[1:] or run))
    return [_kind_of(kinds) or _kind_of(others) or "blank" for kinds, others in zip(below, whole, strict=True)]


def _kind_of(kinds: Sequence[Kind]) -> Kind | None:
    n_written = len(kinds) - kinds.count("blank")
    most = (kind for kind in _TYPED if 2 * kinds.count(kind) > n_written)
    return next(most, "text") if n_written else None


def _weight(run: list[_Line], kinds: list[Kind]) -> tuple[float, int]:
    """Return how much of ``run`` is numbers and times below each other, and how many cells it has beyond the first."""
    n_typed = sum(
        kind == found for line in run for kind, found in zip(kinds, line.kinds, strict=True) if kind in _TYPED
    )
    n_cells = len(run) * len(kinds)
    return n_typed * n_typed / n_cells, n_cells - len(run)


def _shown(line: _Line) -> str:
    cells = [cell.strip()[:_LONGEST_SHOWN] for cell in line.cells if cell.strip()]
    return ", ".join(cells[:_MOST_SHOWN]) + (", ..." if len(cells) > _MOST_SHOWN else "")


def _could_name(line: _Line, *, is_only: bool = False) -> bool:
    """Return whether the cells of ``line`` may be names; ``is_only``: no other line seems to hold them."""
    names = [cell.strip() for cell in line.cells if cell.strip()]
    is_full = 2 * len(names) > len(line.cells)
    is_comment = bool(names) and names[0].startswith("#")
    return is_full and (is_only or (len(set(names)) == len(names) and not is_comment and not holds_types(line.cells)))
