"""Content inside content: gzip, JSON in text, base64 of either (``decode.fields.nested``).

Law (tests/unit/ingest/test_decode_packed.py): a packed message equals the message itself.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from streamad.errors import DecodeError
from streamad.ingest.decode_values import FieldPath, fail, located, shown

_GZIP = b"\x1f\x8b"
_AS_GZIP = 31
_OPENING = ("{", "[")
_PIECE_BYTES = 65_536
_MOST_MEMBERS = 1_000
_MOST_RATIO = 1_032
"""Bytes that one byte of deflate can hold (zlib.net, "Technical Details")."""


def unzipped(value: bytes, max_bytes: int) -> bytes:
    """Return what gzip has packed, other bytes as they are. Raises DecodeError, also above ``max_bytes``."""
    return _Room(max_bytes).unzipped(value) if value.startswith(_GZIP) else value


class _Room:
    """Unpacks parts of one message, no more than ``max_bytes`` of all together, also of those that are damaged."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes + 1

    def unzipped(self, value: bytes) -> bytes:
        """Return what gzip has packed, other bytes as they are. Raises DecodeError."""
        if not value.startswith(_GZIP):
            return value
        parts: list[bytes] = []
        at, n_members = 0, 0
        while value.startswith(_GZIP, at):
            n_members += 1
            if n_members > _MOST_MEMBERS:
                fail("malformed", f"gzip of more than {_MOST_MEMBERS} parts")
            at = self._unpack(value, at, parts)
        if value[at:].strip(b"\0"):  # some tools fill up with zeros
            fail("malformed", "gzip with other bytes behind it")
        return b"".join(parts)

    def _unpack(self, value: bytes, at: int, parts: list[bytes]) -> int:
        """Append what the member at ``at`` holds to ``parts``; return the place behind it. Raises DecodeError."""
        unpacking = zlib.decompressobj(_AS_GZIP)
        while not unpacking.eof:
            piece = value[at : at + _PIECE_BYTES]  # zlib copies what lies behind a member
            if not piece:
                fail("malformed", "gzip that is cut off")
            try:
                parts.append(unpacking.decompress(piece, max(self._left, 1)))
            except zlib.error as error:
                self._left -= len(piece) * _MOST_RATIO  # so much may have been unpacked and is lost
                fail("malformed", f"gzip that cannot be unpacked: {error}")
            at += len(piece) - len(unpacking.unused_data)
            self._left -= len(parts[-1])
            if self._left <= 0:
                fail("too_large", f"more than {self._max_bytes} bytes, once unpacked")
        return at


class Nested:
    """Puts what fields hold as text (JSON, or base64 of JSON, msgpack or gzip) in the place of the text.

    What gzip has packed in all fields of a message together is no longer than ``max_bytes``. ``each`` names the list
    whose elements may have such fields, too.
    """

    def __init__(
        self, names: Sequence[str], parse: Callable[[bytes], Any], max_bytes: int, each: str | None = None
    ) -> None:
        self._each = None if each is None else FieldPath(each)
        self._paths = [FieldPath(name) for name in names]
        self._parse = parse
        self._max_bytes = max_bytes

    def unpacked(self, message: Any) -> Any:
        """Return the message with the content of these fields; what is no text stays. Raises DecodeError."""
        room = _Room(self._max_bytes)
        if isinstance(message, list):
            return [self._unpacked(one, room) for one in message]
        return self._unpacked(message, room)

    def _unpacked(self, message: Any, room: _Room) -> Any:
        if not isinstance(message, dict):
            return message
        message = self._with_content(message, room)
        change = partial(self._of_elements, room=room)
        return message if self._each is None else self._each.changed(message, change) or message

    def _with_content(self, message: dict[Any, Any], room: _Room) -> dict[Any, Any]:
        for path in self._paths:
            message = path.changed(message, partial(self._content, where=path.name, room=room)) or message
        return message

    def _of_elements(self, elements: Any, room: _Room) -> Any:
        """Return a list with the content of its elements; one that holds none stays: it is a dead letter by itself."""
        if not isinstance(elements, list):
            return elements
        found = []
        for element in elements:
            try:
                found.append(self._with_content(element, room) if isinstance(element, dict) else element)
            except DecodeError:
                found.append(element)
        return found

    def _content(self, value: Any, where: str, room: _Room) -> Any:
        if isinstance(value, str) and value:
            is_json = value.lstrip()[:1] in _OPENING
            value = value.encode("utf-8", "surrogatepass") if is_json else _decoded(value, where)
        if not isinstance(value, bytes):
            return value
        try:
            return self._parse(room.unzipped(value))
        except DecodeError as error:
            raise located(error, where) from None


def text_message(message: str) -> bytes | None:
    """Return the bytes of a message that was written as a text once more; None if the text holds none."""
    return message.encode("utf-8", "surrogatepass") if message.lstrip()[:1] in _OPENING else None


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text.translate(_URL_SAFE), validate=True)
    except (binascii.Error, ValueError):
        fail("malformed", f"{where}: must be an object, JSON in text or base64, got {shown(text)}")


_URL_SAFE = str.maketrans("-_", "+/", "\r\n")
