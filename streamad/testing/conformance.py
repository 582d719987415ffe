"""Checks of the laws of source, sink and scorer; ``streamad.testing`` exports them.

A check raises AssertionError with the broken law.
Shapes: B windows, C channels, L window length, K transformations.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np

from streamad.errors import CheckpointError
from streamad.messages import Event, OutputRecord
from streamad.ports import DurableSink, Scorer, Sink, Source
from streamad.types import (
    FloatArray,
    IntArray,
    PartitionAssigned,
    PartitionEnded,
    Rebalanced,
    Record,
    RecordBatch,
    SourceNotice,
)


def require(holds: bool, law: str) -> None:
    """Raise AssertionError with ``law`` unless it holds."""
    if not holds:
        raise AssertionError(law)


def require_alike(found: FloatArray, expected: FloatArray, tolerance: float, law: str) -> None:
    """Raise AssertionError if terms differ by more than ``tolerance``, relative to the largest expected term."""
    require(found.shape == expected.shape, f"{law}: shape {found.shape}, expected {expected.shape}")
    gap, allowed = float(np.abs(found - expected).max()), tolerance * max(1.0, float(np.abs(expected).max()))
    require(gap <= allowed, f"{law}: terms differ by {gap:.3g}, allowed is {allowed:.3g}")


def require_terms(terms: FloatArray, shape: tuple[int, int]) -> None:
    """Raise AssertionError unless ``terms`` are finite float32 of ``shape``."""
    require(terms.shape == shape, f"terms must have shape [B, K] = {shape}, they have {terms.shape}")
    require(terms.dtype == np.float32, f"terms must be float32, they are {terms.dtype}")
    require(bool(np.isfinite(terms).all()), "terms must be finite")


_Seen: TypeAlias = dict[str, list[Record]]


async def check_source(make_source: Callable[[], Source], *, timeout_s: float = 30.0) -> None:
    """Check the law of ``Source`` on a source that holds some records; ``make_source`` opens the same ones each time.

    Reads everything twice, then from several offsets, then seeks back in the middle. A source without an end is read
    until all its partitions are caught up. Raises AssertionError with the broken law.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _check_nothing_before_seek(make_source)
            everything = await _read(make_source, {})
            require(any(everything.values()), "the source must hold records to be checked, it delivered none")
            again = await _read(make_source, {})
            require(again == everything, "every reading must deliver the same records for the same offsets")
            for partition, records in everything.items():
                await _check_offsets(make_source, partition, records)
            await _check_going_back(make_source, everything)
            await _check_closing(make_source)
    except TimeoutError as error:
        raise AssertionError(
            f"a finite source must end its iterator, any other must report caught_up: neither within {timeout_s} s"
        ) from error


async def _check_nothing_before_seek(make_source: Callable[[], Source]) -> None:
    source = make_source()
    async with aclosing(cast("Any", source.batches())) as events:
        first = await anext(events, None)
        if not isinstance(first, PartitionAssigned):
            raise AssertionError(f"the first event must be PartitionAssigned, it was {first!r}")
        following = asyncio.ensure_future(anext(events, None))
        await asyncio.wait([following], timeout=0.05)
        if following.done():
            event = following.result()
            delivered = isinstance(event, RecordBatch | PartitionEnded) and event.partition == first.partition
            require(not delivered, f"nothing of a partition may be delivered before its seek, it was {event!r}")
        else:
            following.cancel()
            await asyncio.wait([following])
    await source.close()


