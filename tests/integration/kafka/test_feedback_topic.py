"""Feedback over real topics: made as they should be, heard once by a group; a running monitor applies it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import check_parts
from streamad.errors import OutputError, StoreError
from streamad.learn.process.feedback_reader import FeedbackReader, Unread
from streamad.learn.registry import hot_swap
from streamad.messages import Feedback
from streamad.outputs.marks.place import send_feedback
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.types import from_us
from tests.support.kafka.broker import Broker, Message, create_topics, produce, read_committed, unique_name
from tests.support.kafka.child import PLUGINS
from tests.support.kafka.topics import TopicsPlant, errors_of, texts
from tests.support.learning.stored import LEARNING, SHARES, add, another, identity, plant_of, sequence, store_of, train
from tests.support.runtime.cli import started, until_line
from tests.support.waiting import LIMIT_S


class Place:
    """A plant with a topic of feedback, all names unique."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = unique_name("plant")
        self.feedback = f"{self.name}.feedback"
        self.settings = Settings(
            name=self.name,
            channels=[{"name": "temp"}],  # type: ignore[arg-type]  # as a config says it
            source={"url": f"kafka://{bootstrap}/{self.name}.in"},  # type: ignore[arg-type]
            learning={"feedback": f"kafka:///{self.feedback}"},  # type: ignore[arg-type]
        )
        self.plant = Plant(self.settings, Path(), SystemClock())

    def said(self, alert_id: str, **changes: Any) -> Feedback:
        now = from_us(self.plant.clock.now_us()) - timedelta(seconds=1)
        return Feedback(**{"alert_id": alert_id, "judgement": "false_alarm", "created_at": now, **changes})


@pytest.fixture
async def place(kafka: Broker) -> Place:
    place = Place(kafka.bootstrap)
    await create_topics(kafka.bootstrap, {place.feedback: 2})
    return place


@asynccontextmanager
async def running(reader: FeedbackReader) -> AsyncIterator[None]:
    task = asyncio.create_task(reader.run())
    try:
        yield
    finally:
        await reader.close()
        await task


class Ear:
    """Keeps what a worker hears and is told."""

    def __init__(self) -> None:
        self.heard: list[Feedback] = []
        self.senders: list[str | None] = []
        self.told: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    async def hear(self, feedback: Feedback, sender: str | None) -> None:
        self.heard.append(feedback)
        self.senders.append(sender)
        self.changed.set()

    def emit(self, kind: str, message: str) -> None:
        self.told.append((kind, message))
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


# --- topics ---


