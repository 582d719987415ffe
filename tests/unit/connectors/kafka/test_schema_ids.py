"""The schema that a sink's messages name in a header: Confluent's own deserializer reads them by it."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import ValidationError

from streamad.errors import OutputError
from streamad.messages import OutputRecord, message_schemas
from streamad_connectors.kafka.client.options import KafkaSinkOptions
from streamad_connectors.kafka.writing.messages import encode, size_bytes
from tests.support.registry_of_others import mock_registry
from tests.unit.connectors.kafka.test_messages import ALERT

HEADER = "__value_schema_id"


def test_confluents_deserializer_reads_an_alert_by_its_header() -> None:
    registry = mock_registry()
    schema = json.dumps(message_schemas()["alert"])
    registered = registry.register_schema("alerts-value", Schema(schema, "JSON"))
    (message,) = encode(OutputRecord("alerts", "r1", ALERT), "alerts", 900_000, {"alert": registered})
    context = SerializationContext("alerts", MessageField.VALUE, list(message.headers))
    assert message.value is not None
    found = JSONDeserializer(schema, schema_registry_client=registry)(message.value, context)
    assert found == json.loads(message.value)
    assert found["type"] == "alert"


def test_the_header_is_for_the_types_that_are_named_and_counts_as_bytes() -> None:
    record = OutputRecord("alerts", "r1", ALERT)
    (plain,) = encode(record, "alerts", 900_000)
    assert encode(record, "alerts", 900_000, {"verdict": 7}) == [plain]
    (named,) = encode(record, "alerts", 900_000, {"alert": 258})
    assert named.headers == [*plain.headers, (HEADER, b"\0\0\0\1\2")]
    with pytest.raises(OutputError):
        encode(record, "alerts", size_bytes(plain), {"alert": 258})


@pytest.mark.parametrize("ids", [{"alerts": 1}, {"alert": 0}, {"alert": 2**31}, {"alert": "x"}])
def test_other_types_and_ids_are_refused(ids: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        KafkaSinkOptions.model_validate({"schema_ids": ids})
