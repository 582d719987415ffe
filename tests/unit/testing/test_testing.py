"""The manual clock, the list source and sink, and that the conformance checks fail on whatever breaks a law."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.errors import OutputError
from streamad.messages import OutputRecord
from streamad.testing import (
    ListSink,
    ListSource,
    ManualClock,
    Pause,
    check_scorer,
    check_sink,
    check_source,
)
from streamad.types import (
    FloatArray,
    IntArray,
    PartitionAssigned,
    PartitionEnded,
    PartitionRevoked,
    Record,
    RecordBatch,
    SourceEvent,
)

# --- clock ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("advanced_s", "wakes"), [(0.999999, False), (1.0, True), (1.000001, True)])
async def test_a_sleeper_wakes_exactly_at_its_time(advanced_s: float, wakes: bool) -> None:
    clock = ManualClock()
    sleeper = asyncio.ensure_future(clock.sleep(1.0))
    await asyncio.sleep(0)
    clock.advance(advanced_s)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sleeper.done() is wakes
    assert clock.n_sleepers == (not wakes)
    sleeper.cancel()


async def test_sleepers_wake_in_order_and_cancelled_ones_do_not_matter() -> None:
    clock, woken = ManualClock(), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.ensure_future(sleep(name, s)) for name, s in [("b", 2), ("a", 1), ("x", 1.5), ("b2", 2), ("c", 3)]]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.sleep(0)
    assert clock.n_sleepers == 4
    clock.advance(2.5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert woken == ["a", "b", "b2"]
    clock.advance(0.5)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert woken[-1] == "c"


async def test_both_clocks_advance_and_the_wall_clock_can_be_set_back() -> None:
    clock = ManualClock(start_us=10_000_000)
    clock.advance(1.5)
    assert (clock.now_us(), clock.monotonic_us()) == (11_500_000, 1_500_000)
    clock.set_wall(5)
    assert (clock.now_us(), clock.monotonic_us()) == (5, 1_500_000)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    await clock.sleep(0)
    await clock.sleep(-1)


# --- list source and sink -------------------------------------------------------------------------------------------


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


# --- check_source must fail -----------------------------------------------------------------------------------------


class Good(ListSource):
    """Two partitions of five records, two by two."""

    def __init__(self) -> None:
        script: list[SourceEvent] = [PartitionAssigned("p"), PartitionAssigned("q")]
        for first in (0, 20, 40):
            script += [batch(name, *range(first, min(first + 20, 50), 10)) for name in ("p", "q")]
        super().__init__([*script, PartitionEnded("p"), PartitionEnded("q")])


class Altered(Good):
    """Passes each event through ``alter``."""

    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        raise NotImplementedError

    async def batches(self) -> AsyncIterator[SourceEvent]:
        async for event in super().batches():
            for altered in self.alter(event):
                yield altered


class BeforeSeek(Good):
    async def batches(self) -> AsyncIterator[SourceEvent]:
        yield PartitionAssigned("p")
        yield batch("p", 0)


class NoAssignment(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        return [] if event == PartitionAssigned("q") else [event]

    async def batches(self) -> AsyncIterator[SourceEvent]:
        await self.seek("q", 0)
        async for event in super().batches():
            yield event


class Backwards(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        if isinstance(event, RecordBatch):
            return [RecordBatch(event.partition, event.records[::-1], event.next_offset)]
        return [event]


class Twice(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        return [event, event] if isinstance(event, RecordBatch) else [event]


class WrongNextOffset(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        if isinstance(event, RecordBatch):
            return [RecordBatch(event.partition, event.records, event.records[-1].offset)]
        return [event]


class Random(Altered):
    runs = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self._run = next(self.runs)

    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        if isinstance(event, RecordBatch):
            records = tuple(Record(record.offset, b"%d" % self._run) for record in event.records)
            return [RecordBatch(event.partition, records, event.next_offset)]
        return [event]


class IgnoresOffsets(Good):
    async def seek(self, partition: str, offset: int | None) -> int:
        return await super().seek(partition, None)


class SkipsOne(Good):
    async def seek(self, partition: str, offset: int | None) -> int:
        return await super().seek(partition, offset and offset + 1)


class CannotGoBack(Good):
    def __init__(self) -> None:
        super().__init__()
        self.sought: dict[str, int] = {}

    async def seek(self, partition: str, offset: int | None) -> int:
        if partition not in self.sought:
            self.sought[partition] = await super().seek(partition, offset)
        return self.sought[partition]


class NeverEnds(Good):
    async def batches(self) -> AsyncIterator[SourceEvent]:
        async for event in super().batches():
            yield event
        await asyncio.Event().wait()


class ForgetsToSayTheEnd(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        return [] if isinstance(event, PartitionEnded) else [event]


class GoesOnAfterTheEnd(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        return [event, batch(event.partition, 99)] if isinstance(event, PartitionEnded) else [event]


class AssignsTwice(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        return [event, event] if event == PartitionAssigned("p") else [event]


class Empty(Altered):
    def alter(self, event: SourceEvent) -> list[SourceEvent]:
        return [] if isinstance(event, RecordBatch) else [event]


async def test_check_source_accepts_a_good_source() -> None:
    await check_source(Good)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (BeforeSeek, "nothing of a partition may be delivered before its seek"),
        (NoAssignment, "'q' before its PartitionAssigned"),
        (Backwards, "in offset order, each once"),
        (Twice, "no record below the offset sought or already delivered"),
        (WrongNextOffset, "next_offset 10 must lie after the last record"),
        (Random, "every reading must deliver the same records"),
        (IgnoresOffsets, "no record below the offset sought"),
        (
            SkipsOne,
            r"after seek\('p', 20\) every record from there on must come exactly once: expected 3 records, got 2",
        ),
        (CannotGoBack, "after a second seek of 'p' while it is read"),
        (NeverEnds, "must end its iterator"),
        (ForgetsToSayTheEnd, "must say PartitionEnded for each partition"),
        (GoesOnAfterTheEnd, "RecordBatch of 'p' after its PartitionEnded"),
        (AssignsTwice, "partition 'p' was assigned twice"),
        (Empty, "must hold records to be checked"),
    ],
)
async def test_check_source_names_the_broken_law(broken: type[Good], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        await check_source(broken, timeout_s=0.5)


# --- check_sink must fail -------------------------------------------------------------------------------------------


class Kept(ListSink):
    """A list sink whose durable records outlive it."""

    def __init__(self, place: list[OutputRecord]) -> None:
        super().__init__()
        self.records = place


class LosesTheLast(Kept):
    async def write(self, records: Sequence[OutputRecord]) -> None:
        await super().write(records[:-1])


class Reverses(Kept):
    async def write(self, records: Sequence[OutputRecord]) -> None:
        await super().write(records[::-1])


class NeverFlushes(Kept):
    async def flush(self) -> None:
        pass


class FlushesTwice(Kept):
    async def flush(self) -> None:
        self.records.extend(self.pending)


class ClearsOnClose(Kept):
    async def close(self) -> None:
        self.records.clear()


class StartsAnew(Kept):
    def __init__(self, place: list[OutputRecord]) -> None:
        place.clear()
        super().__init__(place)


class KeepsBuffered(Kept):
    async def truncate(self, position: int) -> None:
        pending = self.pending.copy()
        await super().truncate(position)
        self.pending = pending


class CutsTooMuch(Kept):
    async def truncate(self, position: int) -> None:
        await super().truncate(position - 1)


class CutsNothing(Kept):
    async def truncate(self, position: int) -> None:
        self.pending.clear()


class AlwaysTruncates(Kept):
    async def truncate(self, position: int) -> None:
        await super().truncate(min(position, len(self.records)))


class StuckPosition(Kept):
    async def position(self) -> int:
        return 3


def decoded(records: Sequence[OutputRecord]) -> list[Any]:
    return [msgspec.json.decode(msgspec.json.encode(record.message)) for record in records]


async def test_check_sink_accepts_a_good_sink_and_waits_for_an_async_reader() -> None:
    place: list[OutputRecord] = []

    async def read_back() -> list[Any]:
        return decoded(place)

    await check_sink(lambda: Kept(place), read_back)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (LosesTheLast, "after flush every message must be there.*expected 3 messages, got 1"),
        (Reverses, "after flush every message must be there, in order"),
        (NeverFlushes, "after flush every message must be there"),
        (FlushesTwice, "flush without new messages must change nothing"),
        (ClearsOnClose, "close must keep what was flushed"),
        (StartsAnew, "a sink opened again must append"),
        (KeepsBuffered, "truncate must drop exactly what came after the position, buffered messages included"),
        (CutsTooMuch, "truncate must drop exactly"),
        (CutsNothing, "truncate must drop exactly"),
        (AlwaysTruncates, "truncate beyond the end must raise CheckpointError"),
        (StuckPosition, "position must grow with what was flushed"),
    ],
)
async def test_check_sink_names_the_broken_law(broken: type[Kept], law: str) -> None:
    place: list[OutputRecord] = []
    with pytest.raises(AssertionError, match=law):
        await check_sink(lambda: broken(place), lambda: decoded(place))


# --- check_scorer must fail -----------------------------------------------------------------------------------------

C, L, K = 2, 6, 3


class Mean:
    """Scores windows by K multiples of the mean of what lies inside their length."""

    n_terms = K
    window_shape = (C, L)

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        inside = (np.arange(L) < lengths[:, None])[:, None, :]
        mean = (windows * inside).sum(axis=(1, 2)) / np.maximum(lengths * C, 1)
        terms: FloatArray = (mean[:, None] * np.arange(1, K + 1)).astype(np.float32)
        return terms


def breaking(change: Callable[[Mean, FloatArray, IntArray, FloatArray], FloatArray]) -> Mean:
    class Broken(Mean):
        def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
            return change(self, windows, lengths, super().score(windows, lengths))

    return Broken()


def window_data() -> tuple[FloatArray, IntArray]:
    windows = np.random.default_rng(0).normal(size=(4, C, L)).astype(np.float32)
    lengths = np.array([6, 3, 1, 5], dtype=np.int64)
    windows *= (np.arange(L) < lengths[:, None])[:, None, :]
    return windows, lengths


def noise(scorer: Mean, windows: FloatArray, lengths: IntArray, terms: FloatArray) -> FloatArray:
    return terms + np.random.default_rng().normal(size=terms.shape).astype(np.float32)


def write_into(scorer: Mean, windows: FloatArray, lengths: IntArray, terms: FloatArray) -> FloatArray:
    windows += 1
    return terms


def test_check_scorer_accepts_a_good_scorer() -> None:
    check_scorer(Mean(), *window_data())


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (lambda s, w, n, t: t[:, 1:], r"terms must have shape \[B, K\] = \(4, 3\), they have \(4, 2\)"),
        (lambda s, w, n, t: t.astype(np.float64), "terms must be float32, they are float64"),
        (lambda s, w, n, t: t * np.float32("nan"), "terms must be finite"),
        (noise, "the same windows must get the same terms again"),
        (write_into, "score must not change its arguments"),
        (lambda s, w, n, t: t - t.mean() if len(t) > 0 else t, "a window's terms must not depend on its batch"),
        (lambda s, w, n, t: t + (np.arange(len(t)) * (len(t) > 1))[:, None].astype(np.float32), "depend on its batch"),
        (lambda s, w, n, t: t + w.sum(axis=(1, 2))[:, None], "values beyond a window's length must be ignored"),
        (
            lambda s, w, n, t: t if len(w) > 0 else np.zeros((1, K), np.float32),
            r"no windows must give terms of shape \(0, 3\)",
        ),
    ],
)
def test_check_scorer_names_the_broken_law(change: Any, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_scorer(breaking(change), *window_data())


def test_check_scorer_compares_the_window_shape() -> None:
    windows, lengths = window_data()
    with pytest.raises(AssertionError, match=r"window_shape must be \(C, L\) = \(2, 5\), it is \(2, 6\)"):
        check_scorer(Mean(), windows[:, :, :5], lengths)
