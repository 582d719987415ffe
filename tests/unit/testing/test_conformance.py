"""The conformance checks accept what obeys the laws and name the law that each broken one breaks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.messages import OutputRecord
from streamad.testing import ListSink, ListSource, check_scorer, check_sink, check_source
from streamad.types import FloatArray, IntArray, PartitionAssigned, PartitionEnded, Record, RecordBatch, SourceEvent

# --- check_source must fail -----------------------------------------------------------------------------------------


def batch(partition: str, *offsets: int) -> RecordBatch:
    return RecordBatch(partition, tuple(Record(o, b"%d" % o) for o in offsets), offsets[-1] + 1)


class Good(ListSource):
    """Two partitions of five records, two by two."""

    def __init__(self) -> None:
        script: list[SourceEvent] = [PartitionAssigned("p"), PartitionAssigned("q")]
        for first in (0, 20, 40):
            script += [batch(name, *range(first, min(first + 20, 50), 10)) for name in ("p", "q")]
        super().__init__([*script, PartitionEnded("p"), PartitionEnded("q")])


def altered(of: type[SourceEvent], alter: Callable[[Any], list[SourceEvent]]) -> type[Good]:
    """A good source whose events of type ``of`` go through ``alter``."""

    class Altered(Good):
        async def batches(self) -> AsyncIterator[SourceEvent]:
            async for event in super().batches():
                for changed in alter(event) if isinstance(event, of) else [event]:
                    yield changed

    return Altered


def random_values(event: RecordBatch) -> list[SourceEvent]:
    return [replace(event, records=tuple(Record(record.offset, b"%d" % next(NUMBERS)) for record in event.records))]


NUMBERS = itertools.count()


class BeforeSeek(Good):
    async def batches(self) -> AsyncIterator[SourceEvent]:
        yield PartitionAssigned("p")
        yield batch("p", 0)


class NoAssignment(Good):
    async def batches(self) -> AsyncIterator[SourceEvent]:
        await self.seek("q", 0)
        async for event in super().batches():
            if event != PartitionAssigned("q"):
                yield event


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


async def test_check_source_accepts_a_good_source() -> None:
    await check_source(Good)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (BeforeSeek, "nothing of a partition may be delivered before its seek"),
        (NoAssignment, "'q' before its PartitionAssigned"),
        (altered(RecordBatch, lambda e: [replace(e, records=e.records[::-1])]), "in offset order, each once"),
        (altered(RecordBatch, lambda e: [e, e]), "no record below the offset sought or already delivered"),
        (
            altered(RecordBatch, lambda e: [replace(e, next_offset=e.records[-1].offset)]),
            "next_offset 10 must lie after the last record",
        ),
        (altered(RecordBatch, random_values), "every reading must deliver the same records"),
        (IgnoresOffsets, "no record below the offset sought"),
        (SkipsOne, r"after seek\('p', 20\) every record from there on .* once: expected 3 records, got 2"),
        (CannotGoBack, "after a second seek of 'p' while it is read"),
        (NeverEnds, "must end its iterator"),
        (altered(PartitionEnded, lambda _: []), "must report PartitionEnded for each partition"),
        (altered(PartitionEnded, lambda e: [e, batch(e.partition, 99)]), "RecordBatch of 'p' after its PartitionEnded"),
        (altered(PartitionAssigned, lambda e: [e, e]), "partition 'p' was assigned twice"),
        (altered(RecordBatch, lambda _: []), "must hold records to be checked"),
    ],
)
async def test_check_source_names_the_broken_law(broken: type[Good], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        await check_source(broken, timeout_s=0.5 if broken is NeverEnds else 60)


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
