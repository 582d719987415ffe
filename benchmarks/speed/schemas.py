"""CPU time of messages with registered schemas beside the same samples as JSON: 24 doubles, one sample each.

``reader`` is from bytes to a message, ``decoder`` from a record to its block. Forms: own (channels in ``values``), flat
(channels beside the rest). ``changing``: other channels are null in every message. The cases take turns, and each has
its least time.
Run: ``python benchmarks/speed/schemas.py [--json]``; fastavro is measured beside it (extra test).
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from streamad.ingest.decode import Decoder  # noqa: E402
from streamad.ingest.schemas.framing import framed  # noqa: E402
from streamad.ingest.schemas.known import Schemas  # noqa: E402
from streamad.ingest.schemas.readers import message_reader  # noqa: E402
from streamad.ingest.schemas.registered import RegisteredSchema  # noqa: E402
from streamad.settings.decode import ChannelSettings, DecodeSettings  # noqa: E402
from streamad.types import Record  # noqa: E402
from tests.support.protoc import classes, compiled  # noqa: E402

CHANNELS, RECORDS, TURNS = 24, 500, 15
NAMES = [f"c{index:02d}" for index in range(CHANNELS)]
TIME_MS = 1_772_366_400_250
HEAD = b"\0\0\0\0\1"
SETTINGS = [ChannelSettings(name=name) for name in NAMES]


class Case(NamedTuple):
    """Records of one form; ``read`` gives their messages."""

    records: list[Record]
    read: Callable[[Record], Any]
    is_flat: bool
    schema: RegisteredSchema | None = None


def _values(record: int, nulls: int) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        name: 50 + (record * 7919 + at * 104_729) % 1_000 / 7 for at, name in enumerate(NAMES)
    }
    return found | {NAMES[(record * 5 + at * 7) % CHANNELS]: None for at in range(nulls)}


def _message(record: int, nulls: int, time: Any, is_flat: bool) -> dict[str, Any]:
    head = {"stream": "reactor-1", "sequence": "B-1042", "time": time}
    return head | (_values(record, nulls) if is_flat else {"values": _values(record, nulls)})


def _json(is_flat: bool) -> Case:
    values = [json.dumps(_message(i, 0, TIME_MS / 1_000, is_flat)).encode() for i in range(RECORDS)]
    decode = msgspec.json.Decoder().decode
    return Case([Record(i, value) for i, value in enumerate(values)], lambda record: decode(record.value), is_flat)


def _avro_schema(of: Any, is_flat: bool) -> dict[str, Any]:
    channels = [{"name": name, "type": of} for name in NAMES]
    inside = {"type": "record", "name": "Values", "fields": channels}
    fields = [
        {"name": "stream", "type": "string"},
        {"name": "sequence", "type": ["null", "string"]},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        *(channels if is_flat else [{"name": "values", "type": inside}]),
    ]
    return {"type": "record", "name": "Sample", "fields": fields}


def _avro(of: Any, *, is_flat: bool, nulls: int = 0, by_fastavro: bool = False) -> Case:
    schema = _avro_schema(of, is_flat)
    parsed, records = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for i in range(RECORDS):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, _message(i, nulls, TIME_MS, is_flat))
        records.append(Record(i, HEAD + buffer.getvalue()))
    registered = RegisteredSchema("avro", json.dumps(schema))
    if by_fastavro:
        read = lambda record: fastavro.schemaless_reader(io.BytesIO(record.value[5:]), parsed, None)  # noqa: E731
        return Case(records, read, is_flat)
    return Case(records, _reading(registered), is_flat, registered)


def _protobuf(label: str) -> Case:
    fields = " ".join(f"{label} double {name} = {number};" for number, name in enumerate(NAMES, 4))
    text = f"""syntax = "proto3"; import "google/protobuf/timestamp.proto";
      message M {{ string stream = 1; string sequence = 2; google.protobuf.Timestamp time = 3; {fields} }}"""
    made, records = classes(compiled({"m.proto": text}))("M"), []
    for i in range(RECORDS):
        message = made(stream="reactor-1", sequence="B-1042", **_values(i, 0))
        message.time.FromMilliseconds(TIME_MS)
        records.append(Record(i, HEAD + b"\0" + message.SerializeToString()))
    registered = RegisteredSchema("protobuf", text)
    return Case(records, _reading(registered), True, registered)


def _reading(schema: RegisteredSchema) -> Callable[[Record], Any]:
    reader = message_reader(schema)

    def read(record: Record) -> Any:
        found = framed(record)
        assert found is not None
        return reader.read(record.value, found)

    return read


def _cases() -> dict[str, Case]:
    nullable = ["null", "double"]
    return {
        "JSON, own": _json(is_flat=False),
        "JSON, flat": _json(is_flat=True),
        "Avro, own": _avro("double", is_flat=False),
        "Avro, flat": _avro("double", is_flat=True),
        "Avro, own, nullable": _avro(nullable, is_flat=False),
        "Avro, flat, nullable": _avro(nullable, is_flat=True),
        "Avro, flat, nullable, changing": _avro(nullable, is_flat=True, nulls=2),
        "Protobuf, flat": _protobuf(""),
        "Protobuf, flat, optional": _protobuf("optional"),
        "fastavro, flat": _avro("double", is_flat=True, by_fastavro=True),
        "fastavro, flat, nullable": _avro(nullable, is_flat=True, by_fastavro=True),
    }


def _decoder(case: Case) -> Decoder:
    schemas = Schemas("memory")
    if case.schema is not None:
        schemas.learn(1, case.schema, "", 0)
    settings: dict[str, Any] = {"registry": {"url": "http://localhost:8081"}}
    if case.is_flat:
        settings["fields"] = {"values": None}
    return Decoder(DecodeSettings.model_validate(settings), SETTINGS, schemas=schemas)


def measure() -> dict[str, dict[str, float]]:
    """Return the least microseconds of a record by case and stage."""
    cases = _cases()
    found: dict[str, dict[str, float]] = {name: {} for name in cases}
    decoders = {name: _decoder(case) for name, case in cases.items() if not name.startswith("fastavro")}
    for _ in range(TURNS):
        for name, case in cases.items():
            stages: dict[str, Callable[[Record], Any]] = {"reader": case.read}
            if name in decoders:
                decode = decoders[name].decode
                stages["decoder"] = lambda record, decode=decode: decode(record, None)
            for stage, run in stages.items():
                begin = time.process_time()
                for record in case.records:
                    run(record)
                one_us = (time.process_time() - begin) / RECORDS * 1e6
                found[name][stage] = min(found[name].get(stage, float("inf")), one_us)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found))
        return
    print(f"{'us':32} {'reader':>8} {'decoder':>8} {'above JSON':>11}")
    for name, us in found.items():
        base = found["JSON, flat" if "flat" in name else "JSON, own"]["decoder"]
        above = f"{us['decoder'] - base:11.1f}" if "decoder" in us else ""
        print(f"{name:32} {us['reader']:8.1f} {us.get('decoder', float('nan')):8.1f} {above}")


if __name__ == "__main__":
    main()
