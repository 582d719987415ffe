"""Messages that hold a list for each channel, the time of the first sample, and the step from each to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamad.commands.init.facts.columns import Column, columns_of
from streamad.commands.init.facts.rows import UNREAD
from streamad.commands.init.facts.words import TIME, hints
from streamad.commands.init.rules.time_field import StepField, TimeField
from streamad.commands.init.rules.times import find_times, times_of
from streamad.errors import SourceError
from streamad.ingest.forms.steps import step_us
from streamad.settings.time_format import StepUnit
from streamad.types import IntArray

Message = Mapping[str, Any]
_STEP = frozenset({"dt", "step", "interval", "period", "delta", "increment", "spacing"})
_RATE = frozenset({"hz", "rate", "fs", "frequency", "freq", "samplerate", "sps"})
_UNITS: tuple[StepUnit, ...] = ("s", "ms", "us", "ns", "min", "hz")
_MOST_ROWS = 200_000
_MOST_GROUPS = 50
_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Stepped:
    """A message for each sample, with the distance from the first one in the field of the step, and their time."""

    messages: Sequence[Message]
    places: IntArray
    time: TimeField


def with_steps(messages: Sequence[Message], places: IntArray, time_format: str | None) -> Stepped | None:
    """Return the samples of messages whose lists have one time and a step; None for all other messages."""
    columns = columns_of(messages)
    lists = {path: column for path, column in columns.items() if _holds_numbers(column)}
    rest = {path: column for path, column in columns.items() if not any(isinstance(v, list) for v in column.values)}
    steps = [column for column in rest.values() if hints(column.path) & (_STEP | _RATE) and _is_step(column)]
    if not lists or not steps or any(hints(path) & TIME for path in lists):
        return None
    lengths = _lengths(lists.values(), len(messages))
    others = [column for column in rest.values() if column not in steps]
    try:
        times = find_times(others, len(messages), time_format)
    except SourceError:
        return None  # said again when the fields are looked at
    if not times or times[0].counts:
        return None
    starts_us = times_of(times[0], columns, len(messages))
    found = [(step, *_unit(step, starts_us, lengths, others)) for step in steps]
    step, unit, is_sure = max(found, key=lambda one: one[2])
    note = times[0].note
    if not is_sure:
        note = f"{step.path} is taken for the step in {unit}, by its name: if that is wrong, correct decode.fields.step"
    time = replace(times[0], step=StepField(step.path, unit), note=note, others=())
    expanded, of = [], []
    for row, (message, n) in enumerate(zip(messages, lengths.tolist(), strict=True)):
        value = step.by_row.get(row)
        for index in range(n if value is not None else 0):
            expanded.append(_element(message, "", index, n, (step.path, _distance_us(step, value, unit, index))))
            of.append(row)
        if len(expanded) > _MOST_ROWS:
            break
    return Stepped(expanded, places[np.array(of, dtype=np.int64)], time) if expanded else None


def _holds_numbers(column: Column) -> bool:
    """Return whether nearly all values are lists with numbers."""
    listed = [value for value in column.values if isinstance(value, list) and value]
    if not listed or 2 * len(listed) < len(column.values):
        return False
    numbers = [any(column.number(item) is not None for item in value[:9]) for value in listed]
    return 2 * sum(numbers) >= len(numbers)


def _is_step(column: Column) -> bool:
    return column.is_all_numbers and bool((column.numbers > 0).all())


def _lengths(lists: Iterable[Column], n_messages: int) -> IntArray:
    """Return the number of samples of each message: 0 if its lists differ, or it has none."""
    found = np.zeros(n_messages, dtype=np.int64)
    for column in lists:
        for row, value in zip(column.rows, column.values, strict=True):
            n = len(value) if isinstance(value, list) else 0
            found[row] = n if found[row] in (0, n) else 0
    return found


def _unit(step: Column, starts_us: IntArray, lengths: IntArray, others: Sequence[Column]) -> tuple[StepUnit, bool]:
    """Return the unit by which one message follows the other, and whether it does; else that of the step's name."""
    words = hints(step.path)
    named: StepUnit = next((unit for unit in _UNITS if unit in words), "hz" if words & _RATE else "s")
    steps = np.zeros(len(starts_us))
    steps[np.array(step.rows, dtype=np.int64)] = step.cells
    kept = (starts_us != UNREAD) & (lengths > 0) & (steps > 0)
    for unit in dict.fromkeys((named, *(unit for unit in _UNITS if (unit == "hz") == bool(words & _RATE)))):
        spans_us = step_us(steps[kept], unit) * lengths[kept]
        for group in (None, *(one for one in others if not one.is_numeric and len(one.counts) <= _MOST_GROUPS)):
            of = np.zeros(len(starts_us), dtype=np.int64)
            if group is not None:
                of[np.array(group.rows, dtype=np.int64)] = group.codes + 1
            order = np.lexsort((starts_us[kept], of[kept]))
            same = np.diff(of[kept][order]) == 0
            expected = spans_us[order][:-1][same]
            steps_us = np.diff(starts_us[kept][order])[same]
            if len(expected) and np.mean(np.abs(steps_us - expected) <= _TOLERANCE * expected) > 0.5:
                return unit, True
    return named, False


def _distance_us(step: Column, value: Any, unit: StepUnit, index: int) -> float:
    number = step.number(value)
    assert number is not None
    return index * step_us(number, unit)


def _element(value: Any, path: str, index: int, n: int, distance: tuple[str, float]) -> Any:
    """Return a message with the element at ``index`` in place of each list of ``n``."""
    if path == distance[0]:
        return distance[1]
    if isinstance(value, dict):
        before = f"{path}." if path else ""
        return {key: _element(inner, f"{before}{key}", index, n, distance) for key, inner in value.items()}
    return value[index] if isinstance(value, list) and len(value) == n else value
