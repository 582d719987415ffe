"""Messages with registered schemas, drawn at random and damaged: Avro, Protobuf, JSON, and schemas that are none.

The law: a schema gives a reader or one SchemaError; a message gives samples or a DecodeError; neither takes long.
"""

from __future__ import annotations

import base64
import io
import json
import random
import time
from functools import lru_cache
from typing import Any, NamedTuple, get_args

import fastavro
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from streamad.errors import DecodeError, SchemaError
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_values import DecodeErrorKind
from streamad.ingest.schemas.framing import SchemaKey
from streamad.ingest.schemas.known import KnownSchema
from streamad.ingest.schemas.readers import message_reader
from streamad.ingest.schemas.registered import MessageReader, RegisteredSchema
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.types import Record
from tests.support.protoc import classes

PER_CASE = 1_000
_PER_SCHEMA = 100
_LIMIT_S = 10.0  # of this process: a million empty records take one second
_NAMES = ("stream", "sequence", "time", "temp", "flow", "a", "b", "end", "values")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": ("timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis", "time-micros"),
    "bytes": ("decimal",),
}
_SAMPLE: dict[str, tuple[Any, ...]] = {
    "sequence": ("string", "long"),
    "time": ("int", {"type": "long", "logicalType": "timestamp-millis"}),
    "temp": ("double", ["null", "double"], {"type": "array", "items": "double"}),
    "values": ({"type": "map", "values": ["null", "double"]}, {"type": "array", "items": "double"}),
}
_ODD_BYTES = (
    b"", b"\0", b"\xff", b"\x80", b"\2", b"\1", b"\xff" * 9 + b"\1", b"\xfe" * 9 + b"\1", b"\x80" * 12,
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x40", b"\0" * 40, b"\2" * 90, b"\n\0" * 60, b"\x0a\xff\xff\xff\xff\x0f",
)  # fmt: skip


def run_framed(rng: random.Random) -> str | None:
    """Read ``PER_CASE`` messages; return what breaks the law."""
    for _ in range(PER_CASE // _PER_SCHEMA):
        schema, payloads = rng.choice((_avro, _avro, _protobuf, _protobuf, _proto_text, _json))(rng)
        if rng.random() < 0.3:
            schema = _damaged_schema(schema, rng)
        began_s = time.process_time()
        try:
            reader = message_reader(schema)
        except SchemaError as error:
            if "\n" in str(error) or len(str(error)) > 400:
                return f"a schema's error is not one short line: {error}"
            continue
        for payload in payloads:
            if fault := _read(reader, payload, rng):
                return f"{fault} ({schema.kind}: {schema.text[:100]!r})"
        if time.process_time() - began_s > _LIMIT_S:
            return f"a schema and its messages take more than {_LIMIT_S} s ({schema.kind}: {schema.text[:100]!r})"
    return None


def _read(reader: MessageReader, payload: bytes, rng: random.Random) -> str | None:
    """Read a payload, whole or damaged, as its frame and the fields of a plant say."""
    if rng.random() < 0.7:
        payload = _damaged(payload, rng)
    schema, before = None, rng.choice((b"\0\0\0\0\1", b"\0\0\0\0\1", b"\1" + b"g" * 16))
    if rng.random() < 0.3:
        schema, before = rng.choice(("0000000001", "0000000001" + "02" * rng.randrange(3), "01" + "ab" * 16)), b""
    if rng.random() < 0.02:
        schema, before = rng.choice(("07", None)), b"\0" * 5
    value = before + payload
    decoder = _decoder(rng.randrange(len(_DECODING))).reading_by(_One(reader))
    try:
        decoder.decode(Record(0, value, schema=schema), None)
    except DecodeError as error:
        if error.kind not in get_args(DecodeErrorKind) or "\n" in str(error):
            return f"not one line of a known kind: {error.kind}: {error}"
    return None


class _One(NamedTuple):
    """One schema under every id."""

    reader: MessageReader

    def known(self, _schema: SchemaKey, _offset: int) -> KnownSchema:
        return KnownSchema(self.reader, "avro", "")


_DECODING: tuple[dict[str, Any], ...] = (
    {},
    {"fields": {"values": None}, "timezone": "Europe/Berlin"},
    {"fields": {"channel": "a", "value": "b"}, "time_unit": "ns"},
    {"fields": {"values": None, "time": "a.b"}, "time": "relative"},
    {"fields": {"values": None, "each": "flow", "time": "record"}},
)


@lru_cache
def _decoder(index: int) -> Decoder:
    settings = {"default_stream": "r1", "registry": {"url": "http://localhost:8081"}, **_DECODING[index]}
    channels = (ChannelSettings(name="temp"), ChannelSettings(name="flow"))
    return Decoder(DecodeSettings.model_validate(settings), channels)


def _damaged(payload: bytes, rng: random.Random) -> bytes:
    data = bytearray(payload)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((0, 1, 1, 4, 20)))
        data[at:end] = rng.choice((*_ODD_BYTES, rng.randbytes(3), bytes(data[:30])))
        if rng.random() < 0.1:
            del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


