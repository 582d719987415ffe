"""Messages in Avro's binary encoding (Avro 1.12, "Binary Encoding"), read with the schema that they were written with.

Fields appear by the names that the writer's schema gives them, so an evolved schema needs no second one: ``decode``
asks for names and takes what is there. Unions give the value alone.
The reader is ours and not fastavro's: hostile bytes must end (an array of 2^60 nulls takes nine bytes), and records of
many numbers are read eight times as fast, by ``struct`` (benchmarks/speed/schemas.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from streamad.errors import SchemaError
from streamad.ingest.decode_values import fail
from streamad.ingest.schemas.avro.logical import Convert
from streamad.ingest.schemas.avro.runs import Run, fixed_code
from streamad.ingest.schemas.avro.types import (
    MAX_DEPTH,
    Array,
    Enum,
    Map,
    Primitive,
    RecordType,
    Type,
    Union,
    avro_type,
)
from streamad.ingest.schemas.avro.values import PRIMITIVE_READERS, Read, State, charge, read_long
from streamad.ingest.schemas.framing import Framed
from streamad.ingest.schemas.registered import RegisteredSchema

_MAX_PARTS = 1_000_000  # records, lists, maps, and values without bytes of a message
_MAX_RECURSION = 64

Step: TypeAlias = Callable[[bytes, int, State, dict[str, Any]], int]
Part: TypeAlias = tuple[str, Read, Step | None]
"""A field with its reader, or what reads a run of fields."""


class AvroReader:
    """Reads the messages of one schema; a MessageReader. Raises SchemaError."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._read = _Compiler().reader(avro_type(schema), 0).read

    def read(self, value: bytes, framed: Framed) -> Any:
        """Return the message. Raises DecodeError (malformed, too_large)."""
        try:
            message, at = self._read(value, framed.at, [_MAX_PARTS, 0])
        except (IndexError, struct.error):
            fail("malformed", "not of its Avro schema: it ends too early")
        except UnicodeDecodeError:
            fail("malformed", "not of its Avro schema: text that is not UTF-8")
        except RecursionError:
            fail("malformed", "nested too deeply")
        if at != len(value):
            fail("malformed", f"not of its Avro schema: {len(value) - at} bytes follow the message")
        return message


class _Compiled(NamedTuple):
    """A reader, the levels below it, and whether its values have no bytes."""

    read: Read
    height: int
    is_empty: bool


class _Compiler:
    """Makes readers of types; each type has one."""

    def __init__(self) -> None:
        self._done: dict[int, _Compiled] = {}
        self._open: dict[int, tuple[int, list[Read]]] = {}  # records that are being made: their depth and their reader

    def reader(self, of: Type, depth: int) -> _Compiled:
        """Return the reader of a type at ``depth``. Raises SchemaError."""
        if id(of) in self._open:
            return self._recursive(of, depth)
        found = self._done.get(id(of))
        if depth + (found.height if found else 0) > MAX_DEPTH:
            raise SchemaError(f"its types are nested more than {MAX_DEPTH} deep")
        if found is None:
            found = self._done[id(of)] = self._made(of, depth)
        return found

    def _made(self, of: Type, depth: int) -> _Compiled:
        if isinstance(of, RecordType):
            return self._record(of, depth)
        if isinstance(of, Union | Array | Map):
            return self._container(of, depth)
        if isinstance(of, Enum):
            return _Compiled(_enum(of.symbols), 0, False)
        if isinstance(of, Primitive):
            return _Compiled(_converted(PRIMITIVE_READERS[of.name], of.convert), 0, of.name == "null")
        return _Compiled(_converted(_fixed(of.size), of.convert), 0, of.size == 0)

    def _container(self, of: Union | Array | Map, depth: int) -> _Compiled:
        inner = of.branches if isinstance(of, Union) else (of.items if isinstance(of, Array) else of.values,)
        parts = [self.reader(part, depth + 1) for part in inner]
        if isinstance(of, Union):
            nulls = [at for at, one in enumerate(inner) if isinstance(one, Primitive) and one.name == "null"]
            read = _union(tuple(part.read for part in parts), nulls[0] if nulls else None)
        elif isinstance(of, Map):
            read = _map(parts[0].read)
        else:
            is_doubles = isinstance(of.items, Primitive) and of.items.name == "double"
            read = _doubles if is_doubles else _array(parts[0].read, parts[0].is_empty)
        return _Compiled(read, 1 + max([part.height for part in parts], default=0), False)

    def _record(self, of: RecordType, depth: int) -> _Compiled:
        itself: list[Read] = []
        self._open[id(of)] = (depth, itself)
        fields = [(name, self.reader(part, depth + 1), part) for name, part in of.fields]
        del self._open[id(of)]
        parts: list[Part] = []
        run: list[tuple[str, str, Read]] = []
        for name, compiled, part in fields:
            code = fixed_code(part)
            if code is not None:
                run.append((name, code, compiled.read))
                continue
            parts += _run(run)
            run = []
            parts.append((name, compiled.read, None))
        parts += _run(run)
        cost = 1 + sum(compiled.is_empty for _, compiled, _ in fields)
        itself.append(_record(tuple(parts), dict.fromkeys(name for name, _ in of.fields), cost))
        is_empty = all(compiled.is_empty for _, compiled, _ in fields)
        return _Compiled(itself[0], 1 + max([compiled.height for _, compiled, _ in fields], default=0), is_empty)

    def _recursive(self, of: Type, depth: int) -> _Compiled:
        """Return the reader of a record inside itself, which its own reader will be."""
        own_depth, itself = self._open[id(of)]
        levels = depth - own_depth

        def read(data: bytes, at: int, state: State) -> tuple[Any, int]:
            state[1] += levels
            if state[1] > _MAX_RECURSION:
                fail("malformed", f"nested more than {_MAX_RECURSION} deep")
            found = itself[0](data, at, state)
            state[1] -= levels
            return found

        return _Compiled(read, 0, False)


