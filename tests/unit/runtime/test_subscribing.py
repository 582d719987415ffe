"""Messages in a file without names are told apart, and what is none of them keeps nobody from those behind it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from streamad import subscribe
from streamad.messages import Feedback, Message, Promotion
from tests.unit.test_types import MESSAGES

WAIT_S = 20


async def first(path: Path, kind: type[Message]) -> Message:
    async with asyncio.timeout(WAIT_S), subscribe(f"file:{path}?poll=1ms", of=(kind,), start="earliest") as messages:
        return await anext(messages)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
async def test_each_kind_is_known_by_its_fields(tmp_path: Path, message: Message) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in MESSAGES))
    assert await first(path, type(message)) == message


async def test_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    wanted = Feedback(alert_id="a", judgement="veto", created_at=datetime(2026, 3, 1, tzinfo=UTC))
    lines = [b"[" * 5_000, b'"\xff"', b'{"created_at": 1, "judgement": 2}', b"{}", msgspec.json.encode(wanted)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert await first(path, Feedback) == wanted


async def test_a_promotion_may_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "control.jsonl"
    wanted = Promotion(model="default", version="0002", created_at=datetime(2026, 3, 1, tzinfo=UTC))
    path.write_bytes(msgspec.json.encode(wanted) + b"\n")
    async with (
        asyncio.timeout(WAIT_S),
        subscribe(f"file:{path}?poll=1ms", of=Promotion, start="earliest") as messages,
    ):
        assert (await anext(messages)).version == "0002"
