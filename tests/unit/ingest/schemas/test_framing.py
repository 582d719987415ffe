"""Which schema a record names, and where its payload begins."""

from __future__ import annotations

import sys
from uuid import UUID

import pytest

from streamad.errors import DecodeError, PluginError, SchemaError
from streamad.ingest.schemas.framing import Framed, framed
from streamad.ingest.schemas.readers import message_reader
from streamad.ingest.schemas.registered import MAX_REFERENCES, MAX_SCHEMA_CHARACTERS, RegisteredSchema
from streamad.types import Record

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("value", "schema", "found"),
    [
        (b"\0\0\0\1\2x", None, Framed(258, 5)),
        (b"\0\x7f\xff\xff\xff", None, Framed(2**31 - 1, 5)),  # a record without a byte of its own
        (b"\0\x80\0\0\0", None, None),  # no registry has such an id
        (b"\1" + GUID.bytes + b"x", None, Framed(str(GUID), 17)),
        (b"x", "0000000102", Framed(258, 0, b"")),
        (b"\0\0\0\1\2x", "0000000007", Framed(7, 0, b"")),  # the header wins
        (b"x", "01" + GUID.hex + "0402", Framed(str(GUID), 0, b"\4\2")),
        (b'{"a": 1}', None, None),
        (b"[1, 2]", None, None),
        (b"\0\0\0\1", None, None),
        (b"\1" + b"x" * 15, None, None),
        (b"\x81\xa1a\1\1\1", None, None),  # msgpack
    ],
)
def test_a_schema_is_named_before_the_payload_or_in_a_header(
    value: bytes, schema: str | None, found: Framed | None
) -> None:
    assert framed(Record(0, value, schema=schema)) == found


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (b"\0" + (7).to_bytes(8, "big") + b"\2\2", None),  # Apicurio's ids of eight bytes
        (b"x", "apicurio.value.globalId=0000000000000007"),
        (b"x", "0000000000000007"),
        (b"x", "7"),
        (b"x", "01ab"),
        (b"x", "02" + GUID.hex),
        (b"x", "0080000000"),
    ],
)
def test_other_framings_are_refused(value: bytes, schema: str | None) -> None:
    with pytest.raises(DecodeError) as refused:
        framed(Record(0, value, schema=schema))
    assert refused.value.kind == "schema_registry"


def test_json_is_read_behind_its_framing() -> None:
    reader = message_reader(RegisteredSchema("json", '{"type": "object"}'))
    value = b'\0\0\0\0\1{"a": [1, 2.5, NaN]}'
    message = reader.read(value, Framed(1, 5))
    assert message["a"][:2] == [1, 2.5]
    with pytest.raises(DecodeError, match="not JSON"):
        reader.read(value, Framed(1, 0))


def test_a_schema_and_its_references_are_bounded() -> None:
    half = "x" * (MAX_SCHEMA_CHARACTERS // 2 + 1)
    with pytest.raises(SchemaError, match="characters"):
        message_reader(RegisteredSchema("json", half, (("a", RegisteredSchema("json", half)),)))
    many = RegisteredSchema("json", "{}", (("a", RegisteredSchema("json", "{}")),) * MAX_REFERENCES)
    with pytest.raises(SchemaError, match="references"):
        message_reader(many)
    deep = RegisteredSchema("avro", '"int"')
    for _ in range(1_001):
        deep = RegisteredSchema("avro", '"int"', (("a", deep),))
    with pytest.raises(SchemaError, match="deep"):
        message_reader(deep)


def test_without_its_library_protobuf_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamad.ingest.schemas.protobuf.reader", None)
    with pytest.raises(PluginError, match="registry"):
        message_reader(RegisteredSchema("protobuf", "message M {}"))
