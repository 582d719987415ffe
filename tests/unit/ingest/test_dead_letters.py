"""A dead letter keeps what is needed to find and repair an unreadable record, and no more bytes than allowed."""

from __future__ import annotations

import base64
import hashlib
import json

import msgspec
import pytest

from streamad.errors import DecodeError
from streamad.ingest.intake import dead_letter
from streamad.messages import DeadLetter, Origin
from streamad.settings.plant_yaml import DecodeSettings
from streamad.types import Record, from_us

NOW_US = 1_772_352_930_250_000
ERROR = DecodeError("malformed", "not JSON")


def letter(value: bytes, limit: int, key: bytes | None = None) -> DeadLetter:
    settings = DecodeSettings(max_dead_letter_bytes=limit)
    return dead_letter(Record(42, value, key=key), "plant/0", ERROR, settings, NOW_US)


def test_origin_reason_and_bytes() -> None:
    result = letter(b"\xffhello", 100, key=b"R1")
    assert result.origin == Origin("plant/0", 42)
    assert (result.kind, result.error) == ("malformed", "not JSON")
    assert (result.value, result.key, result.truncated) == (b"\xffhello", b"R1", False)
    assert result.size_bytes == 6
    assert result.sha256 == hashlib.sha256(b"\xffhello").hexdigest()
    assert result.created_at == from_us(NOW_US)


@pytest.mark.parametrize(("size", "truncated"), [(99, False), (100, False), (101, True)])
def test_value_is_cut_above_the_limit_with_size_and_hash_of_the_whole(size: int, truncated: bool) -> None:
    value = bytes(range(size))
    result = letter(value, 100)
    assert result.value == value[:100]
    assert result.truncated is truncated
    assert result.size_bytes == size
    assert result.sha256 == hashlib.sha256(value).hexdigest()


def test_a_long_key_is_cut_as_well() -> None:
    result = letter(b"{}", 4, key=b"reactor")
    assert (result.value, result.key, result.truncated) == (b"{}", b"reac", True)


def test_the_message_is_json_with_the_bytes_in_base64() -> None:
    message = json.loads(msgspec.json.encode(letter(b"\x00\xff", 100)))
    assert base64.b64decode(message["value"]) == b"\x00\xff"
    assert message["origin"] == {"partition": "plant/0", "offset": 42}
    assert message["created_at"] == "2026-03-01T08:15:30.250000Z"
