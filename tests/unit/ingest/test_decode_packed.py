"""Messages in gzip, and JSON or base64 in the fields of messages: the same as the message itself."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in

T = 1_772_352_930
CHANNELS = [ChannelSettings(name="temp"), ChannelSettings(name="flow")]
OWN = {"stream": "r", "sequence": "B", "time": T, "values": {"temp": 1.5, "flow": None}}
NESTED = DecodeSettings(fields=FieldSettings(time="data.t", values="data.values", nested="data"))
Pack = Callable[[Any], Any]
PACKS: dict[str, Pack] = {
    "object": lambda content: content,
    "json": json.dumps,
    "json with blanks": lambda content: "\n " + json.dumps(content, indent=1),
    "base64": lambda content: base64.b64encode(json.dumps(content).encode()).decode(),
    "base64 for addresses": lambda content: base64.urlsafe_b64encode(json.dumps(content).encode()).decode(),
    "base64 in lines": lambda content: base64.encodebytes(json.dumps(content).encode()).decode(),
    "base64 of msgpack": lambda content: base64.b64encode(msgspec.msgpack.encode(content)).decode(),
    "base64 of gzip": lambda content: base64.b64encode(gzip.compress(json.dumps(content).encode())).decode(),
}


def decoded(value: bytes, decode: DecodeSettings, **record: Any) -> SampleBlock:
    block = block_in(Decoder(decode, CHANNELS), Record(0, value, **record))
    assert block is not None
    return block


def error_of(value: bytes, decode: DecodeSettings) -> tuple[str, str]:
    with pytest.raises(DecodeError) as caught:
        decoded(value, decode)
    return caught.value.kind, str(caught.value)


def assert_same(found: SampleBlock, expected: SampleBlock) -> None:
    assert (found.stream, found.sequence, found.end) == (expected.stream, expected.sequence, expected.end)
    assert found.times_us.tolist() == expected.times_us.tolist()
    np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode])
@pytest.mark.parametrize("setting", ["auto", "own"])
def test_gzip_is_unpacked_whatever_is_in_it(encode: Callable[[Any], bytes], setting: str) -> None:
    plain = encode(OWN)
    decode = DecodeSettings()
    if setting == "own":
        decode = DecodeSettings(format="json" if encode is msgspec.json.encode else "msgpack")
    halves = gzip.compress(plain[:9]) + gzip.compress(plain[9:])  # as files of several parts are
    for packed in (gzip.compress(plain), halves):
        assert_same(decoded(packed, decode), decoded(plain, decode))


def test_what_gzip_packs_is_bounded() -> None:
    decode = DecodeSettings(max_message_bytes=100_000)  # type: ignore[arg-type]
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    assert error_of(bomb, decode) == ("too_large", "more than 100000 bytes, once unpacked")
    parts = gzip.compress(b" " * 60_000)
    assert error_of(parts + parts, decode)[0] == "too_large"
    inside = json.dumps({"data": base64.b64encode(bomb).decode()}).encode()
    assert error_of(inside, NESTED.model_copy(update={"max_message_bytes": 100_000})) == (
        "too_large",
        "data: more than 100000 bytes, once unpacked",
    )


def test_gzip_that_is_damaged_is_an_error() -> None:
    packed = gzip.compress(json.dumps(OWN).encode())
    assert error_of(packed[:-9], DecodeSettings()) == ("malformed", "gzip that is cut off")
    assert error_of(packed[:12] + b"\xff" * 9, DecodeSettings())[0] == "malformed"
    assert error_of(gzip.compress(b"nothing"), DecodeSettings())[0] == "malformed"


@pytest.mark.parametrize("decode", [DecodeSettings(), DecodeSettings(fields=FieldSettings())])
def test_a_message_written_as_text_once_more_is_the_message(decode: DecodeSettings) -> None:
    value = json.dumps(json.dumps(OWN)).encode()
    assert_same(decoded(value, decode), decoded(json.dumps(OWN).encode(), decode))
    assert error_of(json.dumps("text").encode(), decode) == ("wrong_type", "a message must be an object, got 'text'")


@given(
    times=st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
    pack=st.sampled_from(sorted(PACKS)),
    as_list=st.booleans(),
)
def test_a_nested_field_is_what_it_holds(times: list[int], pack: str, as_list: bool) -> None:
    def written(pack: Pack) -> bytes:
        messages = [
            {"stream": "r", "sequence": "B", "data": pack({"t": T + time, "values": {"temp": time, "flow": "x"}})}
            for time in times
        ]
        return json.dumps(messages if as_list else messages[0]).encode()

    assert_same(decoded(written(PACKS[pack]), NESTED), decoded(written(PACKS["object"]), NESTED))


@pytest.mark.parametrize("list_is_nested", [False, True])
def test_elements_of_a_list_may_have_nested_fields(list_is_nested: bool) -> None:
    nested = ("box", "data") if list_is_nested else "data"
    fields = FieldSettings(each="box.list", time="t", values=None, nested=nested)
    decoder = Decoder(DecodeSettings(fields=fields), [ChannelSettings(name="temp", field="data.temp")])
    elements: list[Any] = [
        {"t": T, "data": json.dumps({"temp": 1.0})},
        {"t": T + 1, "data": base64.b64encode(b'{"temp": 2.0}').decode()},
        {"t": T + 2, "data": {"temp": 3.0}},
        {"t": T + 3, "data": "not base64"},
        "no object",
    ]
    box = {"list": elements}
    message = {"stream": "r", "sequence": "s", "box": json.dumps(box) if list_is_nested else box}
    found = decoder.decode(Record(0, json.dumps(message).encode()), None)
    (block,) = found.blocks
    assert block.values[:, 0].tolist()[:3] == [1.0, 2.0, 3.0]
    assert np.isnan(block.values[3, 0])
    assert block.bad is not None
    assert [error.index for error in found.unreadable] == [4]


def test_text_where_an_object_should_be_is_said_to_be_json() -> None:
    fields = FieldSettings(each="list", time="data.t", values=None)
    element = {"data": json.dumps({"t": T, "temp": 1.0})}
    decoder = Decoder(DecodeSettings(fields=fields), [ChannelSettings(name="temp", field="data.temp")])
    found = decoder.decode(Record(0, json.dumps({"stream": "r", "list": [element]}).encode()), None)
    (error,) = found.unreadable
    assert "stands where an object should be: name this text in decode.fields.nested" in str(error)


def test_fields_in_what_was_nested_may_be_nested_themselves() -> None:
    fields = FieldSettings(time="a.b.t", values="a.b.values", nested=("a", "a.b"))
    message = {"stream": "r", "a": json.dumps({"b": json.dumps({"t": T, "values": {"temp": 1, "flow": 2}})})}
    assert decoded(json.dumps(message).encode(), DecodeSettings(fields=fields)).values.tolist() == [[1, 2]]


def test_bytes_of_msgpack_are_content_too() -> None:
    message = {"stream": "r", "data": msgspec.msgpack.encode({"t": T, "values": {"temp": 1, "flow": 2}})}
    assert decoded(msgspec.msgpack.encode(message), NESTED).values.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ("{", "malformed", "data: not JSON: "),
        ("no base64!", "malformed", "data: must be an object, JSON in text or base64, got 'no base64!'"),
        ("abcd", "malformed", "data: not JSON: "),
        ("[1, 2]", "wrong_type", "data.values: a list stands where an object should be"),
        ("[" * 100_000, "malformed", "data: not JSON: "),
        ("\ud800", "malformed", "not JSON"),
        (17, "wrong_type", "data.values: 17 stands where an object should be"),
        ("", "wrong_type", "data.values: '' stands where an object should be"),
        (None, "missing_field", "data.values: is missing"),
    ],
)
def test_what_holds_no_content_is_an_error(content: Any, kind: str, text: str) -> None:
    found = error_of(json.dumps({"stream": "r", "data": content}).encode(), NESTED)
    assert (found[0], found[1][: len(text)]) == (kind, text)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_samples_or_an_error(value: bytes, is_gzip: bool) -> None:
    packed = gzip.compress(value) if is_gzip else b"\x1f\x8b" + value
    inside = json.dumps({"stream": "r", "data": base64.b64encode(packed).decode()}).encode()
    for message, decode in ((packed, DecodeSettings()), (inside, NESTED)):
        with suppress(DecodeError):
            Decoder(decode, CHANNELS).decode(Record(0, message), None)


# --- what packed content may cost ---------------------------------------------------------------------------------


def test_gzip_in_many_parts_is_one_message_and_in_very_many_is_refused() -> None:
    """Each part costs a decompressor, and a part may be empty."""
    text = json.dumps(OWN).encode()
    parts = b"".join(gzip.compress(text[at : at + 1]) for at in range(len(text)))
    assert_same(decoded(parts, DecodeSettings()), decoded(text, DecodeSettings()))
    assert error_of(gzip.compress(b"") * 1_000 + parts, DecodeSettings()) == (
        "malformed",
        "gzip of more than 1000 parts",
    )


def test_a_part_of_gzip_ends_at_any_byte() -> None:
    message = {**OWN, "note": "".join(map(str, range(30_000)))}
    text = json.dumps(message).encode()
    first = gzip.compress(text[:100_000], compresslevel=0)
    for behind in (b"", b"\0" * 5):
        packed = first + gzip.compress(text[100_000:]) + behind
        assert_same(decoded(packed, DecodeSettings()), decoded(text, DecodeSettings()))


def test_bytes_behind_gzip_are_not_left_out_silently() -> None:
    text = json.dumps(OWN).encode()
    assert error_of(gzip.compress(text) + text, DecodeSettings()) == ("malformed", "gzip with other bytes behind it")


def test_all_packed_fields_of_a_message_share_one_limit() -> None:
    """Few bytes would else fill the memory: each field of each message of a list may be packed."""
    settings = NESTED.model_copy(update={"max_message_bytes": 10_000})
    content = {"t": T, "values": {"temp": 1.5}, "note": "x" * 4_000}
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode())).decode()
    message = {"stream": "r", "sequence": "B", "data": packed}
    assert len(decoded(json.dumps([message] * 2).encode(), settings)) == 2
    expected = "too_large", "data: more than 10000 bytes, once unpacked"
    assert error_of(json.dumps([message] * 3).encode(), settings) == expected


def test_packed_elements_of_a_list_share_the_limit_with_those_that_are_refused() -> None:
    """Each would else be unpacked up to the limit before it is refused."""
    fields = FieldSettings(each="list", stream="stream", values="data.values", time="data.t", nested="data")
    settings = DecodeSettings(fields=fields, max_message_bytes=10_000)
    content = json.dumps({"t": T, "values": {"temp": 1.5}})
    good, bomb = (base64.b64encode(gzip.compress(text.encode())).decode() for text in (content, " " * 20_000))
    damaged = base64.b64encode(gzip.compress(b" " * 9_000)[:-8] + b"x" * 8).decode()
    for elements, n_read in (([good, "?", good], 2), ([good, bomb, good], 1), ([good, damaged, good], 1)):
        message = {"stream": "r", "sequence": "B", "list": [{"data": data} for data in elements]}
        found = Decoder(settings, CHANNELS).decode(Record(0, json.dumps(message).encode()), None)
        assert (sum(map(len, found.blocks)), len(found.unreadable)) == (n_read, 3 - n_read)
