"""Where a message names its registered schema: before its payload, or in a header of its record.

Confluent's wire format (docs.confluent.io, "Wire format"): 0x00 and four bytes of id, or 0x01 and a GUID; either stands
before the payload, or in the header ``__value_schema_id``, which wins. Protobuf's message indexes follow it there.
Not read: Apicurio's headers, and ids of eight bytes (Apicurio's default before version 3), which begin with four of 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias
from uuid import UUID

from streamad.ingest.decode_values import fail, shown
from streamad.types import Record

SchemaKey: TypeAlias = int | str
"""A schema's id, or its GUID as text in lower case."""

_ID, _GUID = 0, 1
LAST_FRAMING = _GUID
"""No message that a serializer has framed begins with a greater byte."""
_ID_END, _GUID_END = 5, 17
_IDS = 2**31  # a registry's ids are Java's positive integers: no greater one can be asked for
_SHORT = 64
_APICURIO = (
    "set apicurio.registry.headers.enabled=false and apicurio.registry.use-id=contentId, with ids of four bytes "
    "(version 2: apicurio.registry.as-confluent=true; the default of version 3)"
)


class Framed(NamedTuple):
    """The schema of a message, and where its payload begins.

    ``rest`` is what follows the schema's id in the header: Protobuf's message indexes. None: they begin the payload.
    """

    schema: SchemaKey
    at: int
    rest: bytes | None = None


def framed(record: Record) -> Framed | None:
    """Return how ``record`` names its schema, None if it names none.

    Raises DecodeError (schema_registry) for a framing that is not read.
    """
    if record.schema is not None:
        return _short_header(record.schema) if len(record.schema) <= _SHORT else _in_header(record.schema)
    value = record.value
    if len(value) < _ID_END or value[0] > _GUID:
        return None
    if value[0] == _ID:
        return _with_id(value[:_ID_END])
    return None if len(value) < _GUID_END else Framed(str(UUID(bytes=value[1:_GUID_END])), _GUID_END)


@lru_cache(maxsize=1_000)  # a topic has few
def _with_id(head: bytes) -> Framed | None:
    schema = int.from_bytes(head[1:], "big")
    if schema == 0:
        fail("schema_registry", f"framed with schema id 0, as ids of eight bytes begin (Apicurio): {_APICURIO}")
    return Framed(schema, _ID_END) if schema < _IDS else None


@lru_cache(maxsize=1_000)
def _short_header(text: str) -> Framed:
    return _in_header(text)


def _in_header(text: str) -> Framed:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        fail("schema_registry", f"a header names schema {shown(text)}, which is not read: {_APICURIO}")
    if len(found) >= _ID_END and found[0] == _ID:
        schema = int.from_bytes(found[1:_ID_END], "big")
        if schema == 0:
            fail("schema_registry", f"a header names {shown(text)}, with eight bytes of id (Apicurio): {_APICURIO}")
        if schema < _IDS:
            return Framed(schema, 0, found[_ID_END:])
    if len(found) >= _GUID_END and found[0] == _GUID:
        return Framed(str(UUID(bytes=found[1:_GUID_END])), 0, found[_GUID_END:])
    fail("schema_registry", f"a header names schema {shown(text)}: neither 00 and an id, nor 01 and a GUID")
