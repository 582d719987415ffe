"""Readers of Avro's primitive types: each takes the bytes, a place and the message's state, and returns value and end.

They raise IndexError or struct.error where the bytes end too early.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeAlias

from streamad.ingest.decode_values import fail

State: TypeAlias = list[int]
"""What a message may still hold in parts, and how deep it is inside types that hold themselves."""
Read: TypeAlias = Callable[[bytes, int, State], tuple[Any, int]]

_DOUBLE, _FLOAT = Struct("<d"), Struct("<f")


def charge(state: State, n: int) -> None:
    """Count ``n`` more parts of a message. Raises DecodeError (too_large)."""
    state[0] -= n
    if state[0] < 0:
        fail("too_large", "holds more than 1000000 records, lists and empty values")


def read_long(data: bytes, at: int, state: State) -> tuple[int, int]:
    """Return a whole number of up to 64 bits (zigzag, least bits first)."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            fail("malformed", "not of its Avro schema: a number of more than 64 bits")
    if value >> 64:
        fail("malformed", "not of its Avro schema: a number of more than 64 bits")
    return (value >> 1) ^ -(value & 1), at + 1


def _null(data: bytes, at: int, state: State) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int, state: State) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _double(data: bytes, at: int, state: State) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def _float(data: bytes, at: int, state: State) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _bytes(data: bytes, at: int, state: State) -> tuple[bytes, int]:
    n, at = read_long(data, at, state)
    end = at + n
    if n < 0 or end > len(data):
        raise IndexError
    return data[at:end], end


def _string(data: bytes, at: int, state: State) -> tuple[str, int]:
    byte = data[at]
    if byte < 0x80 and not byte & 1:  # the usual one, without another call
        n, at = byte >> 1, at + 1
    else:
        n, at = read_long(data, at, state)
    end = at + n
    if n < 0 or end > len(data):
        raise IndexError
    return data[at:end].decode(), end


PRIMITIVE_READERS: dict[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": read_long,
    "long": read_long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
