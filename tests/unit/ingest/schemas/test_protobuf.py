"""Protobuf messages, written by Google's library, are read by the names of their fields; hostile ones are one error."""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from streamad.errors import DecodeError, SchemaError
from streamad.ingest.schemas.framing import Framed
from streamad.ingest.schemas.protobuf.reader import ProtobufReader
from streamad.ingest.schemas.readers import message_reader
from streamad.ingest.schemas.registered import RegisteredSchema
from tests.support.protoc import base64_of, classes, compiled

PLANT = """
syntax = "proto3";
package plant.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "shared/unit.proto";
message Ignored {}
message Sample {
  string stream = 1;
  optional string sequence = 2;
  google.protobuf.Timestamp time = 3;
  double temp_c = 4;
  optional double pressure = 5;
  int64 n = 6;
  uint64 big = 7;
  enum State { IDLE = 0; RUN = 1; }
  State state = 8;
  oneof cause { string text = 9; int32 code = 10; }
  map<string, double> values = 11;
  map<bool, Reading> readings_by = 12;
  repeated Reading readings = 13;
  repeated double row = 14;
  google.protobuf.Duration took = 15;
  google.protobuf.DoubleValue ph = 16;
  google.protobuf.Struct free = 17;
  shared.Unit unit = 18;
  bytes raw = 19;
  float single = 20;
  bool ok = 21;
  repeated State states = 22;
  message Reading { string tag = 1; double v = 2; message Deep { sint32 x = 1; } Deep deep = 3; }
}
message Tree { Tree left = 1; double HasField = 2; double ParseFromString = 3; optional double DESCRIPTOR = 4; }
"""
SHARED = 'syntax = "proto3"; package shared; message Unit { string name = 1; }'
PROTO2 = """
syntax = "proto2";
message Old {
  required string stream = 1;
  optional double temp = 2 [default = 5];
  optional group Inner = 3 { optional int32 x = 1; }
}
"""


@pytest.fixture(scope="module")
def files() -> dict[str, FileDescriptorProto]:
    return compiled({"plant.proto": PLANT, "shared/unit.proto": SHARED, "old.proto": PROTO2})


@pytest.fixture(scope="module", params=["compiled", "text"])
def reader(files: dict[str, FileDescriptorProto], request: pytest.FixtureRequest) -> ProtobufReader:
    is_text = request.param == "text"
    unit = RegisteredSchema("protobuf", SHARED if is_text else base64_of(files["shared/unit.proto"]))
    text = PLANT if is_text else base64_of(files["plant.proto"])
    found = message_reader(RegisteredSchema("protobuf", text, (("shared/unit.proto", unit),)))
    assert isinstance(found, ProtobufReader)
    return found


SAMPLE, READING, DEEP, TREE = b"\2\2", b"\4\2\0", b"\6\2\0\0", b"\2\4"


def test_all_kinds_of_fields(files: dict[str, FileDescriptorProto], reader: ProtobufReader) -> None:
    text = """
      stream: "r1" time { seconds: 1772366400 nanos: 250000000 } temp_c: 81.25 n: -9007199254740993
      big: 18446744073709551615 state: RUN code: 0 values { key: "a" value: 1.5 } values { key: "b" value: nan }
      readings_by { key: true value { tag: "x" } } readings { tag: "y" v: 2.5 deep { x: -1 } } readings {}
      row: [1, 2.5] took { seconds: -1 nanos: -500000000 } ph { value: 0 } unit { name: "bar" } raw: "\\377"
      single: 0.5 states: [IDLE, RUN]
      free { fields { key: "k" value { list_value { values { number_value: 1 } values { null_value: 0 } } } } }
    """
    message = text_format.Parse(text, classes(files)("plant.v1.Sample")())
    message.states.append(7)
    value = b"\0\0\0\0\1" + SAMPLE + message.SerializeToString()
    found = reader.read(value, Framed(1, 5))
    assert math.isnan(found["values"].pop("b"))
    assert found == {
        "stream": "r1",
        "time": datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC),
        "temp_c": 81.25,
        "n": -9_007_199_254_740_993,
        "big": 2**64 - 1,
        "state": "RUN",
        "code": 0,
        "values": {"a": 1.5},
        "readings_by": {"true": {"tag": "x", "v": 0.0}},
        "readings": [{"tag": "y", "v": 2.5, "deep": {"x": -1}}, {"tag": "", "v": 0.0}],
        "row": [1.0, 2.5],
        "took": "-1.5s",
        "ph": 0.0,
        "free": {"k": [1.0, None]},
        "unit": {"name": "bar"},
        "raw": b"\xff",
        "single": 0.5,
        "ok": False,
        "states": ["IDLE", "RUN", 7],
    }


