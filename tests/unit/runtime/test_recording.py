"""Recording: every record once, whatever ends it; what is unfinished does not look finished."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from streamad.errors import OutputError, SourceError
from streamad.ports import FeedRecord, Source
from streamad.runtime.recordings import Recorder
from streamad.testing import ListSource, ManualClock
from streamad.testing.stubs import ScriptItem
from streamad.types import PartitionAssigned, PartitionEnded, Record, RecordBatch, SourceNotice
from tests.support.runtime.pipeline import steps
from tests.support.waiting import LIMIT_S


class Feeds:
    """Recordings in memory: what each was sent, how much of it was flushed, which are closed."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.sent: dict[str, list[FeedRecord]] = {}
        self.from_start: dict[str, bool] = {}
        self.flushed: dict[str, int] = {}
        self.closed: set[str] = set()
        self.failure = failure

    def open(self, partition: str, from_start: bool) -> _Feed:
        self.sent[partition], self.from_start[partition] = [], from_start
        return _Feed(self, partition)

    def offsets(self, partition: str) -> list[int | None]:
        return [record.offset for record in self.sent[partition]]


class _Feed:
    options_model = BaseModel

    def __init__(self, feeds: Feeds, partition: str) -> None:
        self._feeds, self._partition = feeds, partition

    async def send(self, records: Sequence[FeedRecord]) -> None:
        if self._feeds.failure is not None:
            raise self._feeds.failure
        self._feeds.sent[self._partition] += records

    async def flush(self) -> None:
        self._feeds.flushed[self._partition] = len(self._feeds.sent[self._partition])

    async def close(self) -> None:
        self._feeds.closed.add(self._partition)


def records(*offsets: int) -> tuple[Record, ...]:
    return tuple(Record(offset, b"%d" % offset, offset * 10, b"k") for offset in offsets)


class Growing:
    """A topic that grows: each round reads what is there by then."""

    def __init__(self, rounds: Sequence[dict[str, tuple[Record, ...]] | Exception]) -> None:
        self._rounds = list(rounds)
        self._held: dict[str, tuple[Record, ...]] = {}
        self.n_opened = 0

    def open(self) -> Source:
        self.n_opened += 1
        new = self._rounds.pop(0) if self._rounds else {}
        if isinstance(new, Exception):
            return ListSource([new])
        for partition, added in new.items():
            self._held[partition] = self._held.get(partition, ()) + added
        return ListSource.of(self._held, batch_records=2)


async def test_every_record_is_recorded_as_it_is() -> None:
    batch = RecordBatch("p", (Record(3, b"", None, None), Record(7, b"\xff", 70, b"k")), 9, end_offset=20)
    script: list[ScriptItem] = [
        PartitionAssigned("p", seen_from_start=False),
        PartitionAssigned("q"),
        SourceNotice("gap", "something"),
        batch,
        RecordBatch("p", (), 12, caught_up=True),
        PartitionEnded("p"),
        PartitionEnded("q"),
    ]
    feeds, notices, shares = Feeds(), list[SourceNotice](), list[float | None]()
    recorder = Recorder(
        lambda: ListSource(script),
        feeds.open,
        ManualClock(),
        on_progress=lambda recorder: shares.append(recorder.share.value),
        on_notice=notices.append,
    )
    await recorder.run()
    assert feeds.sent == {"p": [FeedRecord(b"", None, None, 3), FeedRecord(b"\xff", b"k", 70, 7)], "q": []}
    assert feeds.from_start == {"p": False, "q": True}
    assert (feeds.flushed, feeds.closed) == ({"p": 2, "q": 0}, {"p", "q"})
    assert [notice.kind for notice in notices] == ["gap"]
    assert len(shares) == 2
    done = recorder.partitions["p"]
    assert (done.records, done.value_bytes, done.next_offset, done.first_us, done.last_us) == (2, 1, 12, 70, 70)
    assert (recorder.records, recorder.was_stopped) == (2, False)


