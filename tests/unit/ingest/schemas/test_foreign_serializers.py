"""Messages that Confluent's own serializers write are read back equal, wherever they name their schema."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

from streamad.ingest.schemas.readers import message_reader
from tests.support.protoc import classes, compiled
from tests.support.registry_of_others import FRAMINGS, Framing, mock_registry, options, record_of, registered

READING = {"type": "record", "name": "plant.Reading", "fields": [{"name": "v", "type": ["null", "double"]}]}
AVRO = {
    "type": "record",
    "name": "Sample",
    "namespace": "plant",
    "fields": [
        {"name": "stream", "type": "string"},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "temp", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "readings", "type": {"type": "map", "values": "plant.Reading"}},
    ],
}
NOON = datetime(2026, 3, 1, 12, 0, 0, 250_001, tzinfo=UTC)
PROTO = """
syntax = "proto3";
package plant;
import "google/protobuf/timestamp.proto";
import "shared/unit.proto";
message First {}
message Batch {
  message Sample {
    string stream = 1; google.protobuf.Timestamp time = 2; optional double temp = 3; shared.Unit unit = 4;
  }
}
"""
UNIT = 'syntax = "proto3"; package shared; message Unit { string name = 1; }'


def read_back(client: Any, serializer: Any, message: Any) -> Any:
    framed, schema = registered(client, record := record_of(serializer, message))
    return message_reader(schema).read(record.value, framed)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_avro_with_a_reference(framing: Framing) -> None:
    client = mock_registry()
    client.register_schema("reading", Schema(json.dumps(READING), "AVRO"))
    schema = Schema(json.dumps(AVRO), "AVRO", [SchemaReference("plant.Reading", "reading", 1)])
    serializer = AvroSerializer(client, schema, conf=options(framing))
    message = {"stream": "r1", "time": NOON, "temp": Decimal("81.25"), "readings": {"a": {"v": 1.5}, "b": {"v": None}}}
    assert read_back(client, serializer, message) == {**message, "temp": 81.25}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_json_schema(framing: Framing) -> None:
    client = mock_registry()
    schema = json.dumps({"title": "Sample", "type": "object", "properties": {"stream": {"type": "string"}}})
    message = {"stream": "r1", "time": "2026-03-01T12:00:00Z", "values": {"temp": 81.25, "ph": None}}
    assert read_back(client, JSONSerializer(schema, client, conf=options(framing)), message) == message


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("name", ["plant.First", "plant.Batch", "plant.Batch.Sample"])
def test_protobuf_with_an_import_and_any_message_of_its_file(framing: Framing, name: str) -> None:
    client = mock_registry()
    made = classes(compiled({"plant.proto": PROTO, "shared/unit.proto": UNIT}))(name)
    serializer = ProtobufSerializer(made, client, {"use.deprecated.format": False, **options(framing)})
    message, expected = made(), {}
    if name.endswith("Sample"):
        message.stream, message.temp, message.unit.name = "r1", 81.25, "bar"
        message.time.FromDatetime(NOON)
        expected = {"stream": "r1", "time": NOON, "temp": 81.25, "unit": {"name": "bar"}}
    assert read_back(client, serializer, message) == expected
