"""Messages with registered schemas give the blocks that the same messages as JSON give, whatever ``decode`` says."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_own import OwnReader
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.schemas.known import Schemas
from streamad.ingest.schemas.registered import RegisteredSchema
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.types import Record, SampleBlock
from tests.support.protoc import classes, compiled

CHANNELS = (ChannelSettings(name="temp"), ChannelSettings(name="ph"))
NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
NOON_US = int(NOON.timestamp() * 1e6)
UNITS = ("d", "h", "min", "s", "ms", "us", "ns")


def decoder_of(schema: RegisteredSchema | None = None, **decode: Any) -> Decoder:
    schemas = Schemas("memory")
    if schema is not None:
        schemas.learn(1, schema, "", 0)
    registry = {"registry": {"url": "http://localhost:8081"}}
    return Decoder(DecodeSettings.model_validate({**registry, **decode}), CHANNELS, schemas=schemas)


def avro(columns: dict[str, Any], message: dict[str, Any], /, **decode: Any) -> SampleBlock:
    """Return the block of a message, which is written with a schema of ``columns``."""
    listed = [{"name": name, "type": of} for name, of in columns.items()]
    schema = {"type": "record", "name": "M", "fields": listed}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), message)
    record = Record(0, b"\0\0\0\0\1" + buffer.getvalue())
    (block,) = decoder_of(RegisteredSchema("avro", json.dumps(schema)), **decode).decode(record, None).blocks
    return block


def plain(message: dict[str, Any], /, **decode: Any) -> SampleBlock:
    (block,) = decoder_of(**decode).decode(Record(0, json.dumps(message).encode()), None).blocks
    return block


def assert_equal(found: SampleBlock, expected: SampleBlock) -> None:
    assert (found.stream, found.sequence, found.end) == (expected.stream, expected.sequence, expected.end)
    assert found.times_us.tolist() == expected.times_us.tolist()
    assert np.array_equal(found.values, expected.values, equal_nan=True)


READING = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "tag", "type": "string"}, {"name": "v", "type": ["null", "double", "string"]}],
}
MAYBE = ["null", "double"]
VALUES = {"type": "record", "name": "Values", "fields": [{"name": name, "type": MAYBE} for name in ("temp", "ph")]}


@pytest.mark.parametrize(
    ("fields", "message", "decode"),
    [
        (
            {"stream": "string", "sequence": "long", "time": "double", "values": VALUES},
            {"stream": "r1", "sequence": 7, "time": 1.5, "values": {"temp": 81.25, "ph": None}},
            {},
        ),
        (
            {"stream": "string", "time": "long", "values": {"type": "map", "values": "float"}, "end": "boolean"},
            {"stream": "r1", "time": 1_500, "values": {"ph": 7.5}, "end": True},
            {"time_unit": "ms"},
        ),
        (
            {
                "stream": "string",
                "times": {"type": "array", "items": "double"},
                "values": {"type": "array", "items": {"type": "array", "items": "double"}},
            },
            {"stream": "r1", "times": [1.5, 2.5], "values": [[1.0, 2.0], [3.0, 4.0]]},
            {},
        ),
        (
            {"unit": "string", "ts": "long", "temp": MAYBE, "ph": "int", "other": "bytes"},
            {"unit": "r1", "ts": 7, "temp": 81.25, "ph": 7, "other": b"x"},
            {"fields": {"stream": "unit", "time": "ts", "values": None}},
        ),
        (
            {"path": "string", "ts": "long", "value": "double"},
            {"path": "plant/r1/temp", "ts": 7, "value": 81.25},
            {
                "fields": {
                    "pattern": {"field": "path", "parts": "plant/{stream}/{channel}"},
                    "time": "ts",
                    "value": "value",
                }
            },
        ),
        (
            {"stream": "string", "time": "double", "list": {"type": "array", "items": READING}},
            {"stream": "r1", "time": 1.5, "list": [{"tag": "temp", "v": 81.25}, {"tag": "ph", "v": "7.5"}]},
            {"fields": {"each": "list", "channel": "tag", "value": "v"}},
        ),
    ],
)
def test_avro_gives_what_json_gives(fields: dict[str, Any], message: dict[str, Any], decode: dict[str, Any]) -> None:
    as_json = {key: value for key, value in message.items() if not isinstance(value, bytes)}
    assert_equal(avro(fields, message, **decode), plain(as_json, **decode))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("fields", [None, {"values": None}])
@pytest.mark.parametrize("name", ["timestamp-millis", "timestamp-micros"])
def test_a_logical_time_is_right_in_every_unit(unit: str, fields: dict[str, Any] | None, name: str) -> None:
    time = {"type": "long", "logicalType": name}
    values = {"temp": "double", "ph": "double"} if fields else {"values": VALUES}
    message = {"temp": 1.0, "ph": 2.0} if fields else {"values": {"temp": 1.0, "ph": 2.0}}
    block = avro(
        {"stream": "string", "time": time, **values},
        {"stream": "r1", "time": NOON, **message},
        time_unit=unit,
        **({"fields": fields} if fields else {}),
    )
    assert block.times_us.tolist() == [NOON_US]


def test_a_local_time_needs_its_zone_and_takes_it() -> None:
    fields = {"stream": "string", "time": {"type": "long", "logicalType": "local-timestamp-millis"}, "temp": "double"}
    message = {"stream": "r1", "time": NOON.replace(tzinfo=None), "temp": 1.0}
    with pytest.raises(DecodeError, match=r"decode\.timezone"):
        avro(fields, message, fields={"values": None})
    block = avro(fields, message, fields={"values": None}, timezone="Europe/Berlin")
    assert block.times_us.tolist() == [NOON_US - 3_600_000_000]


def test_a_logical_time_is_no_time_since_a_start_but_a_time_of_day_is() -> None:
    decode = {"fields": {"values": None}, "time": "relative"}
    instant = {"stream": "string", "time": {"type": "long", "logicalType": "timestamp-millis"}, "temp": "double"}
    with pytest.raises(DecodeError, match="relative"):
        avro(instant, {"stream": "r1", "time": NOON, "temp": 1.0}, **decode)
    clock = {**instant, "time": {"type": "int", "logicalType": "time-millis"}}
    message = {"stream": "r1", "time": (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=90)).time(), "temp": 1.0}
    assert avro(clock, message, **decode, time_unit="ms").times_us.tolist() == [90_000_000]
    with pytest.raises(DecodeError, match="counts from a start"):
        avro(clock, message, fields={"values": None})


def test_a_date_and_a_time_of_day_make_a_time() -> None:
    fields = {
        "stream": "string",
        "day": {"type": "int", "logicalType": "date"},
        "clock": {"type": "long", "logicalType": "time-micros"},
        "temp": "double",
    }
    message = {"stream": "r1", "day": NOON.date(), "clock": NOON.time(), "temp": 1.0}
    decode = {"fields": {"values": None, "time": ["day", "clock"]}, "timezone": "UTC"}
    assert avro(fields, message, **decode).times_us.tolist() == [NOON_US]


def test_numbers_that_are_none_are_missing_and_decimals_are_readings() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fields = {"stream": "string", "time": "double", "temp": "double", "ph": ["null", decimal]}
    decode = {"fields": {"values": None}}
    block = avro(fields, {"stream": "r1", "time": 1.5, "temp": float("nan"), "ph": None}, **decode)
    assert np.isnan(block.values).all()
    assert block.bad is None
    block = avro(fields, {"stream": "r1", "time": 1.5, "temp": float("inf"), "ph": Decimal("7.25")}, **decode)
    assert np.array_equal(block.values, [[np.nan, 7.25]], equal_nan=True)
    assert block.bad is not None


def test_protobuf_times_are_right_and_durations_are_no_instants() -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
      message M { string stream = 1; google.protobuf.Timestamp time = 2; double temp = 3; optional double ph = 4;
        google.protobuf.Duration since = 5; }"""
    made = classes(compiled({"m.proto": text}))("M")(stream="r1")
    made.time.FromDatetime(NOON)
    made.since.FromMilliseconds(1_500)
    record = Record(0, b"\0\0\0\0\1\0" + made.SerializeToString())
    schema = RegisteredSchema("protobuf", text)
    (block,) = decoder_of(schema, fields={"values": None}, time_unit="ns").decode(record, None).blocks
    assert block.times_us.tolist() == [NOON_US]
    assert np.array_equal(block.values, [[0.0, np.nan]], equal_nan=True)
    elapsed = {"fields": {"values": None, "time": "since"}}
    (block,) = decoder_of(schema, **elapsed, time="relative", time_unit="ms").decode(record, None).blocks
    assert block.times_us.tolist() == [1_500_000]
    with pytest.raises(DecodeError, match="counts from a start"):
        decoder_of(schema, **elapsed).decode(record, None)