@pytest.mark.parametrize("wrong_us", [-1, 1 << 62])
async def test_a_time_that_no_calendar_has_is_recorded_but_no_first_or_last_time(wrong_us: int) -> None:
    batch = RecordBatch("p", (Record(0, b"a", wrong_us), Record(1, b"b", 70), Record(2, b"c", 80)), 3)
    feeds = Feeds()
    recorder = Recorder(
        lambda: ListSource([PartitionAssigned("p"), batch, PartitionEnded("p")]), feeds.open, ManualClock()
    )
    await recorder.run()
    assert [record.timestamp_us for record in feeds.sent["p"]] == [wrong_us, 70, 80]
    done = recorder.partitions["p"]
    assert (done.first_us, done.last_us) == (70, 80)


async def run_following(topic: Growing, feeds: Feeds, seconds: float, until_s: float | None = None) -> Recorder:
    """Follow ``topic``, the clock moving by half a second at a time, until it ends or a stop after ``seconds``."""
    clock = ManualClock(0)
    recorder = Recorder(topic.open, feeds.open, clock)
    until_us = None if until_s is None else round(until_s * 1e6)
    task = asyncio.create_task(recorder.run(follow=True, until_us=until_us))
    await steps(50)
    for _ in range(round(seconds * 2)):
        if task.done():
            break
        clock.advance(0.5)
        await steps(50)
    if not task.done():
        recorder.request_stop()
    await task
    return recorder


async def test_following_goes_on_where_it_ended() -> None:
    topic = Growing([{"p": records(5, 6, 9)}, {}, {"p": records(12), "q": records(0)}, {"p": records(13, 14, 15)}])
    feeds = Feeds()
    recorder = await run_following(topic, feeds, 6)
    assert feeds.offsets("p") == [5, 6, 9, 12, 13, 14, 15]
    assert feeds.offsets("q") == [0]
    assert feeds.flushed == {"p": 7, "q": 1}
    assert recorder.was_stopped


async def test_following_ends_once_until_has_passed_and_all_before_it_was_read() -> None:
    topic, feeds = Growing([{"p": records(1)}, {"p": records(2)}, {"p": records(3)}, {"p": records(4)}]), Feeds()
    recorder = await run_following(topic, feeds, 30, until_s=1.5)
    assert feeds.offsets("p") == [1, 2, 3]
    assert not recorder.was_stopped
    assert topic.n_opened == 3


async def test_a_stop_finishes_what_is_there_even_while_the_source_is_silent() -> None:
    feeds = Feeds()
    endless = ListSource([PartitionAssigned("p"), RecordBatch("p", records(1, 2), 3)], endless=True)
    recorder = Recorder(lambda: endless, feeds.open, ManualClock())
    task = asyncio.create_task(recorder.run())
    await steps(50)
    assert not task.done()
    recorder.request_stop()
    await asyncio.wait_for(task, LIMIT_S)
    assert (feeds.offsets("p"), feeds.flushed, feeds.closed) == ([1, 2], {"p": 2}, {"p"})
    assert recorder.was_stopped


async def test_an_error_leaves_a_range_unfinished() -> None:
    feeds = Feeds()
    script: list[ScriptItem] = [PartitionAssigned("p"), RecordBatch("p", records(1), 2), SourceError("gone")]
    with pytest.raises(SourceError, match="gone"):
        await Recorder(lambda: ListSource(script), feeds.open, ManualClock()).run()
    assert (feeds.offsets("p"), feeds.flushed, feeds.closed) == ([1], {}, {"p"})


async def test_an_error_finishes_what_follows() -> None:
    feeds = Feeds()
    with pytest.raises(SourceError, match="gone"):
        await run_following(Growing([{"p": records(1, 2, 3)}, SourceError("gone")]), feeds, 5)
    assert (feeds.flushed, feeds.closed) == ({"p": 3}, {"p"})


async def test_an_output_that_cannot_be_opened_is_reported_before_anything_is_read() -> None:
    feeds = Feeds(OutputError("is there already"))
    script: list[ScriptItem] = [PartitionAssigned("p"), ValueError("read")]
    with pytest.raises(OutputError, match="is there already"):
        await Recorder(lambda: ListSource(script), feeds.open, ManualClock()).run()
    assert feeds.closed == {"p"}


async def test_recordings_of_whole_sequences_are_refused() -> None:
    source = ListSource.of({"x.npz": [Record(0, b"\x80", native=True)]})
    with pytest.raises(SourceError, match=r"x.npz: is a recording already"):
        await Recorder(lambda: source, Feeds().open, ManualClock()).run()
