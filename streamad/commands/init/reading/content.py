"""What the records of a sample hold, whatever it is packed in: also JSON as text, or base64 of it, in fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from streamad.commands.init.facts.columns import Column, columns_of
from streamad.errors import DecodeError
from streamad.ingest.forms.line_protocol import read_lines
from streamad.ingest.forms.packed import Nested, text_message, unzipped
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
        found: dict[str, Any] = Nested(names, _content).unpacked(message)
    except DecodeError:
        return message
    return found


def _content(value: bytes) -> Any:
    """Return the object or list of a field's content. Raises DecodeError for anything else."""
    found = parse(value)
    if not isinstance(found, (dict, list)):
        raise DecodeError("malformed", "neither an object nor a list")
    return found


def lines_of(value: bytes) -> list[Any]:
    """Return the lines of a record of InfluxDB's line protocol; [] if it is none."""
    try:
        return read_lines(unzipped(value, _MAX_BYTES))[LINES]
    except DecodeError:
        return []


def parse(value: bytes) -> Any:
    """Return the message of a record, whatever it is packed in; None if it is none."""
    try:
        found = _parse_plain(unzipped(value, _MAX_BYTES))
    except DecodeError:
        return None
    inner = text_message(found) if isinstance(found, str) else None
    return found if inner is None else _parse_plain(inner)


def _parse_plain(value: bytes) -> Any:
    first = value[0] if value else 0
    is_msgpack = 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF
    try:
        return msgspec.msgpack.decode(value) if is_msgpack else msgspec.json.decode(value.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            return None if is_msgpack else json.loads(value.decode())  # NaN, as Python writes it
        except (ValueError, RecursionError):
            return None
