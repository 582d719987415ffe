"""The pipeline: one verdict per sequence, in order, counted; nothing half-committed; live and replay cut alike."""

from __future__ import annotations

import asyncio
import random
import threading
import tracemalloc
from typing import Any

import pytest

from streamad.errors import DetectorError, OutputError, PartitionLost, SourceError
from streamad.runtime.partition import IdleClock
from streamad.testing import ListSink, ListSource, ManualClock, Pause
from streamad.types import PartitionAssigned, PartitionEnded, PartitionRevoked, Record, RecordBatch
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import (
    START_US,
    Run,
    SquareScorer,
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

LATENESS = {"allowed_lateness": "3s"}


def assert_counts_add_up(run: Run) -> None:
    counters = run.pipeline.counters
    assert counters.samples == (
        counters.sequence_samples + counters.merged + counters.late_samples + counters.dead_letters["time_jump"]
    )
    assert sum(counters.sequences.values()) == sum(counters.verdicts.values()) == len(run.judged)
    assert counters.alerts == counters.verdicts["anomalous"]


# --- every sequence once, in order, counted --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
async def test_every_sequence_gets_one_verdict_and_every_sample_is_accounted_for(seed: int) -> None:
    partitions = {
        "p0": records_of(messy_recordings(seed, streams=["a", "b", "c"])),
        "p1": records_of(messy_recordings(seed + 100, streams=["d"])),
    }
    run = await run_pipeline(ListSource.of(partitions, batch_records=7), settings_of(sequences=LATENESS))
    assert_counts_add_up(run)
    ids = [verdict.verdict_id for verdict in run.verdicts]
    assert len(ids) == len(set(ids)) == 20
    assert {(verdict.stream, verdict.sequence) for verdict in run.verdicts} == {
        (stream, f"{stream}-{number}") for stream in "abcd" for number in range(5)
    }
    counters = run.pipeline.counters
    assert counters.records == sum(len(records) for records in partitions.values())
    assert len(run.messages("dead_letters")) == sum(counters.dead_letters.values())
    assert sum(len(late.times) for late in run.messages("late")) == counters.late_samples
    for role in ("dead_letters", "late"):
        assert all(message.origin.partition in partitions for message in run.messages(role))


async def test_verdicts_commit_in_the_order_in_which_sequences_ended_whoever_is_judged_first() -> None:
    # An unscorable sequence needs no model and is judged at once; it must wait for the one before it.
    messages = [line("a", "long", range(8), end=True), line("b", "short", [9.0], end=True)]
    messages += [line("a", "long2", [20 + i for i in range(8)], end=True)]
    settings = settings_of(window={"min_samples": 3})
    run = await run_pipeline(ListSource.of({"p": records_of(messages)}), settings)
    assert [verdict.sequence for verdict in run.verdicts] == ["long", "short", "long2"]
    assert [verdict.decision for verdict in run.verdicts] == ["normal", "unscorable", "normal"]


async def test_an_empty_source_and_an_empty_partition_end_well() -> None:
    assert (await run_pipeline(ListSource([]))).judged == []
    run = await run_pipeline(ListSource.of({"p": []}))
    assert run.judged == []
    assert run.pipeline.counters.commits == 1


# --- back-pressure ---------------------------------------------------------------------------------------------------


class CountedSource(ListSource):
    """Counts what was pulled."""

    n_pulled = 0

    async def batches(self) -> Any:
        async for event in super().batches():
            self.n_pulled += isinstance(event, RecordBatch)
            yield event


async def test_when_memory_is_short_the_largest_sequence_ends_and_the_stream_goes_on() -> None:
    messages = []
    for i in range(400):
        messages.append(line("big", "endless", [i * 10 + j for j in range(10)]))
        messages.append(line("small", f"s{i // 10}", [float(i)], end=i % 10 == 9))
    most_held = 0

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        nonlocal most_held
        while not task.done():
            most_held = max(most_held, run.pipeline.status.gauges().buffered_bytes)
            await asyncio.sleep(0)

    settings = settings_of(sequences={"max_buffered_bytes": "20KB"})
    source = ListSource.of({"p": records_of(messages)}, batch_records=5)
    run = await run_pipeline(source, settings, while_running=watch)
    assert most_held < 25_000
    reasons = run.pipeline.counters.sequences
    assert reasons["memory"] == 1
    assert [verdict.sequence for verdict in run.verdicts if verdict.reason == "memory"] == ["endless"]
    assert reasons["marker"] == 40
    assert_counts_add_up(run)
    assert run.pipeline.counters.late_samples > 3_000  # what came of "endless" after its end


async def test_a_limit_below_a_single_batch_still_lets_the_stream_go_on() -> None:
    messages = [line("a", f"{i}", [i * 10 + j for j in range(5)]) for i in range(50)]
    settings = settings_of(sequences={"max_buffered_bytes": 1})
    run = await run_pipeline(ListSource.of({"p": records_of(messages)}, batch_records=1), settings)
    assert run.pipeline.counters.sequences == {"memory": 50}
    assert_counts_add_up(run)


class HeldScorer(SquareScorer):
    """Scores ``n_free`` batches and then nothing until ``go`` is set, in the scoring thread."""

    def __init__(self, n_free: int = 0) -> None:
        super().__init__()
        self.n_free = n_free
        self.held, self.go = threading.Event(), threading.Event()

    def score(self, windows: Any, lengths: Any) -> Any:
        if len(self.batches) >= self.n_free:
            self.held.set()
            assert self.go.wait(LIMIT_S)
        return super().score(windows, lengths)


async def test_a_verdict_waits_for_the_one_before_it_though_progress_commits_meanwhile() -> None:
    clock, scorer, ledger = ManualClock(START_US), HeldScorer(), Ledger()
    messages = [line("a", "long", range(8), end=True), line("b", "short", [9.0], end=True)]
    script = [PartitionAssigned("p"), RecordBatch("p", tuple(records_of(messages)), 2)]
    settings = settings_of(window={"min_samples": 3}, run={"commit_interval": "1s"})

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        await until(scorer.held.is_set)
        await steps()  # the short one, unscorable, has its verdict
        clock.advance(2.0)
        await until(lambda: bool(ledger.commits))
        scorer.go.set()
        await until(lambda: len(run.judged) == 2)
        run.pipeline.request_stop()

    source = ListSource(script, endless=True, clock=clock)
    run = await run_pipeline(
        source, settings, clock=clock, model=model_of(scorer), committer=ledger, while_running=watch
    )
    assert [verdict.sequence for verdict in run.verdicts] == ["long", "short"]
    update, outputs = ledger.commits[0]
    assert (update.next_offset, update.low_watermark, outputs) == (2, 0, [])


@pytest.mark.parametrize("waited_s", [0.0, 0.3, 2.5])
async def test_the_latency_of_a_decision_is_the_time_from_the_sequences_end_to_its_commit(waited_s: float) -> None:
    clock, scorer = ManualClock(START_US), HeldScorer()
    first, end = Record(0, line("a", "1", range(3))), Record(1, line("a", "1", [3], end=True))
    source = ListSource([PartitionAssigned("p"), RecordBatch("p", (first,), 1, caught_up=True)], endless=True)

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.counters.samples == 3)
        clock.advance(60.0)  # the time it took to record the sequence is none of the decision's
        source.feed(RecordBatch("p", (end,), 2, caught_up=True))
        await until(lambda: run.pipeline.status.gauges().waiting_verdicts == 1)
        clock.advance(waited_s)
        scorer.go.set()
        await until(lambda: len(run.judged) == 1)
        clock.advance(5.0)
        run.pipeline.request_stop()

    run = await run_pipeline(source, model=model_of(scorer), clock=clock, while_running=watch)
    assert run.latencies_us == [round(waited_s * 1e6)]


