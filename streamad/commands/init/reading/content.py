"""Messages in the records of a sample, unpacked: gzip, and fields that hold JSON as text or base64 of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamad.commands.init.facts.columns import Column, columns_of
from streamad.errors import DecodeError
from streamad.ingest.forms.packed import Nested
from streamad.ingest.forms.wire import read_message, read_packed, read_plain
from streamad.settings.decode import LINES

_LOOKED_AT = 200
_DEEPEST = 3
_NEARLY_ALL = 0.9
_SHORTEST = 8
_MAX_BYTES = 128_000_000
Messages = list[dict[str, Any]]


def unnest(messages: Messages) -> tuple[Messages, tuple[str, ...]]:
    """Return the messages with the content of such fields in place of their texts, and the fields' paths."""
    names: tuple[str, ...] = ()
    for _ in range(_DEEPEST):
        found = [path for path, column in columns_of(messages[:_LOOKED_AT]).items() if _is_packed(column)]
        if not found:
            break
        messages, names = [_unpacked(message, found) for message in messages], (*names, *found)
    return messages, names


def _is_packed(column: Column) -> bool:
    texts: Sequence[Any] = column.values
    if not texts or not all(isinstance(text, str) and len(text) >= _SHORTEST for text in texts):
        return False
    read = [_unpacked({"x": text}, ["x"])["x"] for text in texts]
    return sum(not isinstance(one, str) for one in read) >= _NEARLY_ALL * len(texts)


def _unpacked(message: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = Nested(names, _content, _MAX_BYTES).unpacked(message)
    except DecodeError:
        return message
    return found


def _content(value: bytes) -> Any:
    """Return the object or list of a field's content. Raises DecodeError for anything else."""
    found = read_plain(value, "auto")
    if not isinstance(found, (dict, list)):
        raise DecodeError("malformed", "neither an object nor a list")
    return found


def lines_of(value: bytes) -> list[Any]:
    """Return the lines of a record of InfluxDB's line protocol; [] if it is none."""
    try:
        lines: list[Any] = read_packed(value, "influx", _MAX_BYTES)[LINES]
    except DecodeError:
        return []
    return lines


def parse(value: bytes) -> Any:
    """Return the message of a record as the decoder reads it; None if it is none."""
    try:
        return read_message(value, "auto", _MAX_BYTES)
    except DecodeError:
        return None
