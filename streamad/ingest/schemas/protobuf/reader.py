"""Protobuf messages by the names of their fields in the .proto text (developers.google.com, "Encoding", "ProtoJSON").

A field without presence (proto3 without ``optional``) that is absent is 0, which is a reading; one with presence is
missing, whatever default proto2 names. Enums are their names, 64-bit numbers are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError as ParseError

from streamad.errors import SchemaError
from streamad.ingest.decode_values import fail
from streamad.ingest.schemas.framing import Framed
from streamad.ingest.schemas.protobuf.files import SchemaFiles
from streamad.ingest.schemas.protobuf.known import Charge, known_type
from streamad.ingest.schemas.protobuf.memory import check_depth, check_memory, largest_inside
from streamad.ingest.schemas.registered import RegisteredSchema

_MAX_PARTS = 1_000_000  # messages, and fields that are absent and have a default, of a message
_MAX_INDEXES = 100

Convert = Callable[[Any, Charge], Any]
Step = Callable[[Any, Charge, dict[str, Any]], None]


class ProtobufReader:
    """Reads the messages of one schema; a MessageReader. Raises SchemaError."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._files = SchemaFiles(schema)
        self._messages = _Messages()
        self._first = self._root((0,))
        self._others: dict[tuple[int, ...], _Root | None] = {}
        if self._first is None:
            raise SchemaError("a Protobuf schema without a message")

    def read(self, value: bytes, framed: Framed) -> Any:
        """Return the message. Raises DecodeError (malformed, too_large)."""
        if framed.rest is not None:
            indexes, at = _indexes(framed.rest, 0)[0] if framed.rest else (0,), framed.at
        elif value[framed.at : framed.at + 1] == b"\0":
            indexes, at = (0,), framed.at + 1
        else:
            indexes, at = _indexes(value, framed.at)
        root = self._first if indexes == (0,) else self._other(indexes)
        if root is None:
            fail("malformed", f"its schema has no message at the place {list(indexes)[:10]}")
        return root.read(value[at:])

    def _other(self, indexes: tuple[int, ...]) -> _Root | None:
        if indexes not in self._others:
            try:
                root = self._root(indexes)
            except SchemaError as error:
                fail("malformed", f"message {list(indexes)[:10]} of its schema: {error}")
            if root is None:
                return None
            self._others[indexes] = root  # as many as the schema has messages
        return self._others[indexes]

    def _root(self, indexes: tuple[int, ...]) -> _Root | None:
        descriptor = self._files.message(indexes)
        return None if descriptor is None else _Root(descriptor, self._messages)


