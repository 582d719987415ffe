"""Pacing: records come when they are due on an injected clock, and are cut as at full speed; reading for training."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from streamad.runtime.recordings import PacedSource, read_sequences
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.testing import ListSource, ManualClock
from streamad.types import PartitionAssigned, PartitionEnded, Record, RecordBatch
from tests.support.runtime.pipeline import (
    START_US,
    line,
    messy_recordings,
    records_of,
    run_pipeline,
    settings_of,
    steps,
)


async def arrivals(
    partitions: dict[str, list[Record]], speed: float, until_s: float, settings: Settings | None = None
) -> list[tuple[float, str, int]]:
    """When each record is delivered: (second, partition, offset); the clock moves in steps of 0.1 s."""
    clock = ManualClock(START_US)
    source = PacedSource(ListSource.of(partitions), speed, clock, settings or settings_of())
    found: list[tuple[float, str, int]] = []

    async def read() -> None:
        async for event in source.batches():
            if isinstance(event, PartitionAssigned):
                await source.seek(event.partition, None)
            elif isinstance(event, RecordBatch):
                now_s = round(clock.monotonic_us() / 1e6, 6)
                found.extend((now_s, event.partition, record.offset) for record in event.records)

    task = asyncio.create_task(read())
    await steps()
    for _ in range(round(until_s * 10)):
        clock.advance(0.1)
        await steps(10)
    assert task.done()
    await source.close()
    return found


def at(times_s: Sequence[float], timestamps: bool) -> list[Record]:
    messages = [line("a", "1", [time_s - 0.5, time_s]) for time_s in times_s]
    return records_of(messages, timestamps_s=times_s if timestamps else None)


@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize(("speed", "due_s"), [(1.0, [0, 2, 2.5, 10]), (10.0, [0, 0.2, 0.3, 1.0]), (0.5, [0, 4, 5, 20])])
async def test_a_record_is_due_as_long_after_the_first_as_in_its_time(
    speed: float, due_s: list[float], timestamps: bool
) -> None:
    found = await arrivals({"p": at([5.0, 7.0, 7.5, 15.0], timestamps)}, speed, 25)
    assert [when for when, _, _ in found] == pytest.approx(due_s, abs=0.0501)
    assert [offset for _, _, offset in found] == [0, 1, 2, 3]


async def test_an_unreadable_or_an_older_record_is_due_at_once() -> None:
    records = at([5.0, 6.0, 5.5], False)
    broken = [records[0], Record(1, b"{"), Record(2, records[1].value), Record(3, records[2].value), Record(4, b"]")]
    found = await arrivals({"p": broken}, 1.0, 5)
    assert [when for when, _, _ in found] == [0, 0, 1, 1, 1]


async def test_a_record_time_that_no_calendar_has_delays_nothing() -> None:
    first, second, third = at([5.0, 6.0, 7.0], True)
    wrong = Record(1, second.value, 1 << 62)
    found = await arrivals({"p": [first, wrong, third]}, 1.0, 5)
    assert [when for when, _, _ in found] == pytest.approx([0, 1, 2], abs=0.0501)


async def test_partitions_that_alternate_keep_a_pace_of_their_own() -> None:
    messages = records_of([line("a", "1", [float(i)]) for i in range(3)])
    later = records_of([line("b", "1", [500.0 + i]) for i in range(3)])
    clock_s = await arrivals({"p": messages, "q": later}, 1.0, 10)
    assert max(when for when, _, _ in clock_s) <= 4


@pytest.mark.parametrize(("ids", "sequences"), [(("1", "2"), {}), ((None, None), {"end": ["restart"]})])
async def test_relative_times_count_from_each_sequence_of_its_stream(
    ids: tuple[str | None, ...], sequences: dict[str, list[str]]
) -> None:
    def relative(sequence: str | None, second: float) -> bytes:
        content = {"stream": "a", "sequence": sequence, "times": [second], "values": [[1.0, 2.0, 3.0]]}
        return json.dumps(content).encode()

    messages = [relative(sequence, second) for sequence in ids for second in (0.0, 1.0, 2.0)]
    settings = settings_of(decode={"time": "relative"}, sequences=sequences)
    found = await arrivals({"p": records_of(messages)}, 1.0, 10, settings)
    assert [when for when, _, _ in found] == [0, 1, 2, 2, 3, 4]


async def test_a_paced_replay_cuts_and_counts_as_one_at_full_speed() -> None:
    settings = settings_of(sequences={"allowed_lateness": "3s"})
    partitions = {"p": records_of(messy_recordings(8, streams=["a", "b"]))}
    full = await run_pipeline(ListSource.of(partitions), settings)
    clock = ManualClock(START_US)
    paced = PacedSource(ListSource.of(partitions), 60.0, clock, settings)

    async def let_time_pass(_: Any, task: asyncio.Task[None]) -> None:
        while not task.done():
            clock.advance(0.02)
            await steps(5)

    slow = await run_pipeline(paced, settings, clock=clock, while_running=let_time_pass)
    assert clock.monotonic_us() > 500_000
    assert [verdict.verdict_id for verdict in slow.verdicts] == [verdict.verdict_id for verdict in full.verdicts]
    assert slow.pipeline.counters.as_dict() | {"commits": 0} == full.pipeline.counters.as_dict() | {"commits": 0}


async def test_a_stop_does_not_wait_for_the_next_record() -> None:
    clock = ManualClock(START_US)
    paced = PacedSource(ListSource.of({"p": at([0.5, 1e3], True)}), 1.0, clock, settings_of())

    async def stop(run: Any, task: asyncio.Task[None]) -> None:
        await steps()
        run.pipeline.request_stop()
        await steps()
        assert task.done()

    await run_pipeline(paced, clock=clock, while_running=stop)


async def test_sequences_for_training_are_those_that_a_run_judges() -> None:
    settings = settings_of(sequences={"allowed_lateness": "3s"})
    partitions = {"p": records_of(messy_recordings(8, streams=["a", "b"])), "q": records_of([line("c", "1", [0, 1])])}
    run = await run_pipeline(ListSource.of(partitions), settings)
    counters = Counters()
    source = ListSource.of(partitions)
    read = [sequence async for sequence in read_sequences(settings, source, ManualClock(START_US), counters)]
    assert sorted((s.stream, s.sequence, s.n_samples, s.reason) for s in read) == sorted(
        (v.stream, v.sequence, v.n_samples, v.reason) for v in run.verdicts
    )
    assert counters.samples == (
        counters.sequence_samples + counters.merged + counters.late_samples + counters.dead_letters["time_jump"]
    )


async def test_halves_of_sequences_are_distinguished_from_whole_ones() -> None:
    messages = records_of([line("a", name, [i * 2.0, i * 2 + 1], end=True) for i, name in enumerate("123")])
    batch = RecordBatch("p", tuple(messages), 3)
    found = {}
    for seen in (True, False):
        source = ListSource([PartitionAssigned("p", seen_from_start=seen), batch, PartitionEnded("p")])
        read = read_sequences(settings_of(), source, ManualClock(START_US), Counters())
        found[seen] = [(sequence.sequence, sequence.partial) async for sequence in read]
    assert found[True] == [("1", False), ("2", False), ("3", False)]
    assert found[False] == [("1", True), ("2", False), ("3", False)]


async def test_reading_reports_the_share_done() -> None:
    messages = records_of([line("a", "1", [float(i)]) for i in range(4)])
    batches = [RecordBatch("p", tuple(messages[i : i + 2]), i + 2, end_offset=4) for i in (0, 2)]
    source = ListSource([PartitionAssigned("p"), *batches, PartitionEnded("p")])
    shares: list[float | None] = []
    counters = Counters()
    async for _ in read_sequences(
        settings_of(), source, ManualClock(), counters, lambda _, share: shares.append(share)
    ):
        pass
    assert counters.records == 4
    assert shares == [None, 0.5, 1.0, 1.0]