def _damaged_schema(schema: RegisteredSchema, rng: random.Random) -> RegisteredSchema:
    """Return a schema of which the text, or what its text encodes, is damaged."""
    if schema.kind == "protobuf" and " " not in schema.text and rng.random() < 0.9:
        text = base64.b64encode(_damaged(base64.b64decode(schema.text), rng)).decode()
    elif rng.random() < 0.5:
        words = ("null", "record", "array", "fixed", "R0", "R1", "name", "fields", "items", "size", "type", "symbols")
        text = schema.text
        for _ in range(rng.choice((1, 3))):
            text = text.replace(f'"{rng.choice(words)}"', f'"{rng.choice(words)}"', 1)
    else:
        text = _damaged(schema.text.encode(), rng).decode(errors="replace")
    references = (("R0", schema),) * rng.choice((0, 0, 1, 2))
    return RegisteredSchema(schema.kind, text, references)


def _json(rng: random.Random) -> tuple[RegisteredSchema, list[bytes]]:
    content = {name: rng.choice((1, 2.5, "x", None, [1], {"temp": 1.5})) for name in _NAMES}
    return RegisteredSchema("json", "{}"), [json.dumps(content).encode()] * _PER_SCHEMA


# --- Avro ---


def _avro(rng: random.Random) -> tuple[RegisteredSchema, list[bytes]]:
    names: list[str] = []
    schema = _avro_record(rng, names, 0)
    parsed, payloads = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for _ in range(_PER_SCHEMA):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, _avro_value(schema, rng, {}, 0))
        payloads.append(buffer.getvalue())
    return RegisteredSchema("avro", json.dumps(schema)), payloads


def _avro_record(rng: random.Random, names: list[str], depth: int) -> dict[str, Any]:
    name = f"R{len(names)}"
    names.append(name)
    fields = [
        {"name": field, "type": _avro_type(rng, names, depth + 1)} for field in rng.sample(_NAMES, rng.randrange(9))
    ]
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(rng: random.Random, names: list[str], depth: int) -> Any:
    kind = rng.choice(("double", "double", "nullable", "nullable", "any", "logical", "array", "map", "record", "again"))
    if kind == "nullable":
        return rng.sample(("null", rng.choice(_PRIMITIVES[1:])), 2)
    if kind == "logical":
        of = rng.choice(("int", "long", "bytes"))
        name = rng.choice(_LOGICAL[of])
        return {"type": of, "logicalType": name, **({"precision": 9, "scale": 2} if name == "decimal" else {})}
    if kind == "again" and names:
        return ["null", rng.choice(names)]  # also a record that holds itself
    if depth < 4 and kind in ("array", "map"):
        return {"type": kind, "items" if kind == "array" else "values": _avro_type(rng, names, depth + 1)}
    if depth < 4 and kind == "record":
        return _avro_record(rng, names, depth)
    return "double" if kind == "double" else rng.choice(_PRIMITIVES)


def _avro_value(schema: Any, rng: random.Random, known: dict[str, Any], depth: int) -> Any:
    if isinstance(schema, list):
        branch = "null" if depth > 6 else rng.choice(schema)
        return (
            None if branch == "null" or branch not in (*_PRIMITIVES, *known) else _avro_value(branch, rng, known, depth)
        )
    if isinstance(schema, str) and schema in known:
        schema = known[schema]
    if isinstance(schema, dict) and schema["type"] == "record":
        known[schema["name"]] = schema
        return {field["name"]: _avro_value(field["type"], rng, known, depth + 1) for field in schema["fields"]}
    if isinstance(schema, dict) and schema["type"] == "array":
        return [_avro_value(schema["items"], rng, known, depth + 1) for _ in range(rng.randrange(4))]
    if isinstance(schema, dict) and schema["type"] == "map":
        return {str(i): _avro_value(schema["values"], rng, known, depth + 1) for i in range(rng.randrange(4))}
    return _avro_primitive(schema["type"] if isinstance(schema, dict) else schema, rng, isinstance(schema, dict))


