"""One topic in which Confluent's serializers have written every format and framing: the verdicts are those of JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

from streamad.ports import Clock
from streamad.schemas.client import SchemaRegistry
from streamad.schemas.fetching import Fetcher
from streamad.settings.schemas.registry import SchemaRegistrySettings
from streamad.telemetry.events import EventLog
from streamad.testing import ListSource
from streamad.types import Record
from tests.support.protoc import base64_of, classes, compiled
from tests.support.registry_of_others import FRAMINGS, mock_registry, options, record_of, registered
from tests.support.runtime.pipeline import CHANNELS, START_US, Run, run_pipeline, settings_of
from tests.support.schemas.registry import HurriedClock, StubRegistry, stub_registry

AVRO = {
    "type": "record",
    "name": "Sample",
    "fields": [
        {"name": "stream", "type": "string"},
        {"name": "sequence", "type": ["null", "string"]},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "values", "type": {"type": "map", "values": ["double", "null"]}},
        {"name": "end", "type": "boolean"},
    ],
}
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Other {}
message Sample {
  string stream = 1; optional string sequence = 2; google.protobuf.Timestamp time = 3; map<string, double> values = 4;
  bool end = 5;
}
"""


def message_of(sequence: int, sample: int) -> dict[str, Any]:
    time = datetime.fromtimestamp(START_US / 1e6 + 60 * sequence + sample + 0.25, UTC)
    values = {name: float(sequence + sample + at) for at, name in enumerate(CHANNELS)}
    return {"stream": "r1", "sequence": f"B-{sequence}", "time": time, "values": values, "end": sample == 2}


def as_json(message: dict[str, Any], _: Any = None) -> dict[str, Any]:
    return {**message, "time": message["time"].isoformat()}


def written(stub: StubRegistry) -> list[Record]:
    """Return three samples of a sequence for each format and framing; their schemas are in ``stub``."""
    made = compiled({"sample.proto": PROTO})
    sample_of = classes(made)("Sample")

    def as_protobuf(message: dict[str, Any], context: Any) -> bytes:
        found = sample_of(**{key: value for key, value in message.items() if key != "time"})
        found.time.FromDatetime(message["time"])
        return bytes(protobuf(found, context) or b"")

    records: list[Record] = []
    for framing in FRAMINGS:
        client, conf = mock_registry(), options(framing)
        protobuf = ProtobufSerializer(sample_of, client, {"use.deprecated.format": False, **conf})
        schema = json.dumps({"title": "Sample", "type": "object"})
        serializers = (
            AvroSerializer(client, json.dumps(AVRO), conf=conf),
            JSONSerializer(schema, client, to_dict=as_json, conf=conf),
            as_protobuf,
        )
        for kind, serializer in zip(("AVRO", "JSON", "PROTOBUF"), serializers, strict=True):
            sequence = len(records) // 3
            for sample in range(3):
                record = record_of(serializer, message_of(sequence, sample))
                framed, found = registered(client, record)
                stub.add(framed.schema, PROTO if kind == "PROTOBUF" else found.text, kind)
                if kind == "PROTOBUF" and framing == "prefix":  # the other one as text alone
                    compiled_one = {"schema": base64_of(made["sample.proto"]), "schemaType": kind}
                    stub.answers[f"/schemas/ids/{framed.schema}?format=serialized"] = compiled_one
                records.append(Record(len(records), record.value, schema=record.schema))
    return records


async def judged(records: list[Record], stub: StubRegistry) -> Run:
    def fetcher(_: Clock, events: EventLog) -> Fetcher:
        registry = SchemaRegistry(SchemaRegistrySettings(url=stub.url), Path())
        return Fetcher(registry, HurriedClock(START_US), 1_000_000_000, events.emit)

    settings = settings_of(decode={"registry": {"url": stub.url}, "time_unit": "ns"})
    return await run_pipeline(ListSource.of({"t/0": records}), settings, fetcher=fetcher)


def told(run: Run) -> list[Any]:
    return [(one.sequence, one.start_time, one.end_time, one.n_samples, one.score) for one in run.verdicts]


async def test_every_format_and_framing_gives_the_verdicts_of_json() -> None:
    with stub_registry() as stub:
        records = written(stub)
        run = await judged(records, stub)
        plain = [
            Record(offset, json.dumps(as_json(message_of(offset // 3, offset % 3))).encode())
            for offset in range(len(records))
        ]
        expected = await judged(plain, stub)
        assert len({path for path in stub.asked if "format=serialized" in path}) == 2
    assert [verdict.sequence for verdict in run.verdicts] == [f"B-{sequence}" for sequence in range(6)]
    assert told(run) == told(expected)
    assert not run.messages("dead_letters")