async def test_topics_create_makes_them_and_check_agrees(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics["feedback"] = f"{plant.name}.feedback"
    made = await plant.create(partitions=3)
    (feedback,) = texts(made, f"{plant.name}.feedback", "ok")
    assert feedback.startswith("made: 1 partition, 1 copy, cleanup.policy=delete, retention.ms=7776000000")
    found = await plant.check()
    assert errors_of(found) == []
    assert texts(found, "(feedback)", "ok") == [f"allowed to read group streamad.{plant.name}.feedback"]
    assert not [finding for finding in found if finding.level == "warning" and plant.name in finding.topic]


async def test_a_topic_for_feedback_and_something_else_is_an_error(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics["feedback"] = f"{plant.name}.alerts"
    assert errors_of(await plant.create(dry_run=True)) == [
        (f"{plant.name}.alerts", "is the place of marks and of sinks.alerts at once: "
         "give each a topic of its own"),
    ]  # fmt: skip


async def test_the_topic_of_the_status_is_made_compacted_and_that_is_no_problem(kafka: Broker) -> None:
    plant = TopicsPlant(kafka.bootstrap)
    plant.sink_topics["status"] = f"{plant.name}.s"
    await plant.create(2)
    found = [finding for finding in await plant.check() if finding.topic == f"{plant.name}.s"]
    assert [finding.level for finding in found] == ["ok"]


def test_a_wrong_place_is_a_problem_of_the_config(kafka: Broker) -> None:
    place = Place(kafka.bootstrap)
    settings = place.settings.model_copy(update={"marks": "kafka://no-port/f"})
    problems = {problem.path: problem.message for problem in check_parts(Plant(settings, Path(), SystemClock()))}
    assert "lacks its port" in next(text for text in problems.values() if "no-port" in text)


# --- feedback ---


async def test_feedback_has_its_alert_id_as_key_and_its_type_as_header(place: Place) -> None:
    sent = [place.said("a1", note="Filter getauscht, ä"), place.said("a2", judgement="veto", model="m.B")]
    await send_feedback(place.plant, sent)
    records = {record.key: record for record in await read_committed(place.bootstrap, place.feedback)}
    assert set(records) == {b"a1", b"a2"}
    for feedback in sent:
        record = records[feedback.alert_id.encode()]
        assert msgspec.json.decode(record.value or b"", type=Feedback) == feedback
        assert dict(record.headers)["streamad-message"] == b"feedback"


async def test_feedback_from_before_the_first_worker_is_read_and_foreign_messages_are_skipped(place: Place) -> None:
    await send_feedback(place.plant, [place.said("a1")])
    foreign = [
        Message(b"not json", b"x"),
        Message(None, b"x"),  # a tombstone
        Message(msgspec.json.encode(place.said("a9")).replace(b'"feedback"', b'"alert"', 1), b"a9"),
        Message(msgspec.json.encode(place.said("a9", note="x" * 100_000)), b"a9"),
    ]
    await produce(place.bootstrap, place.feedback, foreign)
    bare = msgspec.json.encode(place.said("a2"))  # any producer's: no headers
    await produce(place.bootstrap, place.feedback, [Message(bare, b"a2")])
    ear = Ear()
    reader = FeedbackReader(place.plant, ear.hear, ear.emit)
    async with running(reader):
        await ear.until(lambda: len(ear.heard) == 2 and bool(ear.told))
    assert {feedback.alert_id for feedback in ear.heard} == {"a1", "a2"}
    assert [kind for kind, _ in ear.told] == ["feedback_malformed"]
    assert f"{place.feedback}-" in ear.told[0][1]


async def test_the_sender_is_whom_the_header_names_that_the_config_trusts(place: Place) -> None:
    """A proxy that stamps headers is the test itself; without the setting the same header is nothing."""
    word = msgspec.json.encode(place.said("a1", by="chief"))
    await produce(place.bootstrap, place.feedback, [Message(word, b"a1", headers=(("principal", b"User:kim"),))])
    learning = {"feedback": f"kafka:///{place.feedback}", "feedback_principal": "principal"}
    stamped = Settings(**{**place.settings.model_dump(exclude_unset=True), "learning": learning, "name": "stamped"})
    for settings, sender in ((place.settings, None), (stamped, "User:kim")):
        ear = Ear()
        async with running(FeedbackReader(Plant(settings, Path(), SystemClock()), ear.hear, ear.emit)):
            await ear.until(lambda ear=ear: len(ear.heard) == 1)  # type: ignore[misc]
        assert ear.senders == [sender]


async def test_the_workers_of_a_plant_share_the_messages_and_go_on_after_a_restart(place: Place) -> None:
    ears = [Ear(), Ear()]
    n = 0
    for _ in range(2):
        async with AsyncExitStack() as stack:
            for ear in ears:
                reader = FeedbackReader(place.plant, ear.hear, ear.emit)
                await stack.enter_async_context(running(reader))
            await send_feedback(place.plant, [place.said(f"a{n + i}") for i in range(10)])
            n += 10
            async with asyncio.timeout(LIMIT_S):
                while len(ears[0].heard) + len(ears[1].heard) < n:  # noqa: ASYNC110 - two ears, one condition
                    await asyncio.sleep(0.01)
    heard = [feedback.alert_id for ear in ears for feedback in ear.heard]
    assert set(heard) == {f"a{i}" for i in range(n)}
    assert len(heard) < 1.5 * n  # at least once; but not each by both


async def test_a_missing_topic_is_reported_once_and_a_sender_fails_in_one_line(kafka: Broker) -> None:
    place, ear = Place(kafka.bootstrap), Ear()
    async with running(FeedbackReader(place.plant, ear.hear, ear.emit)):
        await ear.until(lambda: len(ear.told) == 1)
    assert ear.told[0][0] == "feedback_unreadable"
    with pytest.raises(OutputError) as caught:
        await send_feedback(place.plant, [place.said("a1")])
    assert place.feedback in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("is_begun", [False, True])
async def test_what_waits_in_the_topic_is_read_before_the_end(place: Place, is_begun: bool) -> None:
    await send_feedback(place.plant, [place.said(f"a{i}") for i in range(30)])
    await produce_in_transactions(place, place.said("b1"), place.said("aborted"))  # the ends hold no message
    ear = Ear()
    reader = FeedbackReader(place.plant, ear.hear, ear.emit)
    async with running(reader):
        await (ear.until(lambda: len(ear.heard) >= 3) if is_begun else asyncio.sleep(0))
        assert await reader.read_present(asyncio.Event(), LIMIT_S) is None
    assert sorted(feedback.alert_id for feedback in ear.heard) == sorted([*(f"a{i}" for i in range(30)), "b1"])


async def test_what_a_failing_store_leaves_in_the_topic_is_counted_and_comes_in_the_next_run(place: Place) -> None:
    await send_feedback(place.plant, [place.said(f"a{i}") for i in range(30)])
    ear = Ear()

    async def fails_later(feedback: Feedback, sender: str | None) -> None:
        if len(ear.heard) == 10:
            raise StoreError("the disk is full")
        await ear.hear(feedback, sender)

    reader = FeedbackReader(place.plant, fails_later, ear.emit)
    async with running(reader):
        await asyncio.sleep(0)
        assert await reader.read_present(asyncio.Event(), LIMIT_S) == Unread(20, "the disk is full")
    reader = FeedbackReader(place.plant, ear.hear, ear.emit)
    async with running(reader):
        await asyncio.sleep(0)
        assert await reader.read_present(asyncio.Event(), LIMIT_S) is None
    assert {feedback.alert_id for feedback in ear.heard} == {f"a{i}" for i in range(30)}


async def test_an_empty_topic_ends_at_once(place: Place) -> None:
    ear = Ear()
    reader = FeedbackReader(place.plant, ear.hear, ear.emit)
    async with running(reader):
        await asyncio.sleep(0)
        assert await reader.read_present(asyncio.Event(), LIMIT_S) is None
    assert ear.heard == []


async def produce_in_transactions(place: Place, committed: Feedback, aborted: Feedback) -> None:
    """Send a message in a transaction, and one to each partition in a transaction that is aborted."""
    producer = AIOKafkaProducer(bootstrap_servers=place.bootstrap, transactional_id=place.name)
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait(place.feedback, msgspec.json.encode(committed), partition=0)
        await producer.begin_transaction()
        for partition in (0, 1):
            await producer.send_and_wait(place.feedback, msgspec.json.encode(aborted), partition=partition)
        await producer.abort_transaction()
    finally:
        await producer.stop()


# --- the commands and a running monitor ---


def plant_on(kafka: Broker, folder: Path) -> Path:
    """Write a config over topics that `streamad topics create` makes, with sequences stored and 0001 in service."""
    name, at = unique_name("plant"), f"kafka://{kafka.bootstrap}"
    config = plant_of(
        folder,
        name=name,
        source={"url": f"{at}/{name}.in"},
        model={"detector": "mean_square", "folds": 2, "device": "cpu"},
        learning={**LEARNING, "feedback": f"kafka:///{name}.feedback"},
        sinks={"alerts": f"kafka:///{name}.alerts"},
        alerts={"false_alarm_rate": 0.2},
    )
    assert CliRunner().invoke(app, ["topics", "create", "--partitions", "1", "-c", str(config)]).exit_code == 0
    add(config, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    assert train(config) == "0001"
    return config


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGINS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))


def command(config: Path, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--config", str(config)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.mark.usefixtures("plugins")
def test_a_running_monitor_applies_feedback_and_a_promotion(kafka: Broker, tmp_path: Path) -> None:
    config = plant_on(kafka, tmp_path)
    command(config, "topics", "check")
    with started("-v", "run", "--config", config) as monitor:
        until_line(monitor, "assigned")
        another(config)
        until_line(monitor, "default 0002")
        assert "within 2 s" in command(config, "models", "rollback")
        assert hot_swap._POLL_S < 2  # noqa: SLF001 - a slow machine takes its time beside
        until_line(monitor, "default 0001 is in service")
        told = command(config, "feedback", "--alert", identity(3), "--confirmed")
        assert "kept in kafka:///" in told
        deadline = time.monotonic() + LIMIT_S
        while identity(3) not in store_of(config).marks() and time.monotonic() < deadline:
            time.sleep(0.05)  # another process does the work
        assert store_of(config).marks()[identity(3)].judgement == "confirmed"
        monitor.send_signal(signal.SIGTERM)
        monitor.communicate(timeout=LIMIT_S)
        assert monitor.returncode == 0