def test_json_schema_gives_what_json_gives() -> None:
    message = {"stream": "r1", "time": 1.5, "values": {"temp": 81.25, "ph": None}}
    framed = Record(0, b"\0\0\0\0\1" + json.dumps(message).encode())
    (block,) = decoder_of(RegisteredSchema("json", "{}")).decode(framed, None).blocks
    assert_equal(block, plain(message))


ODD = st.sampled_from(
    [None, True, 0, 7, 2**70, 1.5, math.nan, math.inf, "", "r1", "2026-03-01T12:00:00Z", "7", b"x", NOON]
)
NUMBERS = st.sampled_from([1.5, 2, None, math.nan])
OBJECTS = st.dictionaries(st.sampled_from(["temp", "ph", "other"]), st.one_of(NUMBERS, ODD), max_size=3)
ROWS = st.lists(st.lists(st.one_of(NUMBERS, ODD), max_size=3), max_size=3)
MESSAGES = st.fixed_dictionaries(
    {"stream": st.one_of(st.just("r1"), ODD), "values": st.one_of(OBJECTS, ROWS, ODD)},
    optional={
        "time": st.one_of(st.just(1.5), ODD),
        "times": st.one_of(st.lists(st.one_of(st.just(1.5), ODD), max_size=3), ODD),
        "sequence": ODD,
        "end": ODD,
        "channels": st.one_of(st.lists(st.sampled_from(["temp", "ph", "x"]), max_size=3), ODD),
    },
)


