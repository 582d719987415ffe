"""Partitions that come, go and fail while others are read: restored, committed and given up beside each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from streamad.errors import PartitionLost, StalledError
from streamad.messages import OutputRecord, Role
from streamad.partition_progress import ProgressUpdate
from streamad.testing import ListSource, ManualClock
from streamad.types import (
    FloatArray,
    IntArray,
    PartitionAssigned,
    PartitionEnded,
    PartitionRevoked,
    Rebalanced,
    Record,
    RecordBatch,
    SourceEvent,
    SourceNotice,
)
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import (
    Run,
    SquareScorer,
    TickingClock,
    line,
    messy_recordings,
    model_of,
    records_of,
    run_pipeline,
    settings_of,
    steps,
    until,
)
from tests.support.waiting import LIMIT_S


def chunk(stream: str, number: int) -> bytes:
    return line(stream, f"{stream}-{number}", [10.0 * number + i for i in range(3)], end=True)


def batch(partition: str, first: int, messages: Sequence[bytes], **more: object) -> RecordBatch:
    records = tuple(Record(first + i, message) for i, message in enumerate(messages))
    return RecordBatch(partition, records, first + len(records), **more)  # type: ignore[arg-type]


def said(run: Run) -> dict[Role, list[str]]:
    """What was written, sorted, without the times of writing."""
    return {
        role: sorted(repr(record.message).split("created_at")[0] for record in sink.records)
        for role, sink in run.sinks.items()
        if role != "events"
    }


async def test_a_partition_that_is_being_restored_holds_up_no_other() -> None:
    ledger = Ledger("restore slow")
    script = [PartitionAssigned("slow"), PartitionAssigned("p"), batch("p", 0, [chunk("a", 0)], caught_up=True)]

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: len(run.judged) == 1)
        source.feed(PartitionEnded("p"), batch("slow", 0, [chunk("b", 0)]), PartitionEnded("slow"))
        ledger.gates["restore slow"].set()
        await until(lambda: len(run.judged) == 2)
        await source.close()

    source = ListSource(script, endless=True)
    run = await run_pipeline(source, committer=ledger, while_running=act)
    assert [verdict.stream for verdict in run.verdicts] == ["a", "b"]


async def test_commits_of_two_partitions_run_at_the_same_time_and_reading_goes_on() -> None:
    ledger = Ledger("p", "q")

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: ledger.under_way == {"p", "q"})
        before = run.pipeline.counters.records
        source.feed(batch("p", 1, [chunk("a", 1)], caught_up=True))
        await until(lambda: run.pipeline.counters.records == before + 1)
        for gate in ledger.gates.values():
            gate.set()
        source.feed(PartitionEnded("p"), PartitionEnded("q"))
        await until(lambda: len(run.judged) == 3)
        await source.close()

    source = ListSource(
        [
            PartitionAssigned("p"),
            PartitionAssigned("q"),
            batch("p", 0, [chunk("a", 0)], caught_up=True),
            batch("q", 0, [chunk("b", 0)], caught_up=True),
        ],
        endless=True,
    )
    run = await run_pipeline(source, committer=ledger, while_running=act)
    assert ledger.most_under_way == 2
    assert [v.sequence for v in run.verdicts if v.stream == "a"] == ["a-0", "a-1"]


@pytest.mark.parametrize("in_doubt", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_failed_commits_and_commits_in_doubt_lose_and_repeat_nothing(seed: int, in_doubt: bool) -> None:
    """The law: whichever commits fail, made or not, the outputs are those of a run in which none failed."""
    settings = settings_of(
        sequences={"allowed_lateness": "3s"}, run={"commit_interval": "1ms", "batch_wait": 0, "batch_windows": 2}
    )
    partitions = {
        "p": records_of(messy_recordings(seed, streams=["a", "b"], sequences=4)),
        "q": records_of(messy_recordings(seed + 50, streams=["c"], sequences=3)),
    }
    calm = await run_pipeline(ListSource.of(partitions, batch_records=2), settings, committer=Ledger())
    failing = range(2, 40, 2 + seed % 2)
    ledger = Ledger(failing={number: (PartitionLost("p", "the broker went away"), in_doubt) for number in failing})
    run = await run_pipeline(ListSource.of(partitions, batch_records=2), settings, committer=ledger)
    assert run.pipeline.counters.commits_failed >= 2
    assert said(run) == said(calm)
    assert not any(call.startswith("release") for call in ledger.calls), "a partition that stays ours is kept"
    assert all(progress.ended for progress in ledger.progress.values()), "every partition was committed to its end"


class ThinLink(Ledger):
    """Commits take time, and those of more than ``MOST`` outputs too long: they fail."""

    MOST = 60

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        await steps(10 * min(len(outputs), self.MOST))
        if len(outputs) > self.MOST:
            raise PartitionLost(update.partition, "no commit in time")
        await super().commit(update, outputs)


async def test_commits_that_hold_too_much_for_their_time_become_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.runtime.submitter._MOST_JUDGED_BYTES", 1_000_000)  # 230 of them
    messages = tuple(records_of([line("a", f"{i}", [i * 2.0, i * 2 + 1], end=True) for i in range(800)]))
    last = len(messages) - 1
    batches = (RecordBatch("p", (each,), each.offset + 1, caught_up=each.offset == last) for each in messages)

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: task.done() or len(run.judged) == len(messages))
        run.pipeline.request_stop()

    settings = settings_of(run={"batch_windows": 4, "batch_wait": 0})
    source = ListSource([PartitionAssigned("p"), *batches], endless=True)
    run = await run_pipeline(source, settings, committer=ThinLink(), while_running=watch)
    assert len(run.judged) == len(messages)
    assert 0 < run.pipeline.counters.commits_failed < 8


async def test_a_batch_read_before_the_last_seek_is_dropped() -> None:
    """After a lost partition was sought back, what had been read on from there must not come twice, nor leave a gap."""

    class Sought(ListSource):
        async def batches(self) -> AsyncIterator[SourceEvent]:
            async for event in super().batches():
                yield event
                if isinstance(event, RecordBatch) and event.next_offset == 2:
                    yield batch("p", 7, [chunk("a", 7)], begins_at=7)  # read before a seek that only the source knows

    first, second = batch("p", 0, [chunk("a", 0), chunk("a", 1)]), batch("p", 2, [chunk("a", 2)])
    run = await run_pipeline(Sought([PartitionAssigned("p"), first, second, PartitionEnded("p")]))
    assert [verdict.sequence for verdict in run.verdicts] == ["a-0", "a-1", "a-2"]


async def test_an_end_told_before_the_last_seek_ends_nothing() -> None:
    class Sought(ListSource):
        async def batches(self) -> AsyncIterator[SourceEvent]:
            async for event in super().batches():
                yield event
                if isinstance(event, RecordBatch) and event.next_offset == 1:
                    yield PartitionEnded("p", next_offset=7)  # told before a seek that only the source knows

    first, second = batch("p", 0, [line("a", "1", [0.0])]), batch("p", 1, [line("a", "1", [1.0], end=True)])
    run = await run_pipeline(Sought([PartitionAssigned("p"), first, second, PartitionEnded("p")]))
    assert [(verdict.sequence, verdict.reason, verdict.n_samples) for verdict in run.verdicts] == [("1", "marker", 2)]


async def test_a_revoked_partition_is_released_after_its_commit_and_nothing_more_is_committed_for_it() -> None:
    ledger = Ledger("p", "release p")

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: ledger.under_way == {"p"})
        source.feed(PartitionRevoked("p"), Rebalanced(()), PartitionAssigned("p"), Rebalanced(("p",)))
        await until(lambda: run.pipeline.counters.rebalances == 2)
        await steps()
        assert ledger.calls == ["restore p"], "it is restored only after its release"
        for gate in ledger.gates.values():
            gate.set()
        await until(lambda: ledger.calls.count("restore p") == 2)
        source.feed(batch("p", 0, [chunk("a", 0)], caught_up=True), PartitionEnded("p"))
        await until(lambda: len(run.judged) == 1)
        await source.close()

    source = ListSource([PartitionAssigned("p"), batch("p", 0, [chunk("a", 0)], caught_up=True)], endless=True)
    run = await run_pipeline(source, committer=ledger, while_running=act)
    assert [verdict.sequence for verdict in run.verdicts] == ["a-0"]
    assert ledger.calls[:3] == ["restore p", "release p", "restore p"]
    assert run.pipeline.counters.rebalances == 2


async def test_an_event_is_committed_in_time_if_nothing_else_is() -> None:
    clock = ManualClock()

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.events != [])
        clock.advance(2)
        await until(lambda: run.messages("events") != [])
        run.pipeline.request_stop()

    source = ListSource([PartitionAssigned("p"), SourceNotice("retention_unknown", "text")], endless=True)
    run = await run_pipeline(source, clock=clock, while_running=act)
    assert [event.kind for event in run.messages("events")] == ["retention_unknown"]


async def test_a_scorer_that_hangs_ends_the_run() -> None:
    class Hanging(SquareScorer):
        def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
            assert stalled.wait(LIMIT_S)
            return super().score(windows, lengths)

    stalled = threading.Event()
    clock = ManualClock()
    settings = settings_of(run={"stall_timeout": "5m", "batch_wait": "1h", "batch_windows": 64})

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.status.gauges().waiting_verdicts == 1)
        while not task.done():
            clock.advance(1)
            await steps(5)
        stalled.set()

    source = ListSource([PartitionAssigned("p"), batch("p", 0, [chunk("a", 0)])], endless=True)
    with pytest.raises(StalledError, match="1 finished sequences wait and nothing has moved for 300 s"):
        await run_pipeline(source, settings, clock=clock, model=model_of(Hanging()), while_running=act)


async def test_gauges_export_lag_age_and_open_sequences() -> None:
    clock = ManualClock()
    start_us = clock.now_us()
    messages = [line("a", "a-0", [0, 1]), line("b", "b-0", [0, 1])]
    records = tuple(Record(i, message, start_us - 60_000_000) for i, message in enumerate(messages))

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.counters.records == 2)
        clock.advance(2)
        await until(lambda: run.pipeline.counters.commits >= 1)
        source.feed(RecordBatch("p", (), 2, end_offset=7))
        await until(lambda: run.pipeline.status.gauges().lag == 5)
        gauges = run.pipeline.status.gauges()
        assert (gauges.partitions, gauges.open_sequences, gauges.lag, gauges.waiting_verdicts) == (1, 2, 5, 0)
        assert gauges.buffered_bytes > 0
        await source.close()

    source = ListSource([PartitionAssigned("p"), RecordBatch("p", records, 2, end_offset=2)], endless=True)
    await run_pipeline(source, clock=clock, while_running=act)


class Gapped(ListSource):
    """A source whose log begins at 2 when it is sought again, as if retention had passed."""

    log_start = 0

    async def seek(self, partition: str, offset: int | None) -> int:
        return await super().seek(partition, max(offset or 0, self.log_start))


async def test_after_an_accepted_gap_what_may_have_lost_samples_is_partial_and_nothing_else() -> None:
    """Stream a lost a chunk of its open sequence, b's sequence was whole before; c begins behind the gap."""
    ledger = Ledger()
    messages = [
        line("b", "b-0", [0, 1], end=True),
        line("a", "a-0", [0, 1]),
        line("a", "a-0", [2, 3]),
        line("a", "a-0", [4, 5], end=True),
        line("a", "a-1", [10, 11], end=True),
        line("c", "c-0", [10, 11], end=True),
    ]
    script = [PartitionAssigned("p"), batch("p", 0, messages[:2], caught_up=True)]
    first = Gapped(script, endless=True)

    async def until_committed(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: "p" in ledger.progress and ledger.progress["p"].next_offset == 2)
        await first.close()

    await run_pipeline(first, clock=TickingClock(0.05), committer=ledger, while_running=until_committed)
    assert ledger.progress["p"].low_watermark == 1
    second = Gapped([PartitionAssigned("p"), batch("p", 0, messages), PartitionEnded("p")])
    second.log_start = 3
    run = await run_pipeline(second, committer=Ledger(progress=ledger.progress))
    found = {verdict.sequence: (verdict.decision, verdict.n_samples) for verdict in run.verdicts}
    assert found["a-0"] == ("unscorable", 2)
    assert found["a-1"][0] == "normal"
    assert found["c-0"][0] == "unscorable", "its beginning may lie in the gap"
    assert "b-0" not in found


