"""How much memory a Protobuf message may take once it is parsed, and how deep its types may lie.

A message inside a message takes two bytes on the wire, and the room of all of its fields in memory. Where a schema
and so many bytes could take too much, they are counted before anything is parsed.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

from streamad.errors import SchemaError
from streamad.ingest.decode_values import fail

_MAX_BYTES = 256_000_000
_MAX_DEPTH, _MAX_TYPES = 100, 5_000
_FIELD_BYTES, _MESSAGE_BYTES = 16, 64


def check_memory(payload: bytes, descriptor: Descriptor, largest: int) -> None:
    """Raise DecodeError if a message of this type could take too much memory (too_large, malformed).

    ``largest`` is the room of the largest message inside.
    """
    if len(payload) // 2 * largest > _MAX_BYTES and _taken(payload, descriptor) > _MAX_BYTES:
        fail("too_large", f"takes more than {_MAX_BYTES} bytes of memory once it is parsed")


def _room(descriptor: Descriptor) -> int:
    return _MESSAGE_BYTES + _FIELD_BYTES * len(descriptor.fields)


def largest_inside(descriptor: Descriptor) -> int:
    """Return the bytes that the largest message inside takes."""
    seen: dict[str, int] = {}
    waiting = [field.message_type for field in descriptor.fields if field.message_type is not None]
    while waiting:
        one = waiting.pop()
        if one.full_name not in seen:
            seen[one.full_name] = _room(one)
            waiting += [field.message_type for field in one.fields if field.message_type is not None]
    return max(seen.values(), default=0)


def check_depth(descriptor: Descriptor) -> None:
    """Raise SchemaError for too many types, or too deep: protobuf makes their classes by recursion, in this order."""
    seen, waiting = {descriptor.full_name}, [iter(descriptor.fields)]
    while waiting:
        inner = next((one for field in waiting[-1] if (one := field.message_type) and one.full_name not in seen), None)
        if inner is None:
            waiting.pop()
        else:
            seen.add(inner.full_name)
            waiting.append(iter(inner.fields))
        if len(waiting) > _MAX_DEPTH or len(seen) > _MAX_TYPES:
            raise SchemaError(f"more than {_MAX_TYPES} types of messages in one, or more than {_MAX_DEPTH} deep")


def _taken(payload: bytes, descriptor: Descriptor) -> int:
    """Return the bytes that the messages inside take, roughly; stop above the limit."""
    total, waiting = 0, [(0, len(payload), descriptor)]
    while waiting and total <= _MAX_BYTES:
        at, end, of = waiting.pop()
        inner = {field.number: field.message_type for field in of.fields if field.message_type is not None}
        while at < end and total <= _MAX_BYTES:
            tag, at = _number(payload, at, end)
            wire, message = tag & 7, inner.get(tag >> 3)
            if wire == 0:
                _, at = _number(payload, at, end)
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            elif wire == 2:
                size, at = _number(payload, at, end)
                if message is not None:
                    total += _room(message)
                    waiting.append((at, min(at + size, end), message))
                at += size
            else:
                fail("malformed", "a large Protobuf message with groups, or not of its schema")
    return total


def _number(payload: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            fail("malformed", "not of its Protobuf schema")
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    fail("malformed", "not of its Protobuf schema")
