"""Messages that hold a list of readings or samples below a header: each element becomes a message of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamad.commands.init.facts.columns import Column, columns_of
from streamad.commands.init.facts.words import VALUE, hints
from streamad.commands.init.rules.time_field import TimeField
from streamad.commands.init.rules.times import find_times
from streamad.ingest.forms.each import elements_in
from streamad.types import IntArray

Message = Mapping[str, Any]
_MOST_ROWS = 200_000
_MOST_CHANNELS = 1000
_FEWEST_READINGS = 1.5
_FEW_TWICE = 0.9


@dataclass(frozen=True, slots=True)
class Listed:
    """The elements of the list at ``path``, each with the fields of its message that it lacks.

    ``of`` int64 [n] are the rows of their messages, ``times`` the times in the elements themselves.
    """

    path: str
    messages: Sequence[Message]
    of: IntArray
    times: list[TimeField]
    inside: frozenset[str]
    """The fields of the elements."""


def with_elements(messages: Sequence[Message], time_format: str | None) -> Listed | None:
    """Return the elements of the list that holds readings; None if there is none. Raises SourceError as the times."""
    columns = columns_of(messages)
    found = [_listed(path, messages, time_format) for path, column in columns.items() if _holds_objects(column)]
    listed = [one for one in found if one is not None]
    return max(listed, key=lambda one: len(one.messages)) if listed else None


def as_lists(messages: Sequence[Message], path: str) -> Sequence[Message]:
    """Return messages with a list for each field of the elements, in place of the list of objects at ``path``."""
    found: list[Message] = []
    for message in messages:
        parts = elements_in(dict(message), path)
        if parts is None or not isinstance(parts[0], list):
            found.append({})
            continue
        elements = [one for one in parts[0] if isinstance(one, dict)]
        keys = dict.fromkeys(key for one in elements for key in one)
        found.append({**parts[1], **{key: [one.get(key) for one in elements] for key in keys}})
    return found


def channel_in(listed: Listed, columns: Mapping[str, Column]) -> tuple[Column | None, Column | None]:
    """Return the fields of the channel's name and of its value, if each message has one reading of a channel.

    None, None for other lists. ``columns`` are those that may hold either.
    """
    inside = {path: column for path, column in columns.items() if path in listed.inside}
    numeric = [column for column in inside.values() if column.is_numeric and not column.is_two_valued]
    values = [column for column in numeric if hints(column.path) & VALUE] or numeric
    if len(values) != 1:
        return None, None
    n_messages = len(np.unique(listed.of))
    for column in inside.values():
        if column.is_numeric or not column.is_id or not 1 < len(column.counts) <= _MOST_CHANNELS:
            continue
        pairs = listed.of[np.array(column.rows)] * len(column.counts) + column.codes
        if len(column) > _FEWEST_READINGS * n_messages and len(np.unique(pairs)) > _FEW_TWICE * len(column):
            return column, values[0]
    return None, None


def _holds_objects(column: Column) -> bool:
    """Return whether nearly all values are lists with an object, or empty."""
    lists = [value for value in column.values if isinstance(value, list)]
    filled = [value for value in lists if value and isinstance(value[0], dict)]
    return bool(filled) and 2 * len(filled) >= len(column.values) and len(lists) == len(column.values)


def _listed(path: str, messages: Sequence[Message], time_format: str | None) -> Listed | None:
    """Return the elements of the list at ``path``; None if they hold no number that varies."""
    elements: list[Message] = []
    merged: list[Message] = []
    of: list[int] = []
    for row, message in enumerate(messages):
        found = elements_in(dict(message), path)
        if found is None or not isinstance(found[0], list):
            continue
        kept = [one for one in found[0] if isinstance(one, dict)]
        elements += kept
        merged += [_merged(one, found[1]) for one in kept]
        of += [row] * len(kept)
        if len(elements) > _MOST_ROWS:
            break
    columns = columns_of(elements)
    if not any(column.is_numeric and column.varies and not column.is_two_valued for column in columns.values()):
        return None
    times = find_times(columns.values(), len(elements), time_format)
    return Listed(path, merged, np.array(of, dtype=np.int64), times, frozenset(columns))


def _merged(element: Message, header: Message) -> Message:
    """Return the element with the fields of the header that it lacks, in the order in which they are looked up."""
    found = dict(element)
    for key, value in header.items():
        if key not in found:
            found[key] = value
        elif isinstance(value, dict) and isinstance(found[key], dict):
            found[key] = _merged(found[key], value)
    return found
