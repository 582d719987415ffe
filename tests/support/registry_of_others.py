"""Confluent's serializers (confluent-kafka), which write messages that streamad must read, and their mock registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from uuid import uuid4

from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from streamad.ingest.schemas.framing import Framed, framed
from streamad.ingest.schemas.registered import RegisteredSchema, SchemaKind
from streamad.types import Record

Framing = Literal["prefix", "header"]
FRAMINGS: tuple[Framing, ...] = ("prefix", "header")
_KINDS: dict[str, SchemaKind] = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}


def mock_registry() -> Any:
    """Return a client of a registry of its own, in memory."""
    return SchemaRegistryClient.new_client({"url": f"mock://{uuid4()}"})


def options(framing: Framing) -> dict[str, Any]:
    """Return the option of a serializer for where it names the schema."""
    by_name = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}
    return {"schema.id.serializer": by_name[framing]}


def record_of(serializer: Callable[..., bytes], message: Any, topic: str = "samples") -> Record:
    """Return the record that a producer with ``serializer`` would write."""
    headers: list[tuple[str, bytes]] = []
    value = serializer(message, SerializationContext(topic, MessageField.VALUE, headers))
    named = dict(headers).get("__value_schema_id")
    return Record(0, value, schema=None if named is None else named.hex())


def registered(client: Any, record: Record) -> tuple[Framed, RegisteredSchema]:
    """Return how ``record`` names its schema, and that schema."""
    found = framed(record)
    assert found is not None
    by_guid = isinstance(found.schema, str)
    schema = client.get_schema_by_guid(found.schema) if by_guid else client.get_schema(found.schema)
    return found, _of(client, schema)


def _of(client: Any, schema: Schema) -> RegisteredSchema:
    references = tuple(
        (one.name, _of(client, client.get_version(one.subject, one.version).schema)) for one in schema.references or ()
    )
    assert schema.schema_type is not None
    assert schema.schema_str is not None
    return RegisteredSchema(_KINDS[schema.schema_type], schema.schema_str, references)