async def _read(make_source: Callable[[], Source], begin: Mapping[str, int], back: str | None = None) -> _Seen:
    """Read to the end or until all is caught up; seek ``back`` to its beginning once, after its first batch."""
    source = make_source()
    seen: _Seen = {}
    after: dict[str, int] = {}
    state: dict[str, str] = {}
    async with aclosing(cast("Any", source.batches())) as events:
        async for event in events:
            if isinstance(event, SourceNotice | Rebalanced):
                continue
            partition = event.partition
            if isinstance(event, PartitionAssigned):
                require(partition not in state, f"partition {partition!r} was assigned twice")
                seen[partition], after[partition], state[partition] = [], begin.get(partition, 0), "open"
                begun = await source.seek(partition, begin.get(partition))
                require(isinstance(begun, int), f"seek must return the offset where it begins, not {begun!r}")
                continue
            require(partition in state, f"{type(event).__name__} of {partition!r} before its PartitionAssigned")
            require(state[partition] != "ended", f"{type(event).__name__} of {partition!r} after its PartitionEnded")
            if isinstance(event, RecordBatch):
                _check_batch(event, after[partition])
                after[partition] = event.next_offset
                seen[partition].extend(event.records)
                state[partition] = "caught_up" if event.caught_up else "open"
                if partition == back and event.records:
                    back = None
                    seen[partition], after[partition], state[partition] = [], 0, "open"
                    await source.seek(partition, None)
            elif isinstance(event, PartitionEnded):
                state[partition] = "ended"
            else:
                seen.pop(partition), state.pop(partition)
            if "caught_up" in state.values() and "open" not in state.values():
                break
    require(
        "open" not in state.values(), "a finite source must report PartitionEnded for each partition before it ends"
    )
    await source.close()
    return seen


def _check_batch(batch: RecordBatch, begin: int) -> None:
    offsets = [record.offset for record in batch.records]
    where = f"partition {batch.partition!r}, offsets {offsets[:3]}...{offsets[-3:]}"
    require(offsets == sorted(set(offsets)), f"a batch must hold its records in offset order, each once: {where}")
    if offsets:
        require(offsets[0] >= begin, f"no record below the offset sought or already delivered ({begin}): {where}")
        require(
            batch.next_offset > offsets[-1], f"next_offset {batch.next_offset} must lie after the last record: {where}"
        )