def _avro_primitive(name: str, rng: random.Random, is_logical: bool) -> Any:
    whole = rng.choice((0, -1, 1_000, 2**31 - 1)) if name == "int" or is_logical else rng.choice((0, 2**62, -(2**63)))
    return {
        "null": None,
        "boolean": rng.random() < 0.5,
        "int": whole,
        "long": 1_772_366_400_250 if rng.random() < 0.5 else whole,
        "float": rng.choice((0.0, 1.5, float("nan"))),
        "double": rng.choice((81.25, -0.0, float("inf"), 1e300)),
        "bytes": rng.randbytes(rng.randrange(9)),
        "string": rng.choice(("r1", "", "2026-03-01T12:00:00Z", "é" * 40)),
    }[name]


# --- Protobuf ---

_WELL_KNOWN = ("timestamp.Timestamp", "duration.Duration", "struct.Struct", "wrappers.DoubleValue")


def _protobuf(rng: random.Random) -> tuple[RegisteredSchema, list[bytes]]:
    file = FileDescriptorProto(name="m.proto", syntax="proto3")
    file.dependency.extend(sorted({f"google/protobuf/{name.partition('.')[0]}.proto" for name in _WELL_KNOWN}))
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    for index in range(2):
        message = file.message_type.add(name=f"M{index}")
        for number, name in enumerate(rng.sample(_NAMES, 1 + rng.randrange(8)), 1):
            _protobuf_field(message.field.add(name=name, number=number), rng)
    text = base64.b64encode(file.SerializeToString()).decode()
    made = classes(_with_well_known(file))("M0")
    payloads = [b"\0" + made(**_protobuf_values(made, rng)).SerializeToString() for _ in range(_PER_SCHEMA)]
    return RegisteredSchema("protobuf", text), payloads


_TEXT = """
syntax = "proto3"; package p; import "google/protobuf/timestamp.proto"; option (x) = { a: ["}"] };
message M0 { string stream = 1; google.protobuf.Timestamp time = 2; optional double temp = 3 [deprecated = true];
  oneof o { E a = 4; M0 b = 5; } map<string, double> values = 6; repeated sint64 flow = 7; reserved 8, 9 to max;
  enum E { ZERO = 0; LOW = -1; } message In { bool end = 1; } repeated In many = 10; /* none */ }
"""


def _proto_text(rng: random.Random) -> tuple[RegisteredSchema, list[bytes]]:
    payloads = [b"\0" + rng.randbytes(rng.randrange(40)) for _ in range(_PER_SCHEMA // 2)]
    valid = b"\0\n\2r1\x12\6\x08\xd0\xd0\x90\xcd\6\x19\0\0\0\0\0\0\x24\x40"
    return RegisteredSchema("protobuf", _TEXT), [*payloads, *[valid] * (_PER_SCHEMA // 2)]


def _protobuf_field(field: FieldDescriptorProto, rng: random.Random) -> None:
    field.label = rng.choice((1, 1, 1, 3))
    kind = rng.choice(("number", "number", "text", "message", "well-known", "enum"))
    if kind in ("number", "text"):
        field.type = (
            rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 13, 15, 16, 17, 18)) if kind == "number" else rng.choice((9, 12))
        )
        return
    field.type = 14 if kind == "enum" else 11
    well_known = "google.protobuf." + rng.choice(_WELL_KNOWN).partition(".")[2]
    field.type_name = {"enum": ".E", "message": rng.choice((".M0", ".M1")), "well-known": f".{well_known}"}[kind]


@lru_cache
def _google() -> dict[str, FileDescriptorProto]:
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2  # noqa: PLC0415 - four names

    modules = (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    files = [FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in modules]
    return {file.name: file for file in files}


def _with_well_known(file: FileDescriptorProto) -> dict[str, FileDescriptorProto]:
    return {**_google(), file.name: file}


def _protobuf_values(made: Any, rng: random.Random) -> dict[str, Any]:
    of_type = {1: 1.5, 2: 1.5, 8: True, 9: "r1", 12: b"\xff"}
    found = {}
    for field in made.DESCRIPTOR.fields:
        if field.message_type is None and rng.random() < 0.7:
            value = of_type.get(field.type, 0 if field.enum_type else 1)
            found[field.name] = [value, value] if field.is_repeated else value
    return found