def test_an_absent_number_is_zero_and_an_absent_optional_one_is_missing(reader: ProtobufReader) -> None:
    found = reader.read(SAMPLE, Framed(1, 0))
    assert found["temp_c"] == 0.0
    assert (found["stream"], found["state"], found["row"], found["values"]) == ("", "IDLE", [], {})
    assert not {"sequence", "pressure", "time", "text", "code", "took", "ph", "free", "unit"} & found.keys()


@pytest.mark.parametrize("is_text", [False, True])
def test_proto2_has_no_reading_where_a_default_stands(files: dict[str, FileDescriptorProto], is_text: bool) -> None:
    text = PROTO2 if is_text else base64_of(files["old.proto"])
    reader = message_reader(RegisteredSchema("protobuf", text))
    message = classes(files)("Old")(stream="r1")
    assert reader.read(b"\0" + message.SerializeToString(), Framed(1, 0)) == {"stream": "r1"}
    message.inner.x = 3
    message.temp = 5
    found = reader.read(b"\0" + message.SerializeToString(), Framed(1, 0))
    assert found == {"stream": "r1", "temp": 5.0, "inner": {"x": 3}}
    assert reader.read(b"\0", Framed(1, 0)) == {}  # required, and absent


@pytest.mark.parametrize(("indexes", "name"), [(READING, "Sample.Reading"), (DEEP, "Sample.Reading.Deep")])
def test_message_indexes_lie_before_the_payload_or_in_the_header(
    files: dict[str, FileDescriptorProto], reader: ProtobufReader, indexes: bytes, name: str
) -> None:
    message = classes(files)(f"plant.v1.{name}")()
    if name.endswith("Deep"):
        message.x = 7
    else:
        message.tag = "t"
    payload = message.SerializeToString()
    found = reader.read(indexes + payload, Framed(1, 0))
    assert (found.get("x"), found.get("tag")) == ((7, None) if name.endswith("Deep") else (None, "t"))
    assert reader.read(payload, Framed(1, 0, indexes)) == found


def test_a_field_may_have_the_name_of_a_method(files: dict[str, FileDescriptorProto], reader: ProtobufReader) -> None:
    tree = classes(files)("plant.v1.Tree")
    fields = {"HasField": 1.0, "ParseFromString": 2.0, "DESCRIPTOR": 3.0}
    value = tree(left=tree(**fields)).SerializeToString()
    assert reader.read(value, Framed(1, 0, TREE)) == {"HasField": 0.0, "ParseFromString": 0.0, "left": fields}


def test_confluents_decimals_are_numbers() -> None:
    text = 'syntax = "proto3"; import "confluent/type/decimal.proto"; message M { confluent.type.Decimal x = 1; }'
    of_decimal = """syntax = "proto3"; package confluent.type;
      message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"""
    made = compiled({"m.proto": text, "confluent/type/decimal.proto": of_decimal})
    reader = message_reader(RegisteredSchema("protobuf", base64_of(made["m.proto"])))
    message = classes(made)("M")()
    message.x.value, message.x.scale = (-8125).to_bytes(2, "big", signed=True), 2
    assert reader.read(b"\0" + message.SerializeToString(), Framed(1, 0)) == {"x": -81.25}
    message.x.value, message.x.scale = b"\x7f" + bytes(500_000), 0
    assert reader.read(b"\0" + message.SerializeToString(), Framed(1, 0)) == {"x": float("inf")}


def nested(depth: int) -> bytes:
    payload = b""
    for _ in range(depth):
        size, head = len(payload), b""
        while size > 0x7F:
            head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
        payload = b"\n" + head + bytes([size]) + payload
    return payload


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"", "malformed"),
        (b"\1", "malformed"),
        (b"\2", "malformed"),
        (b"\2\x0a", "malformed"),
        (b"\2\1", "malformed"),
        (b"\xff" * 9, "malformed"),
        (b"\x80\x40" + b"\2" * 5_000, "malformed"),
        (SAMPLE + b"\xff", "malformed"),
        (SAMPLE + b"\x0a\xff\xff\xff\xff\x0f", "malformed"),
        (SAMPLE + b"\x0a\2\xff\xff", "malformed"),  # not UTF-8
        (TREE + nested(90), None),
        (TREE + nested(1_000), "malformed"),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_hostile_bytes_are_one_error(reader: ProtobufReader, value: bytes, kind: str | None) -> None:
    if kind is None:
        reader.read(value, Framed(1, 0))
        return
    with pytest.raises(DecodeError) as refused:
        reader.read(value, Framed(1, 0))
    assert refused.value.kind == kind


