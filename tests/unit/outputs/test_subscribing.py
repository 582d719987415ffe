"""Messages of one place are told apart by their type; a line that is no message does not block those after it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from streamad import subscribe
from streamad.messages import Alert, Feedback, Message
from tests.support.waiting import LIMIT_S
from tests.unit.test_messages import MESSAGES


def file_of(folder: Path, *lines: bytes) -> Path:
    path = folder / "all.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


async def first(path: Path, kind: type[Message]) -> Message:
    async with asyncio.timeout(LIMIT_S), subscribe(f"file:{path}?poll=1ms", of=(kind,), start="earliest") as messages:
        return await anext(messages)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
async def test_each_message_is_recognised_by_its_type(tmp_path: Path, message: Message) -> None:
    path = file_of(tmp_path, *(msgspec.json.encode(each) for each in MESSAGES))
    assert await first(path, type(message)) == message


FOREIGN = [
    (b'{"x": ' + b"[" * 5_000, "JSON is malformed: nested too deeply"),
    (b'{"type": "\xff"}', "JSON is malformed: text that is no UTF-8"),
    (b'{"type": "alert", "created_at": 1}', "Expected `datetime`"),
    (b'{"type": "alert"}', "Object missing required field"),
    (b"{}", "it has no field `type`, which messages have from schema 2 on"),
    (b'{"alert_id": "a", "p_value": 0.1, "schema_version": 1}', "it has no field `type`"),
    (b'{"type": "weather"}', "`type` is 'weather', known are alert, attribution,"),
]


@pytest.mark.parametrize(("line", "why"), FOREIGN, ids=[why[:12] for _, why in FOREIGN])
async def test_a_foreign_line_is_skipped_with_its_reason_in_the_log(
    tmp_path: Path, line: bytes, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = file_of(tmp_path, line, msgspec.json.encode(MESSAGES[0]))
    assert await first(path, Alert) == MESSAGES[0]
    logged = capfd.readouterr().err
    assert f"{path}, byte 0" in logged
    assert why in logged


async def test_feedback_that_people_write_needs_no_type(tmp_path: Path) -> None:
    line = b'{"alert_id": "a", "judgement": "veto", "created_at": "2026-03-01T00:00:00Z"}'
    wanted = Feedback(alert_id="a", judgement="veto", created_at=datetime(2026, 3, 1, tzinfo=UTC))
    assert await first(file_of(tmp_path, line), Feedback) == wanted


async def test_a_message_that_came_after_a_time_out_comes_again(tmp_path: Path) -> None:
    path, url = file_of(tmp_path), f"file:{tmp_path / 'all.jsonl'}?poll=1ms"
    lines = [msgspec.json.encode(each) + b"\n" for each in MESSAGES if isinstance(each, Alert)]
    path.write_bytes(lines[0])
    async with asyncio.timeout(LIMIT_S), subscribe(url, of=Alert, group="desk") as messages:
        assert await anext(messages) == MESSAGES[0]
        others = asyncio.all_tasks()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(messages)
        later = msgspec.structs.replace(MESSAGES[0], alert_id="later")
        path.write_bytes(lines[0] + msgspec.json.encode(later) + b"\n")
        await asyncio.wait(asyncio.all_tasks() - others)
    async with asyncio.timeout(LIMIT_S), subscribe(url, of=Alert, group="desk") as messages:
        assert await anext(messages) == later