def outcome(read: Any) -> Any:
    try:
        found = read()
    except DecodeError as error:
        return error.kind, str(error)
    if found is None:
        return None
    bad = None if found.bad is None else (found.bad.codes.tolist(), found.bad.first)
    return found._replace(times_us=found.times_us.tolist(), values=found.values.tobytes(), bad=bad, indexes=None)


@given(MESSAGES)
@example({"stream": "r1", "time": NOON, "values": {"temp": 1.5, "ph": None}})
@example({"stream": "r1", "times": [NOON, 1.5], "values": [[1.5, 2.5], [1.5, None]], "end": True})
def test_the_fast_way_of_a_parsed_message_gives_what_the_general_one_gives(message: dict[str, Any]) -> None:
    channels = [ChannelSettings(name="temp"), ChannelSettings(name="ph")]
    own = OwnReader(channels, TimeReader("s", relative=False), 100)
    found = outcome(lambda: own.read_parsed(message))
    if found is not None:
        assert found == outcome(lambda: decoder_of().fields.read(message, Record(0, b"x")))


@pytest.mark.parametrize("decode", [{}, {"time_format": "%Y-%m-%d", "timezone": "UTC"}, {"time": "relative"}])
def test_a_time_of_a_million_digits_is_no_time(decode: dict[str, Any]) -> None:
    columns = {
        "stream": "string",
        "temp": "double",
        "t": {"type": "bytes", "logicalType": "decimal", "precision": 1_000_000},
    }
    schema = {"type": "record", "name": "M", "fields": [{"name": k, "type": v} for k, v in columns.items()]}
    decoder = decoder_of(
        RegisteredSchema("avro", json.dumps(schema)), fields={"time": "t", "values": None, "sequence": None}, **decode
    )
    value = b"\0\0\0\0\1" + b"\x04r1" + bytes(8) + b"\xc0\x84\x3d" + b"\x7f" + bytes(499_999)
    with pytest.raises(DecodeError, match="t: ") as refused:
        decoder.decode(Record(0, value), None)
    assert refused.value.kind in {"bad_time", "wrong_type"}