def test_a_wide_message_inside_is_counted_before_it_is_parsed() -> None:
    fields = "".join(f" optional double f{i} = {i};" for i in range(1, 5_000))
    text = f'syntax = "proto3"; message W {{{fields} }} message M {{ repeated W w = 1; double x = 2; }}'
    plain = "".join(f" double f{i} = {i};" for i in range(1, 100))
    text += f" message P {{{plain} }} message Rows {{ repeated P p = 1; }}"
    made = compiled({"m.proto": text})
    reader = message_reader(RegisteredSchema("protobuf", base64_of(made["m.proto"])))
    with pytest.raises(DecodeError, match="memory"):
        reader.read(b"\2\2" + b"\n\0" * 10_000, Framed(1, 0))
    assert len(reader.read(b"\2\2" + b"\n\0" * 1_000 + b"\n\x09\x09" + b"\0" * 8, Framed(1, 0))["w"]) == 1_001
    with pytest.raises(DecodeError, match="absent"):
        reader.read(b"\2\6" + b"\n\0" * 20_000, Framed(1, 0))
    assert len(reader.read(b"\2\6" + b"\n\0" * 5_000, Framed(1, 0))["p"]) == 5_000
    assert reader.read(b"\2\2" + b"\x11" + b"\0" * 8, Framed(1, 0)) == {"w": [], "x": 0.0}
    with pytest.raises(DecodeError, match="not of its schema"):
        reader.read(b"\2\2\7" + b"\n\0" * 100_000, Framed(1, 0))


def file_of(**fields: Any) -> str:
    return base64.b64encode(FileDescriptorProto(**fields).SerializePartialToString()).decode()


MESSAGE = [{"name": "M"}]
FIELD = [{"name": "xy", "number": 1, "type": 1}]
MAPPED = [{"name": "x", "number": 1, "label": 3, "type": 11, "type_name": "XEntry"}]
ENTRY = {"name": "XEntry", "options": {"map_entry": True}, "field": [{"name": "key", "number": 1, "type": 9}]}
UNFINISHED = {"uninterpreted_option": [{"name": [{"name_part": "x"}]}]}


@pytest.mark.parametrize(
    ("text", "references", "match"),
    [
        ('edition = "2023"; message M {}', (), "format=serialized"),
        ("////", (), "without a message"),
        ("AAAA", (), "not a .proto text"),
        ("message M { optional int32 x = 1 }", (), "not a .proto text"),
        ("message M { optional int32 x = 99999999999; }", (), "not a .proto text"),
        ("message M { optional 5 x = 1; }", (), "not a .proto text"),
        ("message M { optional int32 x = 1; optional int32 x = 2; }", (), "not a Protobuf schema"),
        ("message M { optional Nothing x = 1; }", (), "not a Protobuf schema"),
        ("message M { option (x) = { a: [1, { b: 2 }; }", (), "not a .proto text"),
        ("message M { oneof o { repeated int32 x = 1; } }", (), "not a .proto text"),
        ("message M {" * 50 + "}" * 50, (), "not a .proto text"),
        ("message M {" * 100_000, (), "not a .proto text"),
        ("/*" * 100_000, (), "not a .proto text"),
        ('message M { option x = "' + "\\" * 100_000, (), "not a .proto text"),
        ("é", (), "not a .proto text"),
        (file_of(syntax="proto3"), (), "without a message"),
        (file_of(syntax="proto9", message_type=MESSAGE), (), "not a Protobuf schema"),
        (file_of(message_type=[{"name": "a b"}]), (), "not a Protobuf schema"),
        (file_of(message_type=MESSAGE, dependency=["x.proto"]), (), "x.proto"),
        (file_of(message_type=MESSAGE, dependency=["x.proto"]), (("x.proto", file_of(dependency=["y"])),), "y"),
        (
            file_of(message_type=MESSAGE, dependency=["x"]),
            (("x", file_of(dependency=["y"])), ("y", file_of(dependency=["x"]))),
            "imports itself",
        ),
        (file_of(message_type=[{"name": "M", "field": [{"name": "x", "number": 1, "type_name": "N"}]}]), (), "not a"),
        (file_of(package="p" * 499, message_type=[{"name": "M", "field": FIELD}]), (), "a name of more than 500"),
        ("message M { message " + "N" * 500 + " {} }", (), "a name of more than 500"),
        ("message M { enum E { " + "V" * 500 + " = 0; } }", (), "a name of more than 500"),
        (file_of(message_type=[{"name": "M", "field": MAPPED, "nested_type": [ENTRY]}]), (), "without keys or values"),
        (file_of(message_type=[{"name": "M", "options": UNFINISHED}]), (), "missing required fields"),
    ],
)
def test_a_schema_that_is_none_is_one_line(text: str, references: tuple[tuple[str, str], ...], match: str) -> None:
    inner = tuple((name, RegisteredSchema("protobuf", one)) for name, one in references)
    with pytest.raises(SchemaError, match=match) as refused:
        message_reader(RegisteredSchema("protobuf", text, inner))
    assert "\n" not in str(refused.value)


