"""Bytes to messages: JSON, msgpack or line protocol, perhaps packed with gzip, or written as a text once more."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

import msgspec

from streamad.ingest.decode_values import fail
from streamad.ingest.forms.line_protocol import read_lines
from streamad.ingest.forms.packed import text_message, unzipped

Wire = Literal["json", "msgpack", "influx"]
WireSetting: TypeAlias = Literal["auto", Wire]
# Raised by parsers for hostile bytes: RecursionError for deep nesting, ValueError for bad UTF-8 and endless integers.
PARSE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)
_NO_JSON = "not JSON: begins like msgpack, as do the rows of tables (Parquet, CSV); decode.format auto reads both"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_JSON, _MSGPACK = msgspec.json.Decoder(), msgspec.msgpack.Decoder()


def wire_format(value: bytes, setting: WireSetting) -> Wire:
    """Return the wire format: msgpack maps and arrays begin with a byte that JSON text never begins with."""
    if setting != "auto":
        return setting
    first = value[0] if value else 0
    return "msgpack" if 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF else "json"


def read_message(value: bytes, setting: WireSetting, max_bytes: int, most_lines: int | None = None) -> Any:
    """Return the message of a record, whatever it is packed in.

    Raises DecodeError, also above ``max_bytes`` or ``most_lines``.
    """
    message = read_packed(value, setting, max_bytes, most_lines)
    inner = text_message(message) if isinstance(message, str) else None
    return message if inner is None else read_plain(inner, "json")


def read_packed(value: bytes, setting: WireSetting, max_bytes: int, most_lines: int | None = None) -> Any:
    """Return the content of bytes, unpacked if gzip has packed them. Raises DecodeError."""
    return read_plain(unzipped(value, max_bytes), setting, most_lines)


def read_plain(value: bytes, setting: WireSetting, most_lines: int | None = None) -> Any:
    """Return the content of bytes that gzip has not packed. Raises DecodeError."""
    wire = wire_format(value, setting)
    if wire == "influx":
        return read_lines(value, most_lines)
    if wire == "msgpack":
        try:
            return _MSGPACK.decode(value)
        except PARSE_ERRORS as error:
            fail("malformed", f"not msgpack: {_reason(error)}")
    value = value.removeprefix(_BYTE_ORDER_MARK)
    try:
        return _JSON.decode(value)
    except PARSE_ERRORS as error:
        if wire_format(value, "auto") == "msgpack":
            fail("malformed", _NO_JSON)
        # Not JSON, but Python's and other encoders write missing and infinite numbers so.
        if b"NaN" not in value and b"Infinity" not in value and "out of range" not in str(error):
            fail("malformed", f"not JSON: {_reason(error)}")
    try:
        return json.loads(value.decode())
    except PARSE_ERRORS as error:
        fail("malformed", f"not JSON: {_reason(error)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):  # the second from msgspec 0.23 on
        return "text that is not UTF-8"
    return str(error).removeprefix("JSON is malformed: ").removeprefix("MessagePack data is malformed: ")[:120]