def _indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the places that lead to a message's type, and where they end. Raises DecodeError."""
    n, at = _zigzag(data, at)
    if n == 0:
        return (0,), at
    if not 0 < n <= _MAX_INDEXES:
        fail("malformed", f"{n} message indexes")
    found = []
    for _ in range(n):
        index, at = _zigzag(data, at)
        found.append(index)
    return tuple(found), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            fail("malformed", "its message indexes are cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    fail("malformed", "a message index of more than 32 bits")


class _Root:
    """Reads the bytes of one type of message."""

    def __init__(self, descriptor: Descriptor, messages: _Messages) -> None:
        check_depth(descriptor)
        self._class = message_factory.GetMessageClass(descriptor)
        self._descriptor = descriptor
        self._largest = largest_inside(descriptor)
        self._convert = messages.converter(descriptor)

    def read(self, payload: bytes) -> Any:
        check_memory(payload, self._descriptor, self._largest)
        message = self._class()
        try:
            # Of the class: a field may have the method's name.
            self._class.ParseFromString(message, payload)
        except ParseError:
            fail("malformed", "not of its Protobuf schema")
        left = _MAX_PARTS + len(payload) // 2  # a field that is there takes two bytes

        def charge(n: int) -> None:
            nonlocal left
            left -= n
            if left < 0:
                fail("too_large", f"holds more than {_MAX_PARTS} messages and absent fields")

        return self._convert(message, charge)


class _Messages:
    """Makes converters of messages to objects; each type has one, whose steps its first message makes.

    So as much of a schema is gone through as messages use, and no deeper than they are nested.
    """

    def __init__(self) -> None:
        self._converters: dict[str, Convert] = {}

    def converter(self, descriptor: Descriptor) -> Convert:
        """Return what makes an object of a parsed message."""
        known = known_type(descriptor.full_name, descriptor.file.name) or self._converters.get(descriptor.full_name)
        if known is not None:
            return known
        steps: list[Step] = []
        cost = 0

        def convert(message: Any, charge: Charge) -> dict[str, Any]:
            nonlocal cost
            if not cost:
                steps.extend(self._made(descriptor))
                cost = 1 + sum(not field.has_presence for field in descriptor.fields)
            charge(cost)
            found: dict[str, Any] = {}
            for step in steps:
                step(message, charge, found)
            return found

        self._converters[descriptor.full_name] = convert
        return convert

    def _made(self, descriptor: Descriptor) -> list[Step]:
        plain = [field for field in descriptor.fields if _is_plain(field)]
        always = [field.name for field in plain if not field.has_presence]
        steps = [_several(always)] if always else []
        has = message_factory.GetMessageClass(descriptor).HasField
        perhaps = [field.name for field in plain if field.has_presence]
        steps += [_present(perhaps, has)] if perhaps else []
        for field in descriptor.fields:
            if _is_plain(field):
                continue
            if _is_map(field):
                steps.append(_map(field.name, self._of_values(field.message_type.fields_by_name["value"])))
            elif field.is_repeated:
                steps.append(_list(field.name, self._of_values(field)))
            elif field.has_presence:
                steps.append(_if_present(field.name, has, self._of_values(field)))
            else:
                steps.append(_always(field.name, self._of_values(field)))
        return steps

    def _of_values(self, field: FieldDescriptor) -> Convert | None:
        """Return what converts each value of a field; None if it stays."""
        if field.message_type is not None:
            return self.converter(field.message_type)
        return None if field.enum_type is None else _enum(field)


def _is_plain(field: FieldDescriptor) -> bool:
    """Return whether a field holds one number, text or bytes."""
    return not field.is_repeated and field.message_type is None and field.enum_type is None


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


def _enum(field: FieldDescriptor) -> Convert:
    names = {value.number: value.name for value in reversed(field.enum_type.values)}  # of two names the first

    def convert(value: Any, charge: Charge) -> Any:
        return names.get(value, value)

    return convert


def _several(names: list[str]) -> Step:
    values_of = attrgetter(*names, names[0])  # never alone, which would not be a tuple

    def step(message: Any, charge: Charge, found: dict[str, Any]) -> None:
        found.update(zip(names, values_of(message), strict=False))

    return step


def _present(names: list[str], has: Callable[[Any, str], bool]) -> Step:
    def step(message: Any, charge: Charge, found: dict[str, Any]) -> None:
        for name in names:
            if has(message, name):
                found[name] = getattr(message, name)

    return step


def _if_present(name: str, has: Callable[[Any, str], bool], convert: Convert | None) -> Step:
    def step(message: Any, charge: Charge, found: dict[str, Any]) -> None:
        if has(message, name):
            value = getattr(message, name)
            found[name] = value if convert is None else convert(value, charge)

    return step


def _always(name: str, convert: Convert | None) -> Step:
    def step(message: Any, charge: Charge, found: dict[str, Any]) -> None:
        value = getattr(message, name)
        found[name] = value if convert is None else convert(value, charge)

    return step


def _list(name: str, convert: Convert | None) -> Step:
    def step(message: Any, charge: Charge, found: dict[str, Any]) -> None:
        values = getattr(message, name)
        found[name] = list(values) if convert is None else [convert(value, charge) for value in values]

    return step


def _map(name: str, convert: Convert | None) -> Step:
    def step(message: Any, charge: Charge, found: dict[str, Any]) -> None:
        values = getattr(message, name)
        found[name] = {_key(key): values[key] if convert is None else convert(values[key], charge) for key in values}

    return step


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