async def test_while_scoring_lags_the_source_is_not_pulled_beyond_the_bound() -> None:
    messages = [line("a", f"{i}", [i * 2.0, i * 2 + 1], end=True) for i in range(400)]
    source = CountedSource.of({"p": records_of(messages)}, batch_records=1)
    scorer = HeldScorer()
    settings = settings_of(run={"batch_windows": 2})

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        await steps(2_000)
        assert source.n_pulled == 2 * 2 + 1  # the bound and the one beyond it
        assert not task.done()
        scorer.go.set()

    run = await run_pipeline(source, settings, model=model_of(scorer), while_running=watch)
    assert len(run.judged) == 400


async def test_many_verdicts_at_once_end_no_open_sequence() -> None:
    # What is unscorable is judged in one step: a commit takes it all before the loop has told of any end.
    messages = [line("a", "open", [0.0, 1.0, 2.0])]
    messages += [line("b", f"{i}", [float(i)], end=True) for i in range(20)]
    settings = settings_of(window={"min_samples": 3}, run={"batch_windows": 2})
    run = await run_pipeline(ListSource.of({"p": records_of(messages)}), settings)
    assert run.pipeline.counters.sequences == {"marker": 20, "end_of_input": 1}


async def test_what_is_in_flight_of_a_lost_partition_ends_no_open_sequence_of_another() -> None:
    messages = [line("b", f"{i}", [float(i)], end=True) for i in range(20)]
    source = ListSource.of({"p": records_of([line("a", "open", [0.0])]), "q": records_of(messages)}, batch_records=4)
    scorer, ledger = HeldScorer(1), Ledger("q", failing={1: (PartitionLost("q", "the broker went away"), False)})
    settings = settings_of(run={"batch_windows": 2})

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: "q" in ledger.under_way and run.pipeline.status.gauges().waiting_verdicts > 4)
        ledger.gates["q"].set()
        await until(lambda: bool(run.pipeline.counters.commits_failed))
        scorer.go.set()

    run = await run_pipeline(source, settings, model=model_of(scorer), committer=ledger, while_running=watch)
    assert [verdict.reason for verdict in run.verdicts if verdict.sequence == "open"] == ["end_of_input"]
    assert len(run.judged) == 21


