"""Who sent a message of a topic: what the broker stamped, if the config says that it stamps anything."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamad_connectors.kafka.reading.subscription import stored_message

HEADERS = (("type", b"feedback"), ("principal", b"User:kim"), ("twice", b"User:root"), ("twice", b"User:kim"))


@pytest.mark.parametrize(
    ("header", "sender"),
    [(None, None), ("principal", "User:kim"), ("absent", None), ("twice", None), ("type", "feedback")],
)
def test_the_sender_is_what_the_one_header_says(header: str | None, sender: str | None) -> None:
    record = SimpleNamespace(topic="desk", partition=3, offset=7, key=None, value=b"{}", headers=HEADERS)
    assert stored_message(record, header)[:3] == (b"{}", "desk-3, offset 7", sender)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "sender"), [(None, None), (b"", None), (b"  ", None), (b"\xff", "\ufffd"), ("Jörg".encode(), "Jörg")]
)
def test_a_header_that_names_nobody_is_none(value: bytes | None, sender: str | None) -> None:
    record = SimpleNamespace(topic="t", partition=0, offset=0, key=None, value=None, headers=[("p", value)])
    assert stored_message(record, "p").sender == sender  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"{}", None])
def test_the_key_comes_with_the_message_and_with_its_removal(value: bytes | None) -> None:
    record = SimpleNamespace(topic="desk", partition=3, offset=7, value=value, headers=[], key=b"line-1")
    found = stored_message(record)  # type: ignore[arg-type]
    assert (found.key, found.value, found.problem) == (b"line-1", value or b"", None)
