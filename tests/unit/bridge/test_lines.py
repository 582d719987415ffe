"""Messages as lines: what was JSON stays as it was, anything else gets a name, nothing is left out."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.bridge.lines import line_of
from streamad.types import FeedRecord

TOPIC, TIME_US, TIME = "plant/r1/temp_c", 1_772_352_930_250_000, "2026-03-01T08:15:30.250000Z"
HEAD = {"mqtt_topic": TOPIC, "mqtt_time": TIME}
JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def line(value: bytes, *, with_topic: bool = True) -> bytes:
    return line_of(FeedRecord(value, b"r1", TIME_US, label=TOPIC), with_topic=with_topic)


@pytest.mark.parametrize(
    ("value", "more"),
    [
        (b"23.4", {"value": 23.4}),
        (b" -1e3 ", {"value": -1000.0}),
        (b"true", {"value": True}),
        (b"null", {"value": None}),
        (b'"RUN"', {"value": "RUN"}),
        (b"RUN", {"value": "RUN"}),
        (b"NaN", {"value": "NaN"}),
        (b"1,5\r\n2,5", {"value": "1,5\r\n2,5"}),
        (b"", {"value": None}),
        (b"[1, 2]", {"value": [1, 2]}),
        (b"\xff\x00", {"value_base64": "/wA="}),
        (b'{"v": 1}', {"v": 1}),
        (b'\n{\n "v": 1\r\n}\n', {"v": 1}),
        (b"{}", {}),
        (b"{ \t}", {}),
        (b'{"v": 1, "mqtt_topic": "plant/r2/temp_c", "mqtt_time": 0}', {"v": 1}),  # nobody speaks for another topic
    ],
)
def test_a_line_names_topic_and_time_of_what_needs_them(value: bytes, more: dict[str, Any]) -> None:
    assert json.loads(line(value)) == {**HEAD, **more}
    if value.strip()[:1] not in (b"{", b"["):
        assert line(value, with_topic=False) == line(value)


@given(value=JSON, indent=st.sampled_from([None, 2]))
def test_json_keeps_its_meaning_and_objects_their_bytes(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    found = json.loads(line(text.encode()))
    assert found == {**HEAD, **(value if isinstance(value, dict) else {"value": value})}
    bare = line(text.encode(), with_topic=False)
    if isinstance(value, dict | list):
        assert json.loads(bare) == value
        assert indent or bare == text.encode()


@given(value=st.binary(max_size=40), with_topic=st.booleans())
def test_every_message_is_one_line_and_no_byte_of_what_is_no_json_is_lost(value: bytes, with_topic: bool) -> None:
    found = line(value, with_topic=with_topic)
    assert b"\n" not in found
    assert b"\r" not in found
    if value.strip(b" \t\r\n")[:1] in (b"{", b"["):
        return  # the decoder says whether it is sound
    content = json.loads(found)
    if "value_base64" in content:
        assert b64decode(content["value_base64"]) == value
    elif isinstance(content["value"], str) and not value.strip(b" \t\r\n").startswith(b'"'):
        assert content["value"].encode() == value
