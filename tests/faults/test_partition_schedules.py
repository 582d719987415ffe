"""Random schedules of workers that share partitions without a broker: whatever happens in between, the same outputs."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from streamad.errors import PartitionLost
from streamad.messages import LateRecord, OutputRecord, Role, Verdict
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource
from streamad.types import (
    PartitionAssigned,
    Record,
    RecordBatch,
    SourceEvent,
    SourceNotice,
)
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import (
    Run,
    TickingClock,
    line,
    messy_recordings,
    records_of,
    run_pipeline,
    settings_of,
    steps,
    until,
)
from tests.support.runtime.schedules import (
    RUN,
    TICK_S,
    Broker,
    Schedule,
)
from tests.support.waiting import LIMIT_S


def partitions_of(seed: int, *, is_messy: bool) -> dict[str, list[Record]]:
    """Three partitions; the last records move each partition's clock on, so that all is cut by the records' times.

    Where they are not messy each record is a sequence, so that nothing is open between two records.
    """
    found = {}
    for number in range(3):
        if is_messy:
            messages = messy_recordings(100 * seed + number, streams=[f"{number}-a", f"{number}-b"], sequences=5)
        else:
            messages = [line(f"{number}-a", f"a-{i}", [10.0 * i, 10.0 * i + 1], end=True) for i in range(40)]
        times_s = [0.1 * i for i in range(len(messages))]
        for name, time_s in (("tick", 1e4), ("tock", 2e4)):
            messages.append(line(f"{name}-{number}", None, [time_s, time_s + 1], end=True))
            times_s.append(time_s)
        found[f"in-{number}"] = records_of(messages, timestamps_s=times_s)
    return found


async def calm(partitions: Mapping[str, Sequence[Record]], settings: Settings) -> list[OutputRecord]:
    """What one undisturbed run writes; as on a broker, no partition ends."""
    script: list[PartitionAssigned | RecordBatch] = []
    for name, records in partitions.items():
        script += [PartitionAssigned(name), RecordBatch(name, tuple(records), len(records))]
    run = await run_pipeline(ListSource(script), settings, clock=TickingClock(TICK_S))
    return [record for role, sink in run.sinks.items() for record in sink.records if role != "events"]


def said(outputs: Iterable[OutputRecord]) -> Counter[tuple[Role, str]]:
    return Counter((record.role, repr(record.message).split("created_at")[0]) for record in outputs)


def orders(outputs: Iterable[OutputRecord]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in outputs:
        if record.role == "verdicts":
            found.setdefault(record.key, []).append(repr(record.message).split("created_at")[0])
    return found


@pytest.mark.parametrize("is_messy", [True, False])
@pytest.mark.parametrize("seed", range(20))
async def test_any_schedule_of_rebalances_writes_the_outputs_of_an_undisturbed_run(seed: int, is_messy: bool) -> None:
    partitions = partitions_of(seed, is_messy=is_messy)
    settings = settings_of(sequences={"allowed_lateness": "3s" if is_messy else 0}, run=RUN)
    expected = await calm(partitions, settings)
    rng = random.Random(seed)
    broker = Broker(partitions, rng)
    broker.share_failing = rng.choice([0.0, 0.1, 0.4])
    await Schedule(broker, rng, settings, 10 if is_messy else 40).run(60, len(expected))
    lost, more = said(expected) - said(broker.outputs), said(broker.outputs) - said(expected)
    assert not lost, lost
    assert not more, more
    assert orders(broker.outputs) == orders(expected)


def long_ones(seed: int) -> dict[str, list[Record]]:
    """Three partitions of long sequences, no time twice: each of their samples can be told from the others."""
    rng = random.Random(seed)
    found = {}
    for number in range(3):
        lanes = [
            [
                line(f"{number}-{lane}", f"{i}", [100.0 * i + 2 * part, 100.0 * i + 2 * part + 1], end=part == 7)
                for i in range(4)
                for part in range(8)
            ]
            for lane in range(3)
        ]
        messages = []
        while any(lanes):
            messages.append(rng.choice([lane for lane in lanes if lane]).pop(0))
        times_s = [0.1 * i for i in range(len(messages))]
        messages += [line(f"tick-{number}", "t", [1e6 + i], end=True) for i in range(2)]
        found[f"in-{number}"] = records_of(messages, timestamps_s=[*times_s, 1e4, 2e4])
    return found


ENDS = {  # settings of the sequences, records published, length of a tick
    "gap": ({"end": ["marker", "gap"], "gap": "2s", "allowed_lateness": "500ms"}, 60, 0.05),
    "memory": ({"end": ["marker", "change"], "max_buffered_bytes": 3_000}, 40, TICK_S),
}


@pytest.mark.parametrize(("reason", "seed"), [("gap", n) for n in range(10)] + [("memory", n) for n in range(8)])
async def test_ends_that_no_record_caused_lose_and_repeat_no_sample(reason: str, seed: int) -> None:
    """The moment decides where the clock or the memory limit cuts; each sample is in one verdict or late, once."""
    sequences, publish_every, tick_s = ENDS[reason]
    rng = random.Random(seed)
    broker = Broker(long_ones(seed), rng)
    broker.share_failing = rng.choice([0.0, 0.1, 0.4])
    schedule = Schedule(broker, rng, settings_of(sequences=sequences, run=RUN), publish_every, tick_s=tick_s)
    await schedule.run(60, 16 * 4 * 3 * 3, n_samples_in)
    told = samples_of(broker.outputs)
    assert len(told) == 4 * 3 * 3
    assert set(told.values()) == {16}
    verdicts = [output.message for output in broker.outputs if isinstance(output.message, Verdict)]
    assert reason in {verdict.reason for verdict in verdicts}


def samples_of(outputs: Iterable[OutputRecord]) -> Counter[tuple[str, str | None]]:
    """Count the samples of each sequence that were judged or told to be late, less those of the last records."""
    found = Counter[tuple[str, str | None]]()
    for output in outputs:
        message = output.message
        if isinstance(message, Verdict) and not message.stream.startswith("tick"):
            found[message.stream, message.sequence] += message.n_samples
        elif isinstance(message, LateRecord) and not message.stream.startswith("tick"):
            found[message.stream, message.sequence] += len(message.times)
    return found


def n_samples_in(outputs: Sequence[OutputRecord]) -> int:
    return samples_of(outputs).total()


# --- interleavings that were found to break it ---


def whole(number: int) -> bytes:
    return line("a", f"a-{number}", [10.0 * number + i for i in range(3)], end=True)


def batch(first: int, n: int) -> RecordBatch:
    records = tuple(Record(first + i, whole(first + i)) for i in range(n))
    return RecordBatch("p", records, first + n, True, first)


class Scripted(ListSource):
    """Delivers its script as it is: a test says what comes, before and after each seek."""

    def __init__(self, *script: SourceEvent) -> None:
        super().__init__(script, endless=True)
        self.sought: list[int | None] = []
        self.begin = 0

    async def seek(self, partition: str, offset: int | None) -> int:
        self.sought.append(offset)
        self._next[partition] = begin = self.begin if offset is None else offset
        self._changed.set()
        return begin

    def _rest(self, event: SourceEvent) -> SourceEvent:
        return event


async def run_to(
    n_verdicts: int,
    source: Scripted,
    *,
    has_happened: bool,
    when_lost: Callable[[], None] = lambda: None,
) -> Run:
    """Run until the first commit has failed, do ``when_lost``, let it be restored, and wait for the verdicts."""
    ledger = Ledger("restore p", failing={1: (PartitionLost("p", "in doubt"), has_happened)})
    may_restore = ledger.gates["restore p"]
    may_restore.set()

    async def act(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: ledger.calls == ["restore p"])
        may_restore.clear()
        await until(lambda: ledger.calls.count("restore p") == 2)
        when_lost()
        await steps()
        may_restore.set()
        await until(lambda: len(run.verdicts) == n_verdicts, LIMIT_S)
        await source.close()

    return await run_pipeline(source, committer=ledger, while_running=act)


@pytest.mark.parametrize("n_again", [2, 3])
@pytest.mark.parametrize("n_before", [1, 2, 3])
async def test_what_was_read_on_from_where_a_lost_partition_begins_again(n_before: int, n_again: int) -> None:
    """The commit in doubt had happened, up to what was read; what came next was under way already at the seek."""

    class Late(Scripted):
        async def seek(self, partition: str, offset: int | None) -> int:
            begin = await super().seek(partition, offset)
            if len(self.sought) == 2:
                self.feed(batch(1, n_before), batch(1, n_again), batch(1 + n_again, 3))
            return begin

    source = Late(PartitionAssigned("p"), batch(0, 1))
    run = await run_to(4 + n_again, source, has_happened=True)
    assert source.sought == [None, 1]
    assert [verdict.sequence for verdict in run.verdicts] == [f"a-{i}" for i in range(4 + n_again)]


async def test_what_comes_of_a_lost_partition_before_it_is_sought_is_not_kept() -> None:
    """A slow restore would pile it up in memory, and all of it comes again."""
    source = Scripted(PartitionAssigned("p"), batch(0, 1))

    def read_on() -> None:
        source.feed(batch(1, 3), batch(4, 3))

    run = await run_to(1, source, has_happened=True, when_lost=read_on)
    assert [verdict.sequence for verdict in run.verdicts] == ["a-0"]
    assert run.pipeline.counters.records == 1


async def test_a_partition_lost_before_its_first_commit_begins_where_it_began() -> None:
    """At "latest" the end has moved since: what came in between was read once, so it is read again."""
    source = Scripted(PartitionAssigned("p"), batch(5, 1))
    source.begin = 5

    def move_on() -> None:
        source.begin = 9

    feeding = asyncio.create_task(until(lambda: len(source.sought) == 2))
    feeding.add_done_callback(lambda _: source.feed(batch(5, 1)))
    run = await run_to(1, source, has_happened=False, when_lost=move_on)
    await feeding
    assert source.sought == [None, 5]
    assert [verdict.sequence for verdict in run.verdicts] == ["a-5"]


@pytest.mark.parametrize("has_happened", [True, False])
async def test_an_event_survives_a_failed_commit(has_happened: bool) -> None:
    """Once more if in doubt, never less than once."""
    source = Scripted(PartitionAssigned("p"), SourceNotice("low_watermark_old", "old", "p"), batch(0, 1))
    feeding = asyncio.create_task(until(lambda: len(source.sought) == 2))
    feeding.add_done_callback(lambda _: source.feed(batch(0, 1) if not has_happened else batch(1, 1)))
    run = await run_to(2 if has_happened else 1, source, has_happened=has_happened)
    await feeding
    assert len(run.messages("events")) == (2 if has_happened else 1)
