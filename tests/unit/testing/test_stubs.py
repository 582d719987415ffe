"""The list source and the list sink."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from streamad.errors import OutputError
from streamad.testing import ListSink, ListSource, ManualClock, Pause
from streamad.types import PartitionAssigned, PartitionEnded, PartitionRevoked, Record, RecordBatch, SourceEvent


def batch(partition: str, *offsets: int, caught_up: bool = False) -> RecordBatch:
    return RecordBatch(partition, tuple(Record(o, b"%d" % o) for o in offsets), offsets[-1] + 1, caught_up)


async def test_list_source_delivers_what_was_sought() -> None:
    source = ListSource([PartitionAssigned("p"), batch("p", 0, 2), batch("p", 5, caught_up=True), PartitionEnded("p")])
    events = aiter(source.batches())
    await anext(events)
    await source.seek("p", 1)
    assert await anext(events) == RecordBatch("p", (Record(2, b"2"),), 3, begins_at=1)
    assert await anext(events) == replace(batch("p", 5, caught_up=True), begins_at=3)
    await source.seek("p", None)
    assert [await anext(events) for _ in range(3)] == [
        replace(batch("p", 0, 2), begins_at=0),
        replace(batch("p", 5, caught_up=True), begins_at=3),
        PartitionEnded("p", 6),
    ]
    assert [event async for event in events] == []


async def test_list_source_pauses_fails_revokes_and_is_fed() -> None:
    clock = ManualClock()
    script = [PartitionAssigned("p"), Pause(5), batch("p", 1), PartitionRevoked("p"), OSError("gone")]
    source = ListSource(script, clock=clock, endless=True)
    events = aiter(source.batches())
    await anext(events)
    await source.seek("p", None)
    following: asyncio.Future[SourceEvent] = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    assert clock.n_sleepers == 1
    clock.advance(5)
    assert await following == replace(batch("p", 1), begins_at=0)
    assert await anext(events) == PartitionRevoked("p")
    with pytest.raises(OSError, match="gone"):
        await anext(events)
    fed = ListSource([], endless=True)
    following = asyncio.ensure_future(anext(aiter(fed.batches())))
    await asyncio.sleep(0)
    assert not following.done()
    fed.feed(PartitionAssigned("q"))
    assert await following == PartitionAssigned("q")
    await fed.close()


async def test_list_sink_keeps_pending_apart_and_fails_once() -> None:
    sink = ListSink()
    record: Any = object()
    await sink.write([record])
    assert (sink.records, sink.pending) == ([], [record])
    sink.failure = OutputError("full")
    with pytest.raises(OutputError, match="full"):
        await sink.flush()
    await sink.flush()
    assert (sink.records, sink.pending, sink.n_flushes) == ([record], [], 1)
    await sink.close()
    assert sink.closed
