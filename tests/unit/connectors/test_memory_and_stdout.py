"""Memory by name, and standard output whose reader may end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamad.errors import CheckpointError, OutputError, SourceError
from streamad.plugins import ConnectorContext, connect_feed, connect_sink, connect_source
from streamad.ports import FeedRecord
from streamad.testing import ManualClock
from streamad.types import PartitionAssigned, PartitionEnded, Record, RecordBatch
from streamad_connectors import memory

CONTEXT = ConnectorContext((), ManualClock())


async def test_records_under_a_name_are_read(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: memory.clear("lab"))
    memory.put_records("lab", [b"a", Record(7, b"b"), b"c"])
    source = connect_source("memory:lab", {}, CONTEXT)
    seen = []
    async for event in source.batches():
        seen.append(event)
        if isinstance(event, PartitionAssigned):
            await source.seek(event.partition, 7)
    assert seen == [
        PartitionAssigned("memory"),
        RecordBatch("memory", (Record(7, b"b"), Record(8, b"c")), 9),
        PartitionEnded("memory"),
    ]
    with pytest.raises(ValueError, match="offset 8 does not come after 8"):
        memory.put_records("lab", [Record(8, b"again")])


async def test_fed_records_follow_the_present_ones(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: memory.clear("lab"))
    memory.put_records("lab", [Record(7, b"before")])
    feed = connect_feed("memory:lab", {}, CONTEXT)
    await feed.send([FeedRecord(b"one", b"reactor-1", 5_000), FeedRecord(b"two")])
    await feed.flush()
    await feed.close()
    assert memory.records("lab") == [Record(7, b"before"), Record(8, b"one", 5_000, b"reactor-1"), Record(9, b"two")]


async def test_an_unknown_name() -> None:
    with pytest.raises(SourceError, match="memory:nowhere: no records under this name"):
        await anext(aiter(connect_source("memory:nowhere", {}, CONTEXT).batches()))


async def test_memory_does_not_fit_a_checkpoint_of_another_process() -> None:
    sink = memory.MemorySink("fresh", memory.MemoryOptions(), CONTEXT)
    with pytest.raises(CheckpointError, match="holds 0 messages, the checkpoint says 3"):
        await sink.truncate(3)
    memory.clear("fresh")


def test_stdout_takes_no_path() -> None:
    with pytest.raises(OutputError, match="standard output takes no path"):
        connect_sink("stdout:x.jsonl", {}, CONTEXT)


SCRIPT = """
import asyncio
from datetime import UTC, datetime
from streamad.errors import OutputError
from streamad.messages import Event, OutputRecord
from streamad.plugins import ConnectorContext, connect_sink
from streamad.testing import ManualClock

async def main():
    sink = connect_sink("stdout:", {}, ConnectorContext((), ManualClock()))
    event = Event(kind="k", message="m" * 1000, created_at=datetime(2026, 1, 1, tzinfo=UTC))
    record = OutputRecord("events", "s", event)
    for _ in range(1000):
        await sink.write([record])
        await sink.flush()

try:
    asyncio.run(main())
except OutputError as error:
    raise SystemExit(str(error))
"""


def test_a_reader_that_ends_is_one_line_on_stderr() -> None:
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{root}:{root / 'connectors'}"}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"type":"event"')
        process.stdout.close()
        assert process.stderr.read() == b"standard output: the program that read it has ended\n"
        assert process.wait() == 1
