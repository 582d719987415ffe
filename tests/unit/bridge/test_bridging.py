"""The order of things: written, flushed, acknowledged; and what happens where that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from streamad.bridge.bridging import Bridge
from streamad.bridge.inlet import Inlet, InletCounts
from streamad.bridge.metrics import BridgeCollector
from streamad.errors import OutputError, SourceError
from streamad.ports import Feed, FeedRecord
from tests.support.runtime.pipeline import until


class Messages:
    """An inlet in memory, which writes down what is released."""

    options_model = BaseModel
    names_parts = True
    place = "memory"
    is_connected = True

    def __init__(self, told: list[str], values: Sequence[bytes], failure: Exception | None = None) -> None:
        self.counts = InletCounts(broker_dropped=3)
        self._told, self._values, self._failure = told, values, failure
        self._stopped = asyncio.Event()

    async def messages(self) -> AsyncIterator[FeedRecord]:
        for number, value in enumerate(self._values):
            yield FeedRecord(value, b"r1", 1_000_000 * number, label=f"plant/r1/{number}")
        if self._failure is not None:
            raise self._failure
        await self._stopped.wait()

    def release(self, n: int) -> None:
        self._told.append(f"release {n}")

    def stop(self) -> None:
        self._stopped.set()

    async def close(self) -> None:
        self._told.append("closed")


class Disk:
    """A feed in memory; ``fails`` at its flush, or waits there for ever."""

    options_model = BaseModel

    def __init__(self, told: list[str], *, fails: bool = False, hangs: bool = False) -> None:
        self.records: list[FeedRecord] = []
        self._told, self._fails, self._hangs = told, fails, hangs

    async def send(self, records: Sequence[FeedRecord]) -> None:
        self.records += records
        self._told.append(f"send {len(records)}")

    async def flush(self) -> None:
        if self._hangs:
            await asyncio.Event().wait()
        if self._fails:
            raise OutputError("the disk is full")
        self._told.append("flush")

    async def close(self) -> None:
        self._told.append("feed closed")


def test_both_are_what_the_ports_say() -> None:
    told: list[str] = []
    assert isinstance(Messages(told, []), Inlet)
    assert isinstance(Disk(told), Feed)


async def test_a_message_is_released_after_the_flush_and_a_stop_finishes_what_came() -> None:
    told: list[str] = []
    inlet, feed = Messages(told, [b"1", b"2", b"3"]), Disk(told)
    bridge = Bridge(inlet, feed, as_lines=False, on_progress=lambda counts: told.append(f"safe {counts.safe}"))
    running = asyncio.create_task(bridge.run())
    await until(lambda: bridge.counts.safe == 3)
    bridge.stop()
    await running
    assert told == ["send 3", "flush", "release 3", "safe 3", "closed", "feed closed"]
    assert [record.label for record in feed.records] == ["plant/r1/0", "plant/r1/1", "plant/r1/2"]
    metrics = {
        sample.name: sample.value for each in BridgeCollector(inlet, bridge.counts).collect() for sample in each.samples
    }
    assert metrics["streamad_bridge_safe_messages_total"] == 3
    assert metrics["streamad_bridge_broker_dropped_messages"] == 3


async def test_nothing_is_released_when_the_flush_fails_or_the_inlet_ends() -> None:
    told: list[str] = []
    with pytest.raises(OutputError, match="the disk is full"):
        await Bridge(Messages(told, [b"1"]), Disk(told, fails=True), as_lines=True).run()
    assert told == ["send 1", "closed", "feed closed"]
    with pytest.raises(SourceError, match="gone"):
        await Bridge(Messages(told, [], SourceError("gone")), Disk(told), as_lines=True).run()


async def test_a_stop_leaves_an_output_that_is_away_and_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.bridge.bridging.STOP_S", 0.05)
    told: list[str] = []
    bridge = Bridge(Messages(told, [b"1", b"x" * 900_001]), Disk(told, hangs=True), as_lines=True)
    running = asyncio.create_task(bridge.run())
    await until(lambda: told == ["send 1"])
    assert bridge.counts.safe == 0  # a counter never falls
    bridge.stop()
    with capture_logs() as logs:
        await running
    assert "the broker keeps what is not acknowledged" in logs[-1]["event"]
    assert not any(text.startswith("release") for text in told)


async def test_a_message_that_no_output_takes_is_left_out_and_said_so() -> None:
    told: list[str] = []
    feed = Disk(told)
    bridge = Bridge(Messages(told, [b"1", b"x" * 900_001, b"3"]), feed, as_lines=True)
    with capture_logs() as logs:
        running = asyncio.create_task(bridge.run())
        await until(lambda: bridge.counts.safe == 2)
        bridge.stop()
        await running
    assert [(line["topic"], line["bytes"]) for line in logs] == [("plant/r1/1", 900_001)]
    assert (bridge.counts.too_large, len(feed.records), "release 3" in told) == (1, 2, True)
