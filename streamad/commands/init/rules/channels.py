"""The rules that tell readings from numbers that are none: labels, counters, clocks, copies of ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from streamad.commands.init.facts.columns import Column, Numbers
from streamad.commands.init.facts.rows import Groups, Rows
from streamad.commands.init.facts.words import ID, LABEL, SEQUENCE, STREAM, WHOLE_LABEL, hints, id_hints, last_part
from streamad.commands.init.rules.time_field import TimeField
from streamad.types import IntArray

_MOST_CLASSES = 50
_FEWEST_GROUPS = 5
_FEWEST_STEPS = 20
_NEARLY_ALL = 0.98
_EXACT = 1e-3
_LONGEST_SHOWN = 40
_COUNTS_ROWS = "counts the rows"
A_LABEL = "a label by its name and values: the truth to find, and no reading"


def find_not_readings(
    columns: Mapping[str, Column], rows: Rows, groups: Groups, times: Collection[TimeField]
) -> dict[str, str]:
    """Return the numeric fields that hold no readings, each with its reason.

    ``times`` are the other fields that could have been the time.
    """
    second_times = {path for time in times if not time.counts for path in time.paths}
    found = {}
    for path, column in columns.items():
        if is_label(column):
            found[path] = A_LABEL
        elif path in second_times:
            found[path] = "a time beside that of the samples"
        elif column.is_constant:
            found[path] = constant(column)
        elif (why := _counts(column, rows, groups)) is not None:
            found[path] = why
    return found


def constant(column: Column) -> str:
    """Return why a field that never changes is no channel."""
    value = f"{column.numbers[0]:g}" if len(column.numbers) else repr(column.texts[0]) if column.texts else "no value"
    return f"never changes in the sample ({value}), so there is nothing to learn"


def words_of_tag(column: Column) -> str | None:
    """Return why a tag whose readings are words is no channel, and what they can be; None if they are numbers."""
    if len(column.numbers) or not column.varies:
        return None
    tag = f"{{tag: {column.path}}}"
    return (
        f"its readings are words, such as {column.texts[0][:_LONGEST_SHOWN]!r}: channels[].values gives them numbers; "
        f"a state can cut sequences (sequences.while: {tag}), an id can name them (decode.fields.sequence: {tag})"
    )


def is_label(column: Column) -> bool:
    """Return whether a field is named as a label and holds flags, a few classes, or a few words."""
    is_named = _is_named_label(column)
    if not column.values or not (is_named or last_part(column.path).lower().startswith("is_")):
        return False
    are_words = all(isinstance(value, str) for value in column.values) and len(column.counts) > 1
    few = ((column.is_all_numbers and column.is_whole) or are_words) and len(column.counts) <= _MOST_CLASSES
    return column.is_two_valued or (few and is_named)


def _is_named_label(column: Column) -> bool:
    words = hints(column.path)
    return bool(words & LABEL) or words in [{word} for word in WHOLE_LABEL]


def _counts(column: Column, rows: Rows, groups: Groups) -> str | None:
    """Return why the numbers count something instead of measuring it; None if they do not."""
    kept = ~np.isnan(column.cells)
    at, cells = np.array(column.rows, dtype=np.int64)[kept], column.cells[kept]
    if len(cells) < 3:
        return None
    order = np.lexsort((at, groups.sequences[at]))
    at, cells, of = at[order], cells[order], groups.sequences[at[order]]
    inside = np.diff(of) == 0
    steps = np.diff(cells)[inside]
    if column.counts_rows:
        return _COUNTS_ROWS
    if not steps.any():
        if column.is_whole and (id_hints(column.path) & (SEQUENCE | STREAM) or hints(column.path) & ID):
            return "constant within each sequence and named as an id"
        return _copies_ids(cells, of, at, groups.streams)
    times_us = rows.times_us[at].astype(np.float64)
    for what, steps_of in (("time", np.diff(times_us)[inside]), ("rows", np.diff(at.astype(np.float64))[inside])):
        if _rise_with(steps, steps_of) or _lie_on_lines(
            cells, times_us if what == "time" else at.astype(np.float64), of
        ):
            return _COUNTS_ROWS if what == "rows" else "rises with the time alone: a clock, and no reading"
    return None


def _copies_ids(cells: Numbers, groups: IntArray, at: IntArray, streams: IntArray) -> str | None:
    """Return the reason if values that are constant within each sequence grow from one to the stream's next one."""
    _, firsts = np.unique(groups, return_index=True)
    of_stream = streams[at[firsts]]
    order = np.lexsort((at[firsts], of_stream))
    steps = np.diff(cells[firsts][order])[np.diff(of_stream[order]) == 0]
    if len(firsts) < _FEWEST_GROUPS or not len(steps) or np.mean(steps > 0) < 0.95:
        return None
    return "constant within each sequence and larger in the next one: it counts sequences"


def _rise_with(steps: Numbers, of: Numbers) -> bool:
    """Return whether nearly all steps are the same multiple of those of time or row, as of a counter that may wrap."""
    moved = of > 0
    if np.count_nonzero(moved) < _FEWEST_STEPS:
        return False
    rate = float(np.median(steps[moved] / of[moved]))
    if rate <= 0:
        return False
    expected = rate * of[moved]
    return bool(np.mean(np.abs(steps[moved] - expected) <= _EXACT * expected) >= _NEARLY_ALL)


def _lie_on_lines(cells: Numbers, x: Numbers, groups: IntArray) -> bool:
    """Return whether each sequence's values lie on a line over ``x``, to their resolution, and all rise alike.

    A clock that shows less digits than the time does so.
    """
    values = np.unique(cells)
    resolution = float(np.diff(values).min()) if len(values) > 1 else 0.0
    bounds = np.flatnonzero(np.diff(groups)) + 1
    slopes = []
    for c, t in zip(np.split(cells, bounds), np.split(x, bounds), strict=True):
        if len(c) < _FEWEST_STEPS or t[-1] == t[0]:
            continue
        slope = (c[-1] - c[0]) / (t[-1] - t[0])
        off = np.abs(c - c[0] - slope * (t - t[0])).max()
        if slope <= 0 or off > 1.01 * resolution or (c[-1] - c[0]) < 10 * resolution:
            return False
        slopes.append((slope, 2 * resolution / (t[-1] - t[0])))
    if not slopes:
        return False
    usual = float(np.median([slope for slope, _ in slopes]))
    return all(abs(slope - usual) <= of + _EXACT * usual for slope, of in slopes)