def _converted(read: Read, convert: Convert | None) -> Read:
    if convert is None:
        return read

    def converted(data: bytes, at: int, state: State) -> tuple[Any, int]:
        value, at = read(data, at, state)
        return convert(value), at

    return converted


def _fixed(size: int) -> Read:
    def read(data: bytes, at: int, state: State) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise IndexError
        return data[at:end], end

    return read


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(data: bytes, at: int, state: State) -> tuple[str, int]:
        index, at = read_long(data, at, state)
        if not 0 <= index < len(symbols):
            fail("malformed", f"not of its Avro schema: symbol {index} of an enum of {len(symbols)}")
        return symbols[index], at

    return read


def _union(branches: tuple[Read, ...], null: int | None) -> Read:
    if null is not None and len(branches) == 2:
        return _nullable(branches[1 - null], 2 * null)

    def read(data: bytes, at: int, state: State) -> tuple[Any, int]:
        index, at = read_long(data, at, state)
        if not 0 <= index < len(branches):
            fail("malformed", f"not of its Avro schema: branch {index} of a union of {len(branches)}")
        return branches[index](data, at, state)

    return read


def _nullable(read_one: Read, null: int) -> Read:
    """Return the reader of a value or null, of which ``null`` is the byte."""
    value = 2 - null

    def read(data: bytes, at: int, state: State) -> tuple[Any, int]:
        branch = data[at]
        if branch == value:
            return read_one(data, at + 1, state)
        if branch == null:
            return None, at + 1
        fail("malformed", f"not of its Avro schema: byte {branch} where one of two branches begins")

    return read


def _block(data: bytes, at: int, state: State) -> tuple[int, int]:
    """Return the number of items of a block, and where they begin; a negative one has its bytes behind it."""
    n, at = read_long(data, at, state)
    if n >= 0:
        return n, at
    _, at = read_long(data, at, state)
    return -n, at


def _array(item: Read, is_empty: bool) -> Read:
    def read(data: bytes, at: int, state: State) -> tuple[list[Any], int]:
        charge(state, 1)
        items: list[Any] = []
        while True:
            n, at = _block(data, at, state)
            if n == 0:
                return items, at
            if is_empty:
                charge(state, n)
            elif n > len(data) - at:
                raise IndexError
            for _ in range(n):
                value, at = item(data, at, state)
                items.append(value)

    return read


def _doubles(data: bytes, at: int, state: State) -> tuple[list[float], int]:
    charge(state, 1)
    items: list[float] = []
    while True:
        n, at = _block(data, at, state)
        if n == 0:
            return items, at
        if 8 * n > len(data) - at:
            raise IndexError
        items += struct.unpack_from(f"<{n}d", data, at)
        at += 8 * n


def _map(value_of: Read) -> Read:
    key_of = PRIMITIVE_READERS["string"]

    def read(data: bytes, at: int, state: State) -> tuple[dict[str, Any], int]:
        charge(state, 1)
        found: dict[str, Any] = {}
        while True:
            n, at = _block(data, at, state)
            if n == 0:
                return found, at
            if n > len(data) - at:
                raise IndexError
            for _ in range(n):
                key, at = key_of(data, at, state)
                found[key], at = value_of(data, at, state)

    return read


def _run(fields: list[tuple[str, str, Read]]) -> list[Part]:
    """Return the parts of fields of fixed size that follow each other."""
    if len(fields) < 2:
        return [(name, read, None) for name, _, read in fields]
    return [("", PRIMITIVE_READERS["null"], Run(fields).step)]


def _record(parts: tuple[Part, ...], empty: dict[str, Any], cost: int) -> Read:
    def read(data: bytes, at: int, state: State) -> tuple[dict[str, Any], int]:
        charge(state, cost)
        message = empty.copy()  # of its final size: quicker than one that grows
        for name, field, run in parts:
            if run is None:
                message[name], at = field(data, at, state)
            else:
                at = run(data, at, state, message)
        return message, at

    return read