@pytest.mark.parametrize("most_bytes", [10**9, 30_000])
async def test_judged_sequences_wait_for_their_commit_up_to_a_bound_of_memory(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each commit has its costs: where it lags, it holds all that was judged meanwhile, and reading goes on.
    monkeypatch.setattr("streamad.runtime.submitter._MOST_JUDGED_BYTES", most_bytes)
    messages = [line("a", f"{i}", [i * 2.0, i * 2 + 1], end=True) for i in range(400)]
    source = CountedSource.of({"p": records_of(messages)}, batch_records=1)
    ledger = Ledger("p")
    settings = settings_of(run={"batch_windows": 2, "batch_wait": 0})

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.status.gauges().waiting_verdicts > 4)
        if most_bytes == 10**9:
            await until(lambda: source.n_pulled == 400)
        else:
            partition = run.pipeline.status.partitions["p"]
            await until(lambda: partition.in_flight_bytes > most_bytes)
            await steps(500)
            assert partition.in_flight_bytes < most_bytes + 5_000
            assert source.n_pulled < 400
        ledger.gates["p"].set()

    run = await run_pipeline(source, settings, committer=ledger, while_running=watch)
    assert len(run.judged) == 400
    assert (len(ledger.commits) < 10) is (most_bytes == 10**9)
    assert run.pipeline.status.partitions == {}


async def test_sequences_that_wait_for_their_commit_count_with_all_that_they_hold() -> None:
    messages = [line("a", f"{i}", [i * 2.0], end=True) for i in range(400)]
    ledger = Ledger("p")

    async def watch(run: Run, task: asyncio.Task[None]) -> None:
        before = tracemalloc.get_traced_memory()[0]
        await until(lambda: run.pipeline.status.gauges().waiting_verdicts > 300)
        held = tracemalloc.get_traced_memory()[0] - before
        counted = run.pipeline.status.partitions["p"].in_flight_bytes
        ledger.gates["p"].set()
        assert counted / 2 < held < counted * 2

    tracemalloc.start()
    try:
        await run_pipeline(
            ListSource.of({"p": records_of(messages)}, batch_records=10), committer=ledger, while_running=watch
        )
    finally:
        tracemalloc.stop()


