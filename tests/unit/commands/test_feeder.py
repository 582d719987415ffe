"""Feeding a plant: each message when it is due, nothing before, the truth before the verdict; a stop at any time."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from streamad.commands.simulate.feed import PlantFeeder
from streamad.errors import OutputError
from streamad.plugins import ConnectorContext, connect_feed
from streamad.ports import Feed, FeedRecord
from streamad.simulation.messages import PlantMessage, PlantTime, plant_messages
from streamad.testing import ManualClock
from streamad_connectors import memory


class Plant:
    """A feeder into memory with a clock of the test's own."""

    def __init__(self, labels: Path | None = None, *, rate: float | None = 600.0, feed: Feed | None = None) -> None:
        self.clock = ManualClock()
        context = ConnectorContext((), self.clock)
        start_us = self.clock.now_us()
        self.messages = list(plant_messages(PlantTime(start_us), n_batches=2, fault_share=1.0))
        self.feeder = PlantFeeder(
            feed or connect_feed("memory:feeding", {}, context),
            iter(self.messages),
            self.clock,
            start_us=start_us,
            rate=rate,
            labels=labels,
        )

    async def idle(self, task: asyncio.Task[object]) -> None:
        """Wait until the feeder sleeps or is done."""
        while not task.done() and self.clock.n_sleepers == 0:  # noqa: ASYNC110 - a thread may be at work
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    memory.clear("feeding")
    yield
    memory.clear("feeding")


async def test_each_message_is_sent_when_it_is_due_and_not_before() -> None:
    plant = Plant()  # ten minutes of the plant's in one second
    task = asyncio.ensure_future(plant.feeder.run())
    sent = []
    for _ in range(4):
        await plant.idle(task)
        sent.append(len(memory.records("feeding")))
        plant.clock.advance(0.999)
        await asyncio.sleep(0.01)
        assert len(memory.records("feeding")) == sent[-1]
        plant.clock.advance(0.001)
    assert sent == [1, 2, 3, 4]
    plant.feeder.stop()
    assert (await task).interrupted


async def test_record_times_are_those_of_the_last_sample_in_whole_milliseconds_never_before_it() -> None:
    plant = Plant(rate=None)
    await plant.feeder.run()
    records = memory.records("feeding")
    assert len(records) == len(plant.messages)
    for record, message in zip(records, plant.messages, strict=True):
        assert record.timestamp_us is not None
        assert 0 <= record.timestamp_us - message.time_us < 1000
        assert record.timestamp_us % 1000 == 0
        assert (record.key, record.value) == (message.stream.encode(), message.text.encode())


async def test_a_delayed_feeder_catches_up_and_reports_it() -> None:
    plant = Plant()
    task = asyncio.ensure_future(plant.feeder.run())
    await plant.idle(task)
    plant.clock.advance(10.5)
    await plant.idle(task)
    assert len(memory.records("feeding")) == 11
    assert plant.feeder.report.behind_us == pytest.approx(9.5e6, abs=1e5)
    plant.feeder.stop()
    await task


async def test_a_limited_time_ends_it_also_between_two_messages() -> None:
    plant = Plant()
    task = asyncio.ensure_future(plant.feeder.run(for_us=2_500_000))
    for _ in range(3):
        await plant.idle(task)
        plant.clock.advance(1.0)
    report = await task
    assert (report.messages, report.interrupted) == (3, False)


async def test_the_report_counts_what_was_fed() -> None:
    plant = Plant(rate=None)
    report = (await plant.feeder.run()).as_dict()
    assert (report["batches"], report["faulty"], report["interrupted"]) == (2, 2, False)
    assert report["samples"] == report["messages"] == len(plant.messages)
    assert report["first_time"].timestamp() * 1e6 == plant.messages[0].time_us
    assert report["last_time"].timestamp() * 1e6 == plant.messages[-1].time_us


async def test_the_truth_about_a_batch_is_there_before_its_end_is_sent(tmp_path: Path) -> None:
    labels = tmp_path / "new" / "labels.csv"
    missing: list[str] = []

    class Watching:
        options_model = memory.MemoryOptions

        async def send(self, records: Sequence[FeedRecord]) -> None:
            known = labels.read_text() if labels.exists() else ""
            ended = [m.batch.sequence for m in plant.messages if m.batch and m.text.encode() in _values(records)]
            missing.extend(sequence for sequence in ended if sequence not in known)

        async def flush(self) -> None: ...
        async def close(self) -> None: ...

    plant = Plant(labels, rate=None, feed=Watching())
    await plant.feeder.run()
    with labels.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ended = [message.batch for message in plant.messages if message.batch is not None]
    assert [(row["sequence"], row["fault"]) for row in rows] == [(batch.sequence, batch.fault) for batch in ended]
    assert missing == []


def _values(records: Sequence[FeedRecord]) -> set[bytes]:
    return {record.value for record in records}


async def test_labels_of_a_second_feed_are_added_under_the_same_header(tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    for _ in range(2):
        await Plant(labels, rate=None).feeder.run()
    lines = labels.read_text().splitlines()
    assert len(lines) == 5
    assert lines.count("stream,sequence,label,fault,fault_channel,onset,severity") == 1


class Broken:
    options_model = memory.MemoryOptions

    async def send(self, records: Sequence[FeedRecord]) -> None:
        raise OutputError("the broker is away")

    async def flush(self) -> None: ...
    async def close(self) -> None: ...


async def test_an_error_of_the_feed_ends_it_and_nothing_unsent_is_counted() -> None:
    plant = Plant(feed=Broken())
    with pytest.raises(OutputError, match=r"away$"):
        await plant.feeder.run()
    assert plant.feeder.report.messages == 0


async def test_samples_far_ahead_of_the_clock_are_reported() -> None:
    plant = Plant(rate=None, feed=Broken())
    with pytest.raises(OutputError, match=r"away; these samples lie 2[0-9] h ahead of the clock.*--start"):
        await plant.feeder.run()


async def test_a_stop_before_the_beginning_sends_nothing() -> None:
    plant = Plant()
    plant.feeder.stop()
    assert (await plant.feeder.run()).messages == 0


def test_a_feed_holds_but_a_few_messages_of_a_plant_without_an_end() -> None:
    endless: Iterator[PlantMessage] = plant_messages(PlantTime(0), n_streams=2)
    clock = ManualClock()
    feeder = PlantFeeder(
        connect_feed("memory:feeding", {}, ConnectorContext((), clock)), endless, clock, start_us=0, rate=1.0
    )

    async def feed() -> None:
        task = asyncio.ensure_future(feeder.run())
        while clock.n_sleepers == 0:  # noqa: ASYNC110 - a thread may be at work
            await asyncio.sleep(0.001)
        feeder.stop()
        await task

    asyncio.run(feed())
    assert len(memory.records("feeding")) == 1
