"""The text of an Avro schema to its types, with every name resolved (Avro 1.12, "Schema Declaration").

A schema is not trusted: its depth is bounded, its text is bounded before, and each type is made once, however often it
is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import msgspec

from streamad.errors import SchemaError
from streamad.ingest.decode_values import shown
from streamad.ingest.schemas.avro.logical import Convert, conversion
from streamad.ingest.schemas.registered import MAX_NAME_CHARACTERS, RegisteredSchema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_DEPTH = 32
_PARSE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


@dataclass(slots=True, eq=False)
class Primitive:
    """A type without parts; ``convert`` changes its value as its logical type says."""

    name: str
    convert: Convert | None = None


@dataclass(slots=True, eq=False)
class Fixed:
    """So many bytes."""

    size: int
    convert: Convert | None = None


@dataclass(slots=True, eq=False)
class Enum:
    """One of some texts."""

    symbols: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Array:
    """A list of items."""

    items: Type


@dataclass(slots=True, eq=False)
class Map:
    """Values by texts."""

    values: Type


@dataclass(slots=True, eq=False)
class Union:
    """A value of one of some types."""

    branches: tuple[Type, ...]


@dataclass(slots=True, eq=False)
class RecordType:
    """Fields in order."""

    name: str
    fields: list[tuple[str, Type]] = field(default_factory=list)


Type: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | RecordType

_Named = TypeVar("_Named", Fixed, Enum, RecordType)


def avro_type(schema: RegisteredSchema) -> Type:
    """Return the type of the messages of a schema. Raises SchemaError."""
    names = _Names()
    for text in _texts(schema, set()):
        found = names.read(_parsed(text))
    return found


def _texts(schema: RegisteredSchema, seen: set[str]) -> Iterator[str]:
    """Yield the texts of a schema, those that it refers to first, each once."""
    for _, reference in schema.references:
        if reference.text not in seen:
            seen.add(reference.text)
            yield from _texts(reference, seen)
    yield schema.text


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except _PARSE_ERRORS as error:
        if text in PRIMITIVES:  # some registries give it without quotes
            return text
        raise SchemaError(f"not JSON: {str(error)[:120]}") from None


class _Names:
    """Reads types; those with a name stay known."""

    def __init__(self) -> None:
        self._known: dict[str, Type] = {}

    def read(self, given: Any, space: str = "", depth: int = 0) -> Type:
        """Return the type that a part of a schema describes, in the namespace ``space``. Raises SchemaError."""
        if depth > MAX_DEPTH:
            raise SchemaError(f"nested more than {MAX_DEPTH} deep")
        if isinstance(given, str):
            return self._named(given, space)
        if isinstance(given, list):
            if not given or any(isinstance(branch, list) for branch in given):
                raise SchemaError("a union without a type, or in a union")
            return Union(tuple(self.read(branch, space, depth + 1) for branch in given))
        if not isinstance(given, dict):
            raise SchemaError(f"{shown(given)} stands where a type should be")
        kind = given.get("type")
        return (
            self._described(kind, given, space, depth) if isinstance(kind, str) else self.read(kind, space, depth + 1)
        )

    def _described(self, kind: str, given: dict[str, Any], space: str, depth: int) -> Type:
        if kind in PRIMITIVES:
            return Primitive(kind, conversion(kind, given))
        found: Type
        if kind == "array":
            found = Array(self.read(given.get("items"), space, depth + 1))
        elif kind == "map":
            found = Map(self.read(given.get("values"), space, depth + 1))
        elif kind in ("record", "error"):
            found = self._record(given, space, depth)
        elif kind == "enum":
            found = self._add(given, space, Enum(_symbols(given)))
        elif kind == "fixed":
            found = self._add(given, space, Fixed(_size(given), conversion(kind, given)))
        else:
            found = self._named(kind, space)
        return found

    def _named(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(name)
        found = self._known.get(f"{space}.{name}") if space and "." not in name else None
        found = found or self._known.get(name)
        if found is None:
            raise SchemaError(f"the type {shown(name)} is not defined in it or before its place")
        return found

    def _record(self, given: dict[str, Any], space: str, depth: int) -> RecordType:
        record = self._add(given, space, RecordType(str(given.get("name"))))
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f"record {shown(record.name)}: its fields must be a list")
        inner = _full_name(given, space).rpartition(".")[0]
        names = set()
        for one in fields:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise SchemaError(f"record {shown(record.name)}: a field without a name")
            if one["name"] in names:
                raise SchemaError(f"record {shown(record.name)}: two fields {shown(one['name'])}")
            names.add(one["name"])
            record.fields.append((one["name"], self._field(one, inner, depth)))
        return record

    def _field(self, given: dict[str, Any], space: str, depth: int) -> Type:
        kind = given.get("type")
        if isinstance(kind, str) and kind in PRIMITIVES:
            # Many write a field's logical type beside its type, where Avro's own libraries pass it over.
            return Primitive(kind, conversion(kind, given))
        return self.read(kind, space, depth + 1)

    def _add(self, given: dict[str, Any], space: str, found: _Named) -> _Named:
        name = _full_name(given, space)
        if len(name) > MAX_NAME_CHARACTERS:
            raise SchemaError(f"a name of more than {MAX_NAME_CHARACTERS} characters, with its namespace")
        if name in self._known or name in PRIMITIVES:
            raise SchemaError(f"the type {shown(name)} is defined twice")
        self._known[name] = found
        return found


def _full_name(given: dict[str, Any], space: str) -> str:
    name, own = given.get("name"), given.get("namespace")
    if not isinstance(name, str) or not name:
        raise SchemaError("a record, enum or fixed type without a name")
    if "." in name:
        return name
    space = own if isinstance(own, str) else space
    return f"{space}.{name}" if space else name


def _symbols(given: dict[str, Any]) -> tuple[str, ...]:
    symbols = given.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise SchemaError(f"enum {shown(given.get('name'))}: its symbols must be a list of texts")
    return tuple(symbols)


def _size(given: dict[str, Any]) -> int:
    size = given.get("size")
    if type(size) is not int or size < 0:
        raise SchemaError(f"fixed {shown(given.get('name'))}: its size must be a whole number from 0 on")
    return size
