"""Messages of streamad's own format, and those with several samples as rows under other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.rows import Rows
from streamad.commands.init.layout import Layout, note_without_id
from streamad.commands.init.lines import lines_of
from streamad.commands.init.rules.ids import find_ids
from streamad.commands.init.rules.time_field import TimeField
from streamad.commands.init.rules.times import find_times, no_time
from streamad.errors import SourceError

# --- streamad's own format ---

_OWN = frozenset({"time", "times", "values", "channels", "stream", "sequence", "end"})


def is_own(message: Mapping[str, Any]) -> bool:
    """Return whether a message has streamad's own format, and no other field: that might be an id."""
    if not message.keys() <= _OWN:
        return False
    values = message.get("values")
    if "times" in message:
        return isinstance(message["times"], list) and isinstance(values, list)
    if isinstance(values, dict):
        cell = Column("")
        return (
            "time" in message
            and all(value is None or cell.number(value) is not None for value in values.values())
            and not any(isinstance(value, str) for value in values.values())
        )
    return values is None and "time" in message and message.get("end") is True


def own(messages: Sequence[Mapping[str, Any]], known_names: Sequence[str] | None, time_format: str | None) -> Layout:
    """Return the layout of messages of the own format. Raises SourceError if they hold no values."""
    names = list(dict.fromkeys(name for message in messages for name in _names_in(message)))
    notes: list[str] = []
    if not names:
        width = max((len(row) for message in messages for row in _rows_of(message)[:1]), default=0)
        names = _channels_of_rows(list(known_names or ()), width, notes)
    if not names:
        raise SourceError("nothing numeric found: the messages hold no values")
    found = [time for message in messages for time in _times_in(message)]
    time = _time_of([Column("time", list(range(len(found))), found)], len(found), time_format)
    layout = Layout("own", time, lines_of(names), notes=[*notes, *([] if time.note is None else [time.note])])
    if any(message.get("stream") is not None for message in messages):
        layout.stream = "stream"
    if any(message.get("sequence") is not None for message in messages):
        layout.sequence = ("sequence",)
        note_without_id(layout, len(messages), *(_by_row(messages, name) for name in ("sequence", "stream")))
    if any(message.get("end") is True for message in messages):
        layout.end = "end"
    return layout


def _time_of(columns: Sequence[Column], n: int, time_format: str | None) -> TimeField:
    found = find_times(columns, n, time_format)
    if not found:
        raise SourceError(no_time(columns))
    return found[0]


def _by_row(messages: Sequence[Mapping[str, Any]], name: str) -> dict[int, Any]:
    return {row: message[name] for row, message in enumerate(messages) if message.get(name) is not None}


def _names_in(message: Mapping[str, Any]) -> list[str]:
    values = message.get("values")
    if isinstance(values, dict):
        return list(values)
    names = message.get("channels")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _rows_of(message: Mapping[str, Any]) -> list[list[Any]]:
    values = message.get("values")
    return [row for row in values if isinstance(row, list)] if isinstance(values, list) else []


def _times_in(message: Mapping[str, Any]) -> list[Any]:
    times = message.get("times")
    return times if isinstance(times, list) else [message.get("time")]


# --- several samples in a message, under other names ---


def chunked(
    messages: Sequence[Mapping[str, Any]], columns: Mapping[str, Column], time_format: str | None
) -> Layout | None:
    """Return the layout of messages that hold several samples as rows; None if they do not."""
    rows = next((column for column in columns.values() if column.holds(list)), None)
    if rows is None:
        return None
    lists = [
        Column(path, values=[item for value in column.values for item in value])
        for path, column in columns.items()
        if column is not rows and column.values and all(isinstance(value, list) for value in column.values)
    ]
    time = _time_of(lists, 0, time_format)
    rest = {
        path: column
        for path, column in columns.items()
        if column is not rows and all(path != one.path for one in lists)
    }
    notes = [] if time.note is None else [time.note]
    names = next((list(names) for message in messages if isinstance(names := message.get("channels"), list)), [])
    lines = lines_of(_channels_of_rows([*map(str, names)], len(rows.values[0][0]), notes))
    ids = find_ids(rest, notes, Rows(np.zeros(len(messages), dtype=np.int64), counts=True))
    return Layout("chunked", time, lines, ids.stream, ids.sequence, ids.end, rows.path, notes=notes)


def _channels_of_rows(names: list[str], width: int, notes: list[str]) -> list[str]:
    """Return ``names`` if there is one for each column of the rows, else ch00, ch01, ... with a note."""
    if len(names) == width:
        return names
    notes.append("the recording does not name its channels: replace ch00, ch01, ... by their names")
    return [f"ch{index:02d}" for index in range(width)]
