"""Streams whose claims outlive a process: a first verdict waits for its claim, a split is told once, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from streamad.errors import OutputError
from streamad.messages import Event, Role
from streamad.partition_progress import Claim
from streamad.ports import ClaimLog
from streamad.runtime.partition import SPLIT
from streamad.testing import ListSource, ManualClock
from streamad.testing.stubs import ScriptItem
from streamad.types import PartitionAssigned, Record, RecordBatch
from tests.support.runtime.claims import ClaimReader, ClaimTopic
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import START_US, Run, line, run_pipeline, settings_of
from tests.support.waiting import LIMIT_S

MEMORY_S = 100
SETTINGS = settings_of(
    sequences={"end": ["marker"], "max_duration": "50s", "closed_memory": f"{MEMORY_S}s"},
    run={"commit_interval": "1ms"},
)


class GroupSource(ListSource):
    """A worker's source: its claims are those of a topic."""

    def __init__(self, topic: ClaimTopic, script: Iterable[ScriptItem] = ()) -> None:
        super().__init__(script, endless=True)
        self.topic = topic
        self.reader: ClaimReader | None = None

    def claims(self, on_news: Callable[[], None]) -> ClaimLog:
        self.reader = ClaimReader(self.topic, on_news)
        return self.reader


def at(partition: str, offset: int, time_s: float, stream: str, *, end: bool = True) -> RecordBatch:
    """A record of one sequence, ``q-{offset}``, at ``time_s``; there is nothing behind it."""
    message = line(stream, f"q-{offset}", [time_s], end=end)
    return RecordBatch(
        partition, (Record(offset, message, START_US + round(time_s * 1e6)),), offset + 1, caught_up=True
    )


def assigned(*partitions: str) -> list[ScriptItem]:
    return [PartitionAssigned(partition) for partition in partitions]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