# --- stopping and failing --------------------------------------------------------------------------------------------


async def test_a_stop_finishes_and_commits_what_is_being_scored_and_leaves_open_sequences_open() -> None:
    messages = [line("a", "done", range(5), end=True), line("a", "open", [9.0, 10.0])]
    script = [PartitionAssigned("p"), RecordBatch("p", tuple(records_of(messages)), 2)]
    scorer = HeldScorer()
    ledger = Ledger()

    async def stop(run: Run, task: asyncio.Task[None]) -> None:
        await steps()
        run.pipeline.request_stop()
        await steps()
        assert not task.done()
        scorer.go.set()

    source = ListSource(script, endless=True)
    run = await run_pipeline(source, model=model_of(scorer), committer=ledger, while_running=stop)
    assert [verdict.sequence for verdict in run.verdicts] == ["done"]
    last, _ = ledger.commits[-1]
    assert (last.next_offset, last.low_watermark, last.ended) == (2, 1, False)


@pytest.mark.parametrize("ends", [False, True])
async def test_a_stop_gives_up_after_its_time_and_what_is_left_is_not_committed(ends: bool) -> None:
    records = tuple(records_of([line("a", str(i), [i * 2.0, i * 2 + 1], end=True) for i in range(3)]))
    script = [PartitionAssigned("p"), RecordBatch("p", records, 3), *([PartitionEnded("p")] if ends else [])]
    clock, scorer, ledger = ManualClock(), HeldScorer(n_free=1), Ledger()
    settings = settings_of(run={"batch_windows": 1, "stop_timeout": "5s", "commit_interval": "1s"})

    async def stop(run: Run, task: asyncio.Task[None]) -> None:
        await until(scorer.held.is_set)
        run.pipeline.request_stop()
        for _ in range(4):
            clock.advance(1.0)
            await steps()
        assert not task.done()
        clock.advance(1.0)
        await until(task.done)
        scorer.go.set()

    run = await run_pipeline(
        ListSource(script, endless=not ends),
        settings,
        clock=clock,
        model=model_of(scorer, explains=False),
        committer=ledger,
        while_running=stop,
    )
    assert [verdict.sequence for verdict in run.verdicts] == ["0"]
    last, _ = ledger.commits[-1]
    assert (last.low_watermark, last.ended) == (1, False)


async def test_the_end_of_a_partition_is_committed_as_one() -> None:
    # Else a crash between two of its commits would find samples late once more that were late at the first end.
    messages = [line(stream, "1", [float(i)]) for i in range(3) for stream in "abcde"]
    ledger = Ledger()
    settings = settings_of(run={"batch_windows": 1, "commit_interval": "1ms"})
    run = await run_pipeline(ListSource.of({"p": records_of(messages)}), settings, committer=ledger)
    assert run.pipeline.counters.sequences == {"end_of_input": 5}
    verdicts = [sum(record.role == "verdicts" for record in outputs) for _, outputs in ledger.commits]
    assert [n for n in verdicts if n] == [5]


