"""A registered schema, and the port of what reads its messages."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from streamad.errors import SchemaError
from streamad.ingest.schemas.framing import Framed

SchemaKind: TypeAlias = Literal["avro", "json", "protobuf"]

MAX_SCHEMA_CHARACTERS = 4_000_000  # 49,000 channels as nullable Avro fields have 3,500,000
MAX_REFERENCES = 1_000
MAX_NAME_CHARACTERS = 500  # each part of a schema has a name of its own, which repeats those around it
_MAX_DEPTH = 100


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema as its registry gives it, with those that it refers to, by the names that it uses for them.

    ``text`` of Protobuf is the .proto text, or the Base64 of a FileDescriptorProto (``?format=serialized``): the same
    messages are read.
    """

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


class MessageReader(Protocol):
    """Reads the messages of one schema."""

    def read(self, value: bytes, framed: Framed) -> Any:
        """Return the message in ``value`` as JSON would give it: dict, list, str, int, float, bool, None.

        Points in time are a datetime (without a zone: local), which no unit of the settings changes; bytes stay bytes.
        Raises DecodeError (malformed, too_large), and nothing else, whatever the bytes.
        """


def check_size(schema: RegisteredSchema) -> None:
    """Raise SchemaError if ``schema`` and all it refers to are too long, too many, or too deep."""
    n_characters, n_schemas, waiting = 0, 0, [(schema, 0)]
    while waiting:
        one, depth = waiting.pop()
        n_characters += len(one.text)
        n_schemas += 1
        if n_characters > MAX_SCHEMA_CHARACTERS:
            raise SchemaError(f"a schema of more than {MAX_SCHEMA_CHARACTERS} characters, with its references")
        if n_schemas > MAX_REFERENCES or depth > _MAX_DEPTH:
            raise SchemaError(f"a schema with more than {MAX_REFERENCES} references, or more than {_MAX_DEPTH} deep")
        waiting += [(reference, depth + 1) for _, reference in one.references]