async def until(is_so: Callable[[], bool], clock: ManualClock) -> None:
    """Let the others take their turns, and time pass, until ``is_so``."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            clock.advance(0.001)
            await asyncio.sleep(0)


async def turns(clock: ManualClock, n: int = 300) -> None:
    for _ in range(n):
        clock.advance(0.001)
        await asyncio.sleep(0)


def decisions(run: Run, stream: str) -> list[str]:
    return [verdict.decision for verdict in run.verdicts if verdict.stream == stream]


def told(run: Run) -> list[Event]:
    return [event for event in run.messages("events") if event.kind == "stream_in_two_partitions"]


async def judged(source: GroupSource, clock: ManualClock, n: int, ledger: Ledger | None = None) -> Run:
    """Run until there are ``n`` verdicts and nothing is left to say."""

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: len(run.verdicts) >= n or task.done(), clock)
        await turns(clock)
        run.pipeline.request_stop()

    committer = ledger or Ledger()
    return await run_pipeline(source, SETTINGS, clock=clock, committer=committer, while_running=act)


async def test_a_first_verdict_waits_for_its_claim_and_later_ones_do_not(clock: ManualClock) -> None:
    gate = asyncio.Event()
    topic = ClaimTopic(gate.wait)
    gate.set()
    source = GroupSource(topic, assigned("p-0"))

    async def act(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.status.gauges().partitions == 1, clock)
        gate.clear()
        source.feed(at("p-0", 0, 0, "a"), at("p-0", 1, 1, "a"))
        await until(lambda: run.pipeline.status.gauges().waiting_verdicts == 2, clock)
        await turns(clock)
        assert not run.verdicts
        gate.set()
        await until(lambda: len(run.verdicts) == 2, clock)
        gate.clear()
        source.feed(at("p-0", 2, 2, "a"))
        await until(lambda: len(run.verdicts) == 3, clock)
        gate.set()
        run.pipeline.request_stop()

    run = await run_pipeline(source, SETTINGS, clock=clock, committer=Ledger(), while_running=act)
    assert decisions(run, "a") == ["normal"] * 3


async def test_a_stream_that_another_process_has_claimed_is_split_from_then_on(clock: ManualClock) -> None:
    topic = ClaimTopic()
    source = GroupSource(topic, [*assigned("p-0"), at("p-0", 0, 0, "a")])

    async def act(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(run.verdicts) == 1, clock)
        topic.append([Claim("a", "p-1", START_US)])
        await until(lambda: topic.n > 2, clock)
        source.feed(at("p-0", 1, 1, "a"), at("p-0", 2, 2, "b"))
        await until(lambda: len(run.verdicts) == 3, clock)
        run.pipeline.request_stop()

    run = await run_pipeline(source, SETTINGS, clock=clock, committer=Ledger(), while_running=act)
    assert decisions(run, "a") == ["normal", "unscorable"]
    assert decisions(run, "b") == ["normal"]
    assert not told(run), "the partition of the later claim tells"
    (answer,) = [claim for _, claim in topic.entries if claim.n_judged is not None]
    assert answer == Claim("a", "p-0", START_US, 0, 1)


async def test_the_event_counts_what_stands_and_a_restart_does_not_repeat_it(clock: ManualClock) -> None:
    topic, ledger = ClaimTopic(), Ledger()
    source = GroupSource(topic, [*assigned("p-0", "p-1"), at("p-0", 0, 0, "a"), at("p-0", 1, 1, "a")])

    async def act(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(run.verdicts) == 2, clock)
        source.feed(at("p-1", 0, 2, "a"), at("p-0", 2, 2, "a"))
        await until(lambda: len(run.verdicts) == 4 and bool(told(run)), clock)
        run.pipeline.request_stop()

    run = await run_pipeline(source, SETTINGS, clock=clock, committer=ledger, while_running=act)
    (event,) = told(run)
    assert (event.stream, event.partition) == ("a", "p-1")
    assert event.message == (
        "also in p-0: its sequences are unscorable from now on; verdicts committed before, which stand: 2; "
        "check the message key"
    )
    assert source.reader is not None
    await source.reader.close()
    for offset in (1, 2):
        if offset == 2:  # the mark in the progress holds, whatever the log says
            topic.entries = [(place, claim) for place, claim in topic.entries if not claim.told]
        again = GroupSource(topic, [*assigned("p-1", "p-0"), at("p-1", offset, 3, "a"), at("p-0", 2 + offset, 3, "a")])
        run = await judged(again, clock, 2, ledger)
        assert decisions(run, "a") == ["unscorable", "unscorable"]
        assert not told(run)
        assert again.reader is not None
        await again.reader.close()


async def test_a_mended_producer_recovers_after_closed_memory_and_another_split_is_told_again(
    clock: ManualClock,
) -> None:
    topic = ClaimTopic()
    source = GroupSource(topic, [*assigned("p-0", "p-1"), at("p-0", 0, 0, "a"), at("p-1", 0, 1, "a")])
    late_s = 1 + MEMORY_S

    async def act(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(told(run)) == 1, clock)
        source.feed(at("p-0", 1, late_s, "a"), at("p-1", 1, late_s, "b"))  # exactly closed_memory: not yet
        await until(lambda: len(run.verdicts) == 4, clock)
        assert decisions(run, "a")[-1] == "unscorable"
        source.feed(at("p-1", 2, late_s + 1, "b"), at("p-1", 3, late_s + 1, "b"))
        await until(lambda: topic.living("a") == {"p-0"}, clock)
        source.feed(at("p-0", 2, late_s + 2, "a"))
        await until(lambda: len(run.verdicts) == 7, clock)
        assert decisions(run, "a")[-1] == "normal"
        source.feed(at("p-1", 4, late_s + 3, "a"))
        await until(lambda: len(told(run)) == 2, clock)
        run.pipeline.request_stop()

    run = await run_pipeline(source, SETTINGS, clock=clock, committer=Ledger(), while_running=act)
    assert "which stand: " in told(run)[1].message
    assert [event.partition for event in told(run)] == ["p-1", "p-1"]


async def test_a_partition_that_gets_no_more_records_ends_its_claims_by_the_silence(clock: ManualClock) -> None:
    topic = ClaimTopic()
    silence = [RecordBatch("p-1", (), 1, caught_up=True) for _ in range(5)]
    source = GroupSource(topic, [*assigned("p-1"), at("p-1", 0, 0, "a")])

    async def act(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(run.verdicts) == 1, clock)
        assert topic.living("a") == {"p-1"}
        for batch in silence:
            source.feed(batch)
            await until(lambda: run.pipeline.status.gauges().lag is None, clock)
            await turns(clock)
            clock.advance(MEMORY_S / 2 + 1)
        await until(lambda: not topic.living("a"), clock)
        run.pipeline.request_stop()

    settings = settings_of(
        sequences={"end": ["marker"], "max_duration": "50s", "closed_memory": f"{MEMORY_S}s"},
        run={"commit_interval": "1ms", "outage_after": "1h"},
    )
    await run_pipeline(source, settings, clock=clock, committer=Ledger(), while_running=act)


async def test_the_claim_of_a_former_owner_on_an_unknown_stream_ends_after_closed_memory(clock: ManualClock) -> None:
    topic = ClaimTopic()
    topic.append([Claim("a", "p-0", START_US), Claim("a", "p-1", START_US), Claim("b", "p-1", START_US)])
    script = [*assigned("p-0", "p-1"), at("p-0", 0, MEMORY_S, "a"), at("p-1", 0, MEMORY_S, "b")]
    source = GroupSource(topic, script)

    async def act(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(run.verdicts) == 2, clock)
        assert decisions(run, "a") == ["unscorable"], "p-1 may still come to records of it"
        source.feed(at("p-1", 1, MEMORY_S + 1, "b"))
        await until(lambda: topic.living("a") == {"p-0"}, clock)
        source.feed(at("p-0", 1, MEMORY_S + 2, "a"))
        await until(lambda: len(run.verdicts) == 4, clock)
        run.pipeline.request_stop()

    run = await run_pipeline(source, SETTINGS, clock=clock, committer=Ledger(), while_running=act)
    assert decisions(run, "a") == ["unscorable", "normal"]
    assert topic.living("b") == {"p-1"}


async def test_a_log_that_fails_ends_the_run_and_commits_nothing_that_waited(clock: ManualClock) -> None:
    topic = ClaimTopic()

    class Refused(ClaimReader):
        def write(self, claims: object) -> None:
            self.refused = True
            self._on_news()

        def take(self) -> list[tuple[int, Claim]]:
            if getattr(self, "refused", False):
                raise OutputError("not allowed of user w: grant WRITE and DESCRIBE on topic g.claims")
            return []

    class RefusedSource(GroupSource):
        def claims(self, on_news: Callable[[], None]) -> ClaimLog:
            return Refused(self.topic, on_news)

    source, ledger = RefusedSource(topic, [*assigned("p-0"), at("p-0", 0, 0, "a")]), Ledger()
    with pytest.raises(OutputError, match="grant WRITE"):
        await judged(source, clock, 1, ledger)
    role: Role = "verdicts"
    assert not any(record.role == role for _, outputs in ledger.commits for record in outputs)


async def test_the_reason_names_the_key(clock: ManualClock) -> None:
    topic = ClaimTopic()
    topic.append([Claim("a", "p-1", START_US)])
    run = await judged(GroupSource(topic, [*assigned("p-0"), at("p-0", 0, 0, "a")]), clock, 1)
    assert [verdict.detail for verdict in run.verdicts] == [SPLIT]
