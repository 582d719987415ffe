"""Avro messages, written by fastavro, are read as JSON would give them; hostile ones are one DecodeError each."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError, SchemaError
from streamad.ingest.schemas.framing import Framed
from streamad.ingest.schemas.readers import message_reader
from streamad.ingest.schemas.registered import MessageReader, RegisteredSchema

AT_0 = Framed(1, 0)
NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def reader_of(schema: Any, *references: tuple[str, Any]) -> MessageReader:
    inner = tuple((name, RegisteredSchema("avro", json.dumps(one))) for name, one in references)
    return message_reader(RegisteredSchema("avro", json.dumps(schema), inner))


def written(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in fields.items()]}


def read_back(schema: Any, value: Any) -> Any:
    return reader_of(schema).read(written(schema, value), AT_0)


def test_a_nested_record_is_read_as_json_would_give_it() -> None:
    inner = {
        "type": "record",
        "name": "plant.Reading",
        "fields": [{"name": "tag", "type": "string"}, {"name": "v", "type": ["null", "double", "string"]}],
    }
    schema = record(
        stream="string",
        n="int",
        big="long",
        state={"type": "enum", "name": "State", "symbols": ["IDLE", "RUN"]},
        ok="boolean",
        raw="bytes",
        crc={"type": "fixed", "name": "Crc", "size": 2},
        readings={"type": "array", "items": inner},
        again={"type": "map", "values": "plant.Reading"},
        rows={"type": "array", "items": {"type": "array", "items": "double"}},
    )
    message = {
        "stream": "r1",
        "n": -3,
        "big": 2**62,
        "state": "RUN",
        "ok": True,
        "raw": b"\xff",
        "crc": b"ab",
        "readings": [{"tag": "temp_c", "v": 81.25}, {"tag": "x", "v": None}, {"tag": "y", "v": "bad"}],
        "again": {"é": {"tag": "", "v": 1.0}},
        "rows": [[1.0, 2.5], [], [0.0]],
    }
    assert read_back(schema, message) == message


@pytest.mark.parametrize(
    ("of", "value", "found"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_772_366_400_250, NOON),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1_772_366_400_250_000, NOON),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_772_366_400_249_999_500, NOON),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_772_366_400_250, NOON.replace(tzinfo=None)),
        (
            {"type": "long", "logicalType": "local-timestamp-nanos"},
            1_772_366_400_250_000_499,
            NOON.replace(tzinfo=None),
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, -(2**63), "timestamp-millis -9223372036854775808"),
        ({"type": "int", "logicalType": "date"}, 20_513, "2026-03-01"),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, "date 2147483647"),
        ({"type": "int", "logicalType": "time-millis"}, 29_730_250, "08:15:30.250000"),
        ({"type": "long", "logicalType": "time-micros"}, 86_400_000_000, "time-micros 86400000000"),
        ({"type": "long", "logicalType": "furlongs"}, 7, 7),
        ({"type": "string", "logicalType": "timestamp-millis"}, "x", "x"),
    ],
)
def test_logical_types_say_what_a_number_means(of: Any, value: Any, found: Any) -> None:
    plain = record(x={key: part for key, part in of.items() if key != "logicalType"})
    schema = record(x=of)
    assert reader_of(schema).read(written(plain, {"x": value}), AT_0) == {"x": found}
    beside = record(x=of["type"])
    beside["fields"][0]["logicalType"] = of["logicalType"]
    assert reader_of(beside).read(written(plain, {"x": value}), AT_0) == {"x": found}


@pytest.mark.parametrize("of", ["bytes", {"type": "fixed", "name": "D", "size": 9}])
@pytest.mark.parametrize("text", ["81.25", "-0.01", "0.00", "123456789012345.67"])
def test_decimals_are_the_numbers_of_their_texts(of: Any, text: str) -> None:
    form = of if isinstance(of, dict) else {"type": of}
    schema = record(x={**form, "logicalType": "decimal", "precision": 20, "scale": 2})
    assert read_back(schema, {"x": Decimal(text)}) == {"x": float(text)}
    whole = record(x={**form, "logicalType": "decimal", "precision": 20})
    found = read_back(whole, {"x": Decimal(9_007_199_254_740_993)})["x"]
    assert (type(found), found) == (int, 9_007_199_254_740_993)


@pytest.mark.parametrize("scale", [0, 2])
def test_a_decimal_of_a_million_digits_is_infinite(scale: int) -> None:
    schema = record(x={"type": "bytes", "logicalType": "decimal", "precision": 1_000_000, "scale": scale})
    for first, found in ((b"\x7f", math.inf), (b"\x80", -math.inf)):
        value = written(record(x="bytes"), {"x": first + bytes(500_000)})
        assert reader_of(schema).read(value, AT_0) == {"x": found}


def test_a_uuid_is_a_text() -> None:
    schema = record(x={"type": "string", "logicalType": "uuid"})
    uuid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert read_back(schema, {"x": uuid}) == {"x": str(uuid)}
    fixed = record(x={"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"})
    assert reader_of(fixed).read(uuid.bytes, AT_0) == {"x": str(uuid)}


def test_references_bring_their_types_and_namespaces_resolve() -> None:
    reading = {"type": "record", "name": "plant.Reading", "fields": [{"name": "v", "type": "double"}]}
    schema = {
        "type": "record",
        "name": "Batch",
        "namespace": "plant",
        "fields": [{"name": "a", "type": "Reading"}, {"name": "b", "type": "plant.Reading"}],
    }
    reader = reader_of(schema, ("plant.Reading", reading))
    value = written([reading, schema], ("plant.Batch", {"a": {"v": 1.5}, "b": {"v": 2.5}}))[1:]
    assert reader.read(value, AT_0) == {"a": {"v": 1.5}, "b": {"v": 2.5}}


def test_each_message_is_read_with_the_schema_that_it_was_written_with() -> None:
    old, new = (
        record(stream="string", temp="double"),
        record(pressure="double", temp=["null", "float"], stream="string"),
    )
    assert read_back(old, {"stream": "a", "temp": 1.5}) == {"stream": "a", "temp": 1.5}
    again = {"stream": "a", "temp": None, "pressure": 2.5}
    assert read_back(new, again) == again


NULLABLE = record(
    **{f"c{i}": [["null", "double"], ["double", "null"], "double", ["null", "float"]][i % 4] for i in range(12)}
)


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=30))
def test_any_pattern_of_nulls_in_any_order(patterns: list[list[bool]]) -> None:
    reader = reader_of(NULLABLE)
    for pattern in patterns:
        message = {f"c{i}": None if is_null and i % 4 != 2 else i / 2 for i, is_null in enumerate(pattern)}
        assert reader.read(written(NULLABLE, message), AT_0) == message


PRIMITIVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=80),
    "string": st.text(max_size=80),
}


@st.composite
def schema_and_values(draw: st.DrawFn, depth: int = 0, name: str = "R") -> tuple[Any, st.SearchStrategy[Any]]:
    kind = draw(st.sampled_from([*PRIMITIVES, "nullable", "array", "map", "record"][: 9 if depth > 2 else 12]))
    if kind in PRIMITIVES:
        return kind, PRIMITIVES[kind]
    if kind == "nullable":
        of = draw(st.sampled_from(["double", "float", "boolean", "string", "long"]))
        return draw(st.permutations(["null", of])), st.none() | PRIMITIVES[of]
    if kind == "record":
        fields = [draw(schema_and_values(depth + 1, f"{name}{i}")) for i in range(draw(st.integers(0, 6)))]
        of_fields = {f"f{i}": values for i, (_, values) in enumerate(fields)}
        schema = {
            "type": "record",
            "name": name,
            "fields": [{"name": f"f{i}", "type": of} for i, (of, _) in enumerate(fields)],
        }
        return schema, st.fixed_dictionaries(of_fields)
    inner, values = draw(schema_and_values(depth + 1, name + "i"))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=4)


@given(st.data())
def test_what_fastavro_writes_is_read_back_equal_and_a_cut_is_refused(data: st.DataObject) -> None:
    schema, values = data.draw(schema_and_values())
    message = data.draw(values)
    reader, value = reader_of(schema), written(schema, message)
    assert reader.read(b"?????" + value, Framed(1, 5)) == message
    for wrong in (value[: data.draw(st.integers(0, len(value)))], value + b"\0"):
        if wrong != value:
            with pytest.raises(DecodeError) as refused:
                reader.read(wrong, AT_0)
            assert refused.value.kind == "malformed"


def long(value: int) -> bytes:
    return written("long", value)


NULLS = {"type": "array", "items": "null"}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
HOLDS_ITSELF = {"type": "record", "name": "L", "fields": [{"name": "next", "type": "L"}]}


def laughs() -> Any:
    """Return a record of 10^20 records, none of which has a byte."""
    schema: Any = "null"
    for level in range(20):
        schema = {
            "type": "record",
            "name": f"L{level}",
            "fields": [
                {"name": f"f{i}", "type": schema if i == 0 else schema["name"] if level else "null"} for i in range(10)
            ],
        }
    return schema


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        (NULLS, long(2**60) + b"\0", "too_large"),
        (NULLS, long(-(2**60)) + b"\0\0", "too_large"),
        ({"type": "array", "items": NULLS}, long(4) + (long(300_000) + b"\0") * 4 + b"\0", "too_large"),
        ({"type": "array", "items": "double"}, long(2**60), "malformed"),
        ({"type": "array", "items": "string"}, long(-(2**63)) + long(5), "malformed"),
        ({"type": "map", "values": "null"}, long(2**60), "malformed"),
        ("string", long(2**62) + b"x", "malformed"),
        ("string", long(-1), "malformed"),
        ("bytes", long(-5), "malformed"),
        ("string", b"\2\xff", "malformed"),
        ("long", b"\xff" * 9 + b"\1", None),
        ("long", b"\xff" * 9 + b"\2", "malformed"),
        ("long", b"\x80" * 11 + b"\1", "malformed"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "malformed"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\1", "malformed"),
        (["null", "long"], b"\4", "malformed"),
        (["null", "long"], b"\1", "malformed"),
        (LIST, b"\2" * 30 + b"\0", None),
        (LIST, b"\2" * 70 + b"\0", "malformed"),
        (HOLDS_ITSELF, b"", "malformed"),
        (laughs(), b"", "too_large"),
        ({"type": "fixed", "name": "F", "size": 2**62}, b"x", "malformed"),
    ],
    ids=lambda given: repr(given)[:60],
)
def test_hostile_bytes_are_one_error_and_end_soon(schema: Any, value: bytes, kind: str | None) -> None:
    reader = reader_of(schema)
    if kind is None:
        reader.read(value, AT_0)
        return
    with pytest.raises(DecodeError) as refused:
        reader.read(value, AT_0)
    assert refused.value.kind == kind


def chain(n: int) -> Any:
    """Return records of which each holds the one before, all defined on one level."""
    fields: list[Any] = []
    for i in range(n):
        inner = [{"name": "x", "type": f"C{i - 1}" if i else "long"}]
        fields.append({"name": f"f{i}", "type": {"type": "record", "name": f"C{i}", "fields": inner}})
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "7",
        "null",
        '"nothing"',
        '{"type": "record"}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [1]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "S"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "record", "name": "int", "fields": []}',
        '{"type": "enum", "name": "E", "symbols": "A"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": {"type": [{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}]}}',
        '{"type": "array"}',
        "[]",
        '["null", ["int"]]',
        "[" * 100_000,
        '{"type": "array", "items": ' * 40 + '"int"' + "}" * 40,
        json.dumps(chain(1_000)),
        json.dumps({**chain(1), "namespace": "n" * 499}),  # each type keeps its name with the namespace
    ],
    ids=lambda text: text[:60],
)
def test_a_schema_that_is_none_is_one_line(text: str) -> None:
    with pytest.raises(SchemaError) as refused:
        message_reader(RegisteredSchema("avro", text))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300