@pytest.mark.parametrize("sees_start", [True, False])
async def test_whether_the_beginning_was_seen_is_remembered_over_a_restart(sees_start: bool) -> None:
    """A log that retention has cut since the first start says nothing of what was seen then, nor the reverse."""
    ledger = Ledger()
    first = ListSource([PartitionAssigned("p", seen_from_start=sees_start), RecordBatch("p", (), 4)], endless=True)

    async def until_committed(run: Run, task: asyncio.Task[None]) -> None:
        while not ledger.n_commits:
            first.feed(RecordBatch("p", (), 4))  # the ticking clock ticks when somebody looks at it
            await steps()
        await first.close()

    await run_pipeline(first, clock=TickingClock(0.05), committer=ledger, while_running=until_committed)
    again = PartitionAssigned("p", seen_from_start=not sees_start)
    second = ListSource([again, batch("p", 4, [chunk("a", 0)]), PartitionEnded("p")])
    run = await run_pipeline(second, committer=Ledger(progress=ledger.progress))
    assert [verdict.decision for verdict in run.verdicts] == ["normal" if sees_start else "unscorable"]


async def test_a_commit_that_fails_after_the_end_of_the_input_ends_the_run() -> None:
    """Nobody would read the partition again: the run must not end well with outputs missing."""
    ledger = Ledger(failing={n: (PartitionLost("p", "the broker went away"), False) for n in range(1, 9)})
    source = ListSource([PartitionAssigned("p"), batch("p", 0, [chunk("a", 0)]), PartitionEnded("p")])
    with pytest.raises(PartitionLost, match="went away"):
        await run_pipeline(source, committer=ledger)


async def test_the_lag_is_unknown_while_that_of_one_partition_is() -> None:
    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.status.gauges().partitions == 2)
        await steps()
        assert run.pipeline.status.gauges().lag is None
        source.feed(RecordBatch("q", (), 0, end_offset=3))
        await until(lambda: run.pipeline.status.gauges().lag == 8)
        await source.close()

    source = ListSource(
        [PartitionAssigned("p"), PartitionAssigned("q"), RecordBatch("p", (), 0, end_offset=5)], endless=True
    )
    await run_pipeline(source, while_running=act)