ODD = r"""
// A text with all that says nothing about bytes.
syntax = 'proto3';
package a.b;
import "google/protobuf/descriptor.proto"; import public "google/protobuf/timestamp.proto";
option java_package = "x;y"; option (of_file) = { a: [{}, {b: "}"}], c: -1.5e-3 };
extend google.protobuf.FieldOptions { optional string mine = 50000; }
extend google.protobuf.OneofOptions { optional int32 x = 50000; }
extend google.protobuf.FileOptions { optional Option of_file = 50000; }
service S { rpc Do (M) returns (stream M) { option deprecated = true; } };
enum Far { option allow_alias = true; reserved 5 to 9; reserved "OLD"; ZERO = 0; NIL = 0;
  LOW = -1 [deprecated = true]; HEX = 0x10; }
message M { /* a comment; } */
  reserved 2, 15, 100 to max; reserved "old";
  Inner inner = 1 [(mine) = "]", json_name = "x"];
  .a.b.Far far = 010; oneof o { option (x) = 1; string message = 3; a.b.M.Inner other = 4; }
  optional bool ok = 5; map<uint32, M.Inner> by_some_id = 6; repeated sint64 packed = 7 [packed = false];
  google.protobuf.Timestamp at = 16;
  message Inner { double v = 1; enum Far { NEAR = 0; } Far far = 2; }
  ;
}
message Option { repeated Option a = 1; string b = 2; double c = 3; }
"""


def test_a_text_is_read_as_its_compiler_reads_it() -> None:
    made = compiled({"odd.proto": ODD})
    readers = [message_reader(RegisteredSchema("protobuf", text)) for text in (ODD, base64_of(made["odd.proto"]))]
    message = classes(made)("a.b.M")(
        far=16, ok=False, by_some_id={7: {"v": 1.5}}, packed=[-1, 2**40], at={"seconds": 7}
    )
    message.other.far = 0
    found = [reader.read(b"\0" + message.SerializeToString(), Framed(1, 0)) for reader in readers]
    assert found[0] == found[1]
    assert found[0]["far"] == "HEX"
    assert found[0]["by_some_id"] == {"7": {"v": 1.5, "far": "NEAR"}}
    inner = [reader.read(b"\4\0\0\x09" + b"\0" * 8, Framed(1, 0)) for reader in readers]
    assert inner == [{"v": 0.0, "far": "NEAR"}] * 2


def test_a_type_that_borrows_a_well_known_name_is_an_ordinary_one() -> None:
    made = compiled(
        {"m.proto": 'syntax = "proto3"; package google.protobuf; message Timestamp { string seconds = 1; }'}
    )
    reader = message_reader(RegisteredSchema("protobuf", base64_of(made["m.proto"])))
    assert reader.read(b"\0\n\1x", Framed(1, 0)) == {"seconds": "x"}


def chain(n: int) -> RegisteredSchema:
    types = "".join(f"message M{i} {{ M{i + 1} x = 1; int32 n = 2; }} " for i in range(n))
    return RegisteredSchema("protobuf", f'syntax = "proto3"; {types} message M{n} {{}}')


def test_messages_in_messages_are_read_up_to_a_depth() -> None:
    assert message_reader(chain(90)).read(b"\0\n\2\x10\7", Framed(1, 0)) == {"n": 0, "x": {"n": 7}}
    with pytest.raises(SchemaError, match="100 deep"):
        message_reader(chain(10_000))


def test_a_message_that_lies_too_deep_is_an_error_of_its_record_alone() -> None:
    types = "".join(f"message M{i} {{ M{i + 1} x = 1; }} " for i in range(1_000))
    text = f'syntax = "proto3"; message First {{ int32 n = 1; }} {types} message M1000 {{}}'
    reader = message_reader(RegisteredSchema("protobuf", text))
    assert reader.read(b"\0\x08\7", Framed(1, 0)) == {"n": 7}
    with pytest.raises(DecodeError, match="100 deep"):
        reader.read(b"\2\2\n\0", Framed(1, 0))


def test_a_file_that_imports_one_many_times_is_gone_through_once() -> None:
    many = file_of(syntax="proto3", message_type=MESSAGE, dependency=["x"] * 100_000)
    reader = message_reader(RegisteredSchema("protobuf", many, (("x", RegisteredSchema("protobuf", file_of())),)))
    assert reader.read(b"\0", Framed(1, 0)) == {}
