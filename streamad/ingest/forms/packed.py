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


def unzipped(value: bytes, max_bytes: int) -> bytes:
    """Return what gzip has packed, other bytes as they are. Raises DecodeError, also above ``max_bytes``."""
    parts, room = [], max_bytes + 1
    rest = value
    while rest.startswith(_GZIP):
        unpacking = zlib.decompressobj(_AS_GZIP)
        try:
            parts.append(unpacking.decompress(rest, room))
        except zlib.error as error:
            fail("malformed", f"gzip that cannot be unpacked: {error}")
        room -= len(parts[-1])
        if room <= 0:
            fail("too_large", f"more than {max_bytes} bytes, once unpacked")
        if not unpacking.eof:
            fail("malformed", "gzip that is cut off")
        rest = unpacking.unused_data
    return b"".join(parts) if parts else value


class Nested:
    """Puts what fields hold as text (JSON, or base64 of JSON, msgpack or gzip) in the place of the text.

    ``each`` names the list whose elements may have such fields, too.
    """

    def __init__(self, names: Sequence[str], parse: Callable[[bytes], Any], each: str | None = None) -> None:
        self._each = None if each is None else FieldPath(each)
        self._paths = [FieldPath(name) for name in names]
        self._parse = parse

    def unpacked(self, message: Any) -> Any:
        """Return the message with the content of these fields; what is no text stays. Raises DecodeError."""
        if isinstance(message, list):
            return [self.unpacked(one) for one in message]
        if not isinstance(message, dict):
            return message
        message = self._with_content(message)
        return message if self._each is None else self._each.changed(message, self._of_elements) or message

    def _with_content(self, message: dict[Any, Any]) -> dict[Any, Any]:
        for path in self._paths:
            message = path.changed(message, partial(self._content, where=path.name)) or message
        return message

    def _of_elements(self, elements: Any) -> Any:
        """Return a list with the content of its elements; one that holds none stays: it is a dead letter by itself."""
        if not isinstance(elements, list):
            return elements
        found = []
        for element in elements:
            try:
                found.append(self._with_content(element) if isinstance(element, dict) else element)
            except DecodeError:
                found.append(element)
        return found

    def _content(self, value: Any, where: str) -> Any:
        if isinstance(value, str) and value:
            is_json = value.lstrip()[:1] in _OPENING
            value = value.encode("utf-8", "surrogatepass") if is_json else _decoded(value, where)
        if not isinstance(value, bytes):
            return value
        try:
            return self._parse(value)
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