async def _check_offsets(make_source: Callable[[], Source], partition: str, records: list[Record]) -> None:
    if not records:
        return
    offsets = [record.offset for record in records]
    middle = offsets[len(offsets) // 2]
    for begin in sorted({offsets[0], offsets[0] + 1, middle, middle + 1, offsets[-1]}):
        found = (await _read(make_source, {partition: begin})).get(partition, [])
        expected = [record for record in records if record.offset >= begin]
        require(
            found == expected,
            f"after seek({partition!r}, {begin}) every record from there on must come exactly once: "
            f"expected {len(expected)} records, got {len(found)} (or others)",
        )


async def _check_going_back(make_source: Callable[[], Source], everything: _Seen) -> None:
    partition = next(name for name, records in everything.items() if records)
    found = await _read(make_source, {}, back=partition)
    require(
        found == everything,
        f"after a second seek of {partition!r} while it is read, every record from there on must come exactly once",
    )


async def _check_closing(make_source: Callable[[], Source]) -> None:
    unread = make_source()
    await unread.close()
    source = make_source()
    async with aclosing(cast("Any", source.batches())) as events:
        await anext(events, None)
        await source.close()
    await source.close()


ReadBack: TypeAlias = Callable[[], "Sequence[Any] | Awaitable[Sequence[Any]]"]


def _events(names: Iterable[str]) -> list[OutputRecord]:
    """Return messages whose text is hard to encode."""
    time = datetime(2026, 1, 1, tzinfo=UTC)
    awkward = 'line\nbreak, "quotes", \u00b5 \u2028 \U0001f321'
    return [
        OutputRecord("events", name, Event(kind="check", message=f"{name}: {awkward}", stream=name, created_at=time))
        for name in names
    ]


async def check_sink(make_sink: Callable[[], Sink], read_back: ReadBack) -> None:
    """Check the law of ``Sink``, and of ``DurableSink`` if it is one.

    ``make_sink`` opens the same place each time; ``read_back`` returns the messages there as decoded JSON objects, in
    order. Messages that were there before stay. Raises AssertionError with the broken law.
    """

    async def expect(records: Sequence[OutputRecord], law: str) -> None:
        found = read_back()
        there = list(await found if inspect.isawaitable(found) else found)[n_before:]
        wanted = [msgspec.json.decode(msgspec.json.encode(record.message)) for record in records]
        require(there == wanted, f"{law}: expected {len(wanted)} messages, got {len(there)} (or others)")

    n_before = 0
    before = read_back()
    n_before = len(await before if inspect.isawaitable(before) else before)
    first, second, third = _events(["a", "b"]), _events(["c"]), _events(["d", "e"])
    sink = make_sink()
    await sink.write(first)
    await sink.write([])
    await sink.write(second)
    await sink.flush()
    await expect([*first, *second], "after flush every message must be there, in order and once")
    await sink.flush()
    await expect([*first, *second], "flush without new messages must change nothing")
    await sink.close()
    await sink.close()
    await expect([*first, *second], "close must keep what was flushed")
    sink = make_sink()
    await sink.write(third)
    await sink.flush()
    await expect([*first, *second, *third], "a sink opened again must append")
    if isinstance(sink, DurableSink):
        await _check_durable(sink, cast("Callable[[], DurableSink]", make_sink), expect, [*first, *second, *third])
    await sink.close()


async def _check_durable(
    sink: DurableSink,
    make_sink: Callable[[], DurableSink],
    expect: Callable[[Sequence[OutputRecord], str], Awaitable[None]],
    held: list[OutputRecord],
) -> None:
    extra, last = _events(["f", "g"]), _events(["h"])
    position = await sink.position()
    require(await sink.position() == position, "position must not change without a write")
    await sink.write(extra)
    await sink.flush()
    longer = await sink.position()
    require(longer > position, "position must grow with what was flushed")
    await sink.write(last)
    await sink.truncate(position)
    await sink.flush()
    await expect(held, "truncate must drop exactly what came after the position, buffered messages included")
    require(await sink.position() == position, "after truncate the position must be the one asked for")
    await sink.write(extra)
    await sink.flush()
    await sink.close()
    sink = make_sink()
    await sink.truncate(position)
    await expect(held, "truncate must work on a sink opened again, as after a crash")
    await sink.write(last)
    await sink.flush()
    await expect([*held, *last], "a write after truncate must append at the cut")
    try:
        await sink.truncate(longer + (longer - position) * 1000)
    except CheckpointError:
        pass
    else:
        raise AssertionError("truncate beyond the end must raise CheckpointError")
    finally:
        await sink.close()
    await expect([*held, *last], "a refused truncate must change nothing")


def check_scorer(scorer: Scorer, windows: FloatArray, lengths: IntArray, *, tolerance: float = 1e-4) -> None:
    """Check the law of ``Scorer`` on ``windows`` float32 [B, C, L] of true ``lengths`` int64 [B], B at least 2.

    Terms may differ between batches by ``tolerance`` (relative to the largest term), as float32 sums do. Raises
    AssertionError with the broken law.
    """
    n_windows, n_channels, window_length = windows.shape
    require(n_windows >= 2, "give at least two windows to check")
    require(
        scorer.window_shape == (n_channels, window_length),
        f"window_shape must be (C, L) = {(n_channels, window_length)}, it is {scorer.window_shape}",
    )
    given = windows.copy(), lengths.copy()
    terms = scorer.score(windows, lengths)
    require_terms(terms, (n_windows, scorer.n_terms))
    same_input = np.array_equal(given[0], windows, equal_nan=True) and np.array_equal(given[1], lengths)
    require(same_input, "score must not change its arguments")

    def same(found: FloatArray, law: str) -> None:
        require_alike(found, terms, tolerance, law)

    same(scorer.score(windows, lengths), "the same windows must get the same terms again")
    single = np.concatenate([scorer.score(windows[i : i + 1], lengths[i : i + 1]) for i in range(n_windows)])
    same(single, "a window's terms must not depend on its batch")
    turned = scorer.score(np.ascontiguousarray(windows[::-1]), np.ascontiguousarray(lengths[::-1]))
    same(turned[::-1], "a window's terms must not depend on its place in the batch")
    beyond = np.arange(window_length) >= lengths[:, None]
    padded = np.where(beyond[:, None, :], np.float32(12345.0), windows).astype(np.float32)
    same(scorer.score(padded, lengths), "values beyond a window's length must be ignored")
    none = scorer.score(windows[:0], lengths[:0])
    require(
        none.shape == (0, scorer.n_terms), f"no windows must give terms of shape {(0, scorer.n_terms)}: {none.shape}"
    )