@pytest.mark.parametrize("failure", [DetectorError("no more memory"), ValueError("shapes"), ZeroDivisionError()])
async def test_a_failing_scorer_ends_the_run_and_commits_nothing_of_what_failed(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    scorer = SquareScorer()
    source = ListSource([PartitionAssigned("p")], endless=True)
    sinks: dict[Any, ListSink] = {}

    async def fail(run: Run, task: asyncio.Task[None]) -> None:
        sinks.update(run.sinks)
        good = records_of([line("a", "good", range(5), end=True)])
        source.feed(RecordBatch("p", tuple(good), 1, caught_up=True))
        await until(lambda: len(run.judged) == 1)
        scorer.failure = failure
        bad = [Record(i, line("a", f"{i}", [i * 10.0, i * 10 + 1.0], 10.0, end=True)) for i in range(1, 40)]
        source.feed(RecordBatch("p", tuple(bad), 40, caught_up=True))

    with pytest.raises(DetectorError):
        await run_pipeline(source, model=model_of(scorer), while_running=fail)
    assert [record.message.sequence for record in sinks["verdicts"].records] == ["good"]  # type: ignore[union-attr]
    assert sinks["alerts"].records == sinks["alerts"].pending == []
    assert caplog.records == []  # no "exception was never retrieved" for the other 38


async def test_what_was_judged_before_a_failure_is_committed_first() -> None:
    class FailsOnTens(SquareScorer):
        def score(self, windows: Any, lengths: Any) -> Any:
            if windows.max() > 5:
                raise RuntimeError("cannot")
            return super().score(windows, lengths)

    messages = [line("a", f"{i}", [i * 10.0, i * 10 + 1], 10.0 if i == 3 else 1.0, end=True) for i in range(6)]
    source = ListSource([PartitionAssigned("p"), RecordBatch("p", tuple(records_of(messages)), 6, True)], endless=True)
    kept: list[Run] = []

    async def keep(run: Run, task: asyncio.Task[None]) -> None:
        kept.append(run)

    settings = settings_of(run={"batch_windows": 1})
    with pytest.raises(DetectorError, match="cannot"):
        await run_pipeline(source, settings, model=model_of(FailsOnTens()), while_running=keep)
    assert [verdict.sequence for verdict in kept[0].verdicts] == ["0", "1", "2"]


async def test_a_failing_source_and_a_failing_sink_end_the_run_with_their_error() -> None:
    with pytest.raises(SourceError, match="gone"):
        await run_pipeline(ListSource([PartitionAssigned("p"), SourceError("gone")]))

    async def break_sink(run: Run, task: asyncio.Task[None]) -> None:
        run.sinks["verdicts"].failure = OutputError("full")

    source = ListSource.of({"p": records_of([line("a", "1", range(5), end=True)])})
    with pytest.raises(OutputError, match="full"):
        await run_pipeline(source, while_running=break_sink)


# --- partitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_told", [True, False], ids=["revoked", "assigned again"])
async def test_a_revoked_partition_commits_nothing_more_and_its_next_owner_begins_at_its_progress(
    is_told: bool,
) -> None:
    first = tuple(records_of([line("a", "1", range(3), end=True), line("a", "2", [9.0, 10.0])]))
    rest = (Record(2, line("a", "2", [11.0], end=True)),)
    scorer, ledger = HeldScorer(), Ledger()
    source = ListSource([PartitionAssigned("p"), RecordBatch("p", first, 2)], endless=True)

    async def rebalance(run: Run, task: asyncio.Task[None]) -> None:
        await steps()
        source.feed(*[PartitionRevoked("p")] * is_told)
        await steps()
        assert run.verdicts == []
        if is_told:
            scorer.go.set()
        source.feed(PartitionAssigned("p"), RecordBatch("p", rest, 3), PartitionEnded("p"))
        await steps()
        scorer.go.set()
        await until(lambda: len(run.judged) == 2)
        run.pipeline.request_stop()

    run = await run_pipeline(source, model=model_of(scorer), while_running=rebalance, committer=ledger)
    assert [(verdict.sequence, verdict.n_samples) for verdict in run.verdicts] == [("1", 3), ("2", 3)]
    assert ledger.calls == ["restore p", "release p", "restore p"]
    assert run.pipeline.status.gauges().buffered_bytes == 0


async def test_events_of_a_partition_that_is_not_ours_are_ignored() -> None:
    class Careless(ListSource):
        async def batches(self) -> Any:
            yield RecordBatch("p", tuple(records_of([line("a", "1", [0.0])])), 1)
            yield PartitionEnded("p")
            yield PartitionRevoked("p")

    run = await run_pipeline(Careless([]))
    assert run.pipeline.counters.records == 0


def batch(partition: str, offset: int, message: bytes) -> RecordBatch:
    return RecordBatch(partition, (Record(offset, message),), offset + 1)


async def test_streams_above_the_limit_are_one_event() -> None:
    lines = [batch("p", n, line(f"s{n:05d}", "1", [n])) for n in range(30)]
    script = [PartitionAssigned("p"), *lines, PartitionEnded("p")]
    run = await run_pipeline(ListSource(script), settings_of(sequences={"max_streams": 10}))
    (event,) = run.events
    assert (event.kind, event.stream, event.partition) == ("too_many_streams", None, "p")
    assert event.message.startswith("1 record of further streams refused: sequences.max_streams is 10 (stream 's00010'")
    assert run.pipeline.counters.dead_letters == {"too_many_streams": 20}


@pytest.mark.parametrize("ends_first", ["p", "q"])
async def test_a_stream_in_two_partitions_is_an_event_and_unscorable_never_half_a_verdict(ends_first: str) -> None:
    other = "q" if ends_first == "p" else "p"
    script = [
        *(PartitionAssigned("p"), PartitionAssigned("q")),
        *(
            batch("p", 0, line("a", "1", [0, 1])),
            batch("q", 0, line("a", "1", [2, 3])),
            batch("q", 1, line("b", "1", [0])),
        ),
        PartitionEnded(ends_first),
        *(batch(other, 2, line("a", "1", [4], end=True)), batch(other, 3, line("a", "2", [9], end=True))),
        PartitionEnded(other),
    ]
    run = await run_pipeline(ListSource(script))
    (event,) = run.events
    assert (event.kind, event.stream, event.partition) == ("stream_in_two_partitions", "a", "q")
    assert run.messages("events") == [event]
    assert {verdict.decision for verdict in run.verdicts if verdict.stream == "a"} == {"unscorable"}
    assert {verdict.decision for verdict in run.verdicts if verdict.stream == "b"} == {"normal"}


async def test_a_stream_that_goes_on_in_the_next_file_is_no_split_stream() -> None:
    script = [
        *(PartitionAssigned("p"), batch("p", 0, line("a", "1", [0, 1], end=True)), PartitionEnded("p")),
        *(PartitionAssigned("q"), batch("q", 0, line("a", "2", [9, 10], end=True)), PartitionEnded("q")),
    ]
    run = await run_pipeline(ListSource(script))
    assert run.events == []
    assert [verdict.decision for verdict in run.verdicts] == ["normal", "normal"]


# --- wall clock ------------------------------------------------------------------------------------------------------


def test_idle_time_counts_only_while_caught_up_and_restarts_after_an_outage() -> None:
    idle = IdleClock(outage_us=10)
    idle.on_batch(0, caught_up=True, has_records=True)
    assert idle.idle_us == 0
    idle.on_batch(4, caught_up=True, has_records=False)
    idle.on_batch(14, caught_up=True, has_records=False)
    assert idle.idle_us == 14  # exactly outage_us between two polls is no outage
    idle.on_batch(25, caught_up=True, has_records=False)
    assert idle.idle_us == 0
    idle.on_batch(30, caught_up=True, has_records=False)
    assert idle.idle_us == 5
    idle.on_batch(31, caught_up=False, has_records=True)
    assert idle.idle_us == 0
    idle.on_batch(32, caught_up=True, has_records=False)
    assert idle.idle_us == 0  # not caught up until now: nothing is known of the time before
    idle.on_batch(35, caught_up=True, has_records=False)
    assert idle.idle_us == 3


GAP = {"end": ["gap"], "gap": "10s", "allowed_lateness": "2s"}


@pytest.mark.parametrize(("silence_s", "outage_s", "verdicts"), [(12.0, 0.0, 0), (13.0, 0.0, 1), (13.0, 30.0, 0)])
async def test_a_silent_stream_ends_by_the_wall_clock_only_while_caught_up(
    silence_s: float, outage_s: float, verdicts: int
) -> None:
    clock = ManualClock(START_US)
    records = records_of([line("a", None, [0, 1, 2])], timestamps_s=[2])
    source = ListSource([PartitionAssigned("p"), RecordBatch("p", tuple(records), 1, caught_up=True)], endless=True)

    async def live(run: Run, task: asyncio.Task[None]) -> None:
        await steps()
        for second in range(round(silence_s)):
            clock.advance(1.0 + (outage_s if second == 6 else 0.0))
            source.feed(RecordBatch("p", (), 1, caught_up=True))
            await steps(20)
        await until(lambda: len(run.judged) >= verdicts)
        run.pipeline.request_stop()

    run = await run_pipeline(source, settings_of(sequences=GAP), clock=clock, while_running=live)
    assert [verdict.reason for verdict in run.verdicts] == ["gap"] * verdicts


def cuts(run: Run) -> list[tuple[Any, ...]]:
    return sorted((v.stream, v.sequence, v.reason, v.n_samples, v.start_time, v.end_time) for v in run.verdicts)


@pytest.mark.parametrize("seed", range(4))
async def test_live_and_full_speed_replay_cut_the_same_sequences(seed: int) -> None:
    rng = random.Random(seed)
    arrivals, time_s = [], 0.0
    for _ in range(60):
        time_s += rng.choice([0.5, 1.0, 2.0, 9.5, 12.0, 13.0, 40.0])
        arrivals.append((time_s, rng.choice("abc")))
    messages = [line(stream, None, [time_s - rng.choice([0.0, 0.5, 1.5])]) for time_s, stream in arrivals]
    records = records_of(messages, timestamps_s=[time_s for time_s, _ in arrivals])
    settings = settings_of(sequences=GAP)
    replayed = await run_pipeline(ListSource.of({"p": records}), settings)

    clock = ManualClock(START_US)
    source = ListSource([PartitionAssigned("p")], endless=True)

    async def live(run: Run, task: asyncio.Task[None]) -> None:
        now_s, waiting = 0.0, list(records)
        while waiting:
            now_s += 0.5
            clock.advance(0.5)
            due = [record for record in waiting if (record.timestamp_us or 0) <= START_US + now_s * 1e6]
            waiting = waiting[len(due) :]
            after = waiting[0].offset if waiting else len(records)
            source.feed(RecordBatch("p", tuple(due), after, caught_up=True))
            await steps(10)
        source.feed(PartitionEnded("p"))
        await steps(50)
        await until(lambda: not run.pipeline.status.gauges().partitions)
        run.pipeline.request_stop()

    lived = await run_pipeline(source, settings, clock=clock, while_running=live)
    assert cuts(lived) == cuts(replayed)
    assert len(cuts(replayed)) > 8
    assert lived.pipeline.counters.late_samples == replayed.pipeline.counters.late_samples


async def test_progress_without_verdicts_commits_once_per_interval() -> None:
    clock = ManualClock(START_US)
    source = ListSource([PartitionAssigned("p")], endless=True, clock=clock)

    async def trickle(run: Run, task: asyncio.Task[None]) -> None:
        for offset in range(40):
            source.feed(batch("p", offset, line("a", "1", [float(offset)])))
            clock.advance(0.25)
            await steps(20)
        run.pipeline.request_stop()

    run = await run_pipeline(source, clock=clock, while_running=trickle)
    assert run.pipeline.counters.commits == 10  # nine whole intervals since the assignment, and the last word


async def test_a_commit_interval_of_zero_does_not_spin() -> None:
    clock = ManualClock(START_US)
    source = ListSource([PartitionAssigned("p"), Pause(60.0)], clock=clock, endless=True)

    async def look(run: Run, task: asyncio.Task[None]) -> None:
        await steps(200)
        assert clock.n_sleepers == 2  # the source's pause and one tick that lies ahead
        run.pipeline.request_stop()

    await run_pipeline(source, settings_of(run={"commit_interval": 0}), clock=clock, while_running=look)


async def test_many_dead_letters_are_committed_before_they_fill_the_memory() -> None:
    clock = ManualClock(START_US)
    records = [Record(offset, b"x" * 1_000_000) for offset in range(40)]
    settings = settings_of(decode={"max_dead_letter_bytes": "1MB"}, run={"commit_interval": "1h"})
    run = await run_pipeline(ListSource.of({"p": records}, batch_records=1), settings, clock=clock)
    assert len(run.messages("dead_letters")) == 40
    assert run.pipeline.counters.commits == 3
