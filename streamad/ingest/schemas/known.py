"""The registered schemas that a process knows: a fetcher fills it, decoders read from it. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from streamad.errors import DecodeError, SchemaError
from streamad.ingest.schemas.framing import SchemaKey
from streamad.ingest.schemas.readers import message_reader
from streamad.ingest.schemas.registered import MessageReader, RegisteredSchema, SchemaKind

MOST_SCHEMAS: Final = 2_000
"""Further schemas are not read: their messages become dead letters."""
ASK_AGAIN_US: Final = 30_000_000
"""A schema that the registry does not have is asked for again after so long."""
_MOST_REFUSED: Final = 10_000


class KnownSchema(NamedTuple):
    """The reader of a schema's messages, and what tells it from any other schema."""

    reader: MessageReader
    kind: SchemaKind
    digest: str


class Readable(Protocol):
    """What decoders ask for the schemas of messages."""

    def known(self, schema: SchemaKey, offset: int) -> KnownSchema:
        """Return the schema of the record at ``offset``. Raises DecodeError (unknown_schema) without one."""


class Schemas:
    """The schemas of one registry by id or GUID, with those that it does not have, or that cannot be read.

    ``place`` is the registry's address, for people.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._known: dict[SchemaKey, KnownSchema] = {}
        self._refused: dict[SchemaKey, tuple[str, int]] = {}

    def get(self, schema: SchemaKey) -> KnownSchema | None:
        """Return a schema, None if it is not known."""
        return self._known.get(schema)

    def known(self, schema: SchemaKey, offset: int) -> KnownSchema:
        """Return a schema. Raises DecodeError (unknown_schema) with the reason why there is none."""
        found = self._known.get(schema)
        if found is None:
            why, _ = self._refused.get(schema, (f"schema {schema} is not known at {self.place}", 0))
            raise DecodeError("unknown_schema", why)
        return found

    def is_settled(self, schema: SchemaKey, now_us: int) -> bool:
        """Return whether a schema is known, or was refused a moment ago by the monotonic clock."""
        if schema in self._known:
            return True
        _, refused_us = self._refused.get(schema, ("", None))
        return refused_us is not None and now_us - refused_us < ASK_AGAIN_US

    def learn(self, schema: SchemaKey, found: RegisteredSchema, digest: str, now_us: int) -> None:
        """Note a schema that the registry has; one that cannot be read is refused."""
        if len(self._known) >= MOST_SCHEMAS:
            self.refuse(schema, f"schema {schema}: more than {MOST_SCHEMAS} schemas are in use already", now_us)
            return
        try:
            reader = message_reader(found)
        except SchemaError as error:
            self.refuse(schema, f"schema {schema} of {self.place} cannot be read: {error}", now_us)
            return
        self._known[schema] = KnownSchema(reader, found.kind, digest)
        self._refused.pop(schema, None)

    def refuse(self, schema: SchemaKey, why: str, now_us: int) -> None:
        """Note that there is no schema to read messages with, until it is asked for again."""
        self._refused.pop(schema, None)
        self._refused[schema] = why, now_us
        if len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
