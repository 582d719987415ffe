"""decode_json raises one error, whatever the bytes are."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.store.records import Mark
from streamad.system.untrusted_json import decode_json

MARK = Mark(id="a", judgement="veto", at_us=1)
CONTENT = msgspec.json.encode(MARK)
HOSTILE = [
    b"",
    b'{"id": "a", "judgement": "veto", "at_us": 1, "note": "\xff\xfe"}',
    b'{"id": "a", "judgement": "veto", "at_us": 1, "other": ' + b"[" * 100_000,
    b'{"id": "a", "judgement": "veto", "at_us": ' + b"9" * 5000 + b"}",
    b'{"id": "a", "judgement": "perhaps", "at_us": 1}',
]


def test_valid_content_is_read() -> None:
    assert decode_json(CONTENT, Mark) == MARK


@pytest.mark.parametrize("content", HOSTILE, ids=["empty", "no UTF-8", "nested", "long integer", "unknown value"])
def test_invalid_content_is_a_decode_error(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json(content, Mark)


@given(st.integers(0, len(CONTENT) - 1), st.binary(max_size=4))
def test_damage_anywhere_is_that_error_or_another_mark(place: int, damage: bytes) -> None:
    with suppress(msgspec.DecodeError):
        assert isinstance(decode_json(CONTENT[:place] + damage + CONTENT[place + 1 :], Mark), Mark)
