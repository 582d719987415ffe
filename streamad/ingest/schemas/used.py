"""The schemas that a partition's records were read with: the law of restarts for registered schemas. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamad.errors import DecodeError, SourceError
from streamad.ingest.schemas.framing import LAST_FRAMING, SchemaKey, framed
from streamad.ingest.schemas.known import KnownSchema, Schemas
from streamad.partition_progress import Progress, UsedSchema
from streamad.types import Record

if TYPE_CHECKING:
    from streamad.ingest.decode import Decoder

_LAST_FRAMING: Final = bytes([LAST_FRAMING])
MOST_USED: Final = 1_000
"""Records between LWM and N were read with so many schemas at most: those of further ones become dead letters."""


@dataclass(slots=True)
class _Use:
    """Records from ``first`` to ``last`` were read with a schema; ``known``: it was found to be the same here."""

    first: int
    last: int
    digest: str
    known: KnownSchema | None = None


class UsedSchemas:
    """The schemas that records of one partition were read with, as its progress keeps them.

    Law: a record below N (``resume_at``) is read with a schema if it was at the first reading, and not otherwise,
    whatever the registry says since. Registered later, it stays unknown there; gone, or another one by the same id, it
    is a SourceError.
    """

    def __init__(
        self, schemas: Schemas, partition: str, saved: Mapping[str, UsedSchema] | None = None, resume_at: int = 0
    ) -> None:
        self._schemas = schemas
        self._partition = partition
        self._uses = {_key(schema): _Use(use.first, use.last, use.digest) for schema, use in (saved or {}).items()}
        self._resume_at = resume_at
        self._asked: Collection[SchemaKey] = ()

    def wanted(self, records: Iterable[Record], now_us: int) -> dict[SchemaKey, int]:
        """Return the schemas to ask for before ``records`` are decoded, each with the first offset that needs it.

        What the last call returned was asked for since, and is not wanted again, however long that took.
        """
        found: dict[SchemaKey, int] = {}
        for record in records:
            if record.schema is None and record.value[:1] > _LAST_FRAMING:
                continue  # the usual message without a schema
            if (schema := _schema_of(record)) is None or schema in found or schema in self._asked:
                continue
            if self._may_read(schema, record.offset) and not self._schemas.is_settled(schema, now_us):
                found[schema] = record.offset
        self._asked = found.keys()
        return found

    def known(self, schema: SchemaKey, offset: int) -> KnownSchema:
        """Return the schema of the record at ``offset``, and note that it was read with it.

        Raises DecodeError (unknown_schema) if there is none, SourceError if it was there at the first reading.
        """
        use = self._uses.get(schema)
        if use is not None and use.known is not None and use.first <= offset:
            use.last = max(use.last, offset)
            return use.known
        if not self._may_read(schema, offset):
            if offset < self._resume_at:
                raise DecodeError("unknown_schema", f"schema {schema} was not known when this was read first")
            raise DecodeError("unknown_schema", f"schema {schema}: more than {MOST_USED} schemas are in use already")
        try:
            found = self._schemas.known(schema, offset)
        except DecodeError as error:
            if use is None:
                raise
            raise SourceError(self._changed(schema, use, f"cannot be had any more ({error})")) from None
        if use is None:
            use = self._uses[schema] = _Use(offset, offset, found.digest)
        elif use.digest != found.digest:
            raise SourceError(self._changed(schema, use, "is another one now"))
        use.known, use.last = found, max(use.last, offset)
        return found

    def saved(self, low_watermark: int) -> dict[str, UsedSchema]:
        """Return what a restart from ``low_watermark`` on must know; the rest is forgotten."""
        self._uses = {schema: use for schema, use in self._uses.items() if use.last >= low_watermark}
        return {str(schema): UsedSchema(use.first, use.last, use.digest) for schema, use in self._uses.items()}

    def _may_read(self, schema: SchemaKey, offset: int) -> bool:
        use = self._uses.get(schema)
        if offset < self._resume_at:
            return use is not None and use.first <= offset
        return use is not None or len(self._uses) < MOST_USED

    def _changed(self, schema: SchemaKey, use: _Use, how: str) -> str:
        return (
            f"{self._partition}: records from offset {use.first} on were read with schema {schema} of "
            f"{self._schemas.place}, which {how}, so their sequences cannot be read as before: restore it there"
        )


def by_partition(decoder: Decoder, partition: str, progress: Progress | None) -> tuple[UsedSchemas | None, Decoder]:
    """Return what notes the schemas of a partition's records, None without a registry, and a decoder that asks it."""
    if not isinstance(decoder.schemas, Schemas):
        return None, decoder
    saved, resume_at = ({}, 0) if progress is None else (progress.schemas, progress.next_offset)
    used = UsedSchemas(decoder.schemas, partition, saved, resume_at)
    return used, decoder.reading_by(used)


def _schema_of(record: Record) -> SchemaKey | None:
    if record.native:
        return None
    try:
        found = framed(record)
    except DecodeError:
        return None
    return None if found is None else found.schema


def _key(saved: str) -> SchemaKey:
    return int(saved) if saved.isdecimal() else saved
