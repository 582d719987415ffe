"""Every sink that comes with streamad obeys the laws of the Sink and DurableSink ports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.messages import OutputRecord
from streamad.plugins import ConnectorContext, connect_sink
from streamad.ports import DurableSink, Sink
from streamad.testing import ListSink, ManualClock, check_sink
from streamad_connectors import memory


@pytest.fixture
def context(tmp_path: Path) -> ConnectorContext:
    return ConnectorContext((), ManualClock(), tmp_path)


def decoded(records: list[OutputRecord]) -> list[Any]:
    return [json.loads(msgspec.json.encode(record.message)) for record in records]


@pytest.mark.parametrize("before", [None, b"", b'{"kept": 1}\n', b'{"kept": 1}'])
async def test_file_sink(before: bytes | None, tmp_path: Path, context: ConnectorContext) -> None:
    path = tmp_path / "out" / "alerts.jsonl"
    if before is not None:
        path.parent.mkdir()
        path.write_bytes(before)

    def read_back() -> list[Any]:
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    await check_sink(lambda: connect_sink("out/alerts.jsonl", {}, context), read_back)


async def test_memory_sink(context: ConnectorContext) -> None:
    memory.clear("sink")
    await check_sink(lambda: connect_sink("memory:sink", {}, context), lambda: decoded(memory.messages("sink")))
    memory.clear("sink")


async def test_stdout_sink(capfd: pytest.CaptureFixture[str], context: ConnectorContext) -> None:
    held: list[Any] = []

    def read_back() -> list[Any]:
        held.extend(json.loads(line) for line in capfd.readouterr().out.split("\n") if line)
        return held

    await check_sink(lambda: connect_sink("stdout:", {}, context), read_back)


def test_sinks_implement_the_ports(context: ConnectorContext) -> None:
    assert isinstance(connect_sink("a.jsonl", {}, context), DurableSink)
    assert isinstance(connect_sink("memory:a", {}, context), DurableSink)
    assert isinstance(connect_sink("stdout:", {}, context), Sink)
    assert not isinstance(connect_sink("stdout:", {}, context), DurableSink)
    assert isinstance(ListSink(), DurableSink)
