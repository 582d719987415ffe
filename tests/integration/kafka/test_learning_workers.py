"""Workers of a group that learn together: one of them trains, all swap, every sequence has one verdict all the same."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from streamad.learn.trainer.status import read_status
from tests.support.kafka.broker import Broker, Message, create_topics, read_committed
from tests.support.kafka.faults import KafkaPlants
from tests.support.kafka.plant import KafkaPlant
from tests.support.learning.store import NAME, LearningPlant
from tests.support.runtime.pipeline import START_US
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

PARTITIONS = 2
LEARNING: dict[str, Any] = {
    "first_training": 60,
    "min_training": 20,
    "reserve": 0.4,
    "schedule": None,
    "drift": {"enabled": False},
}


@pytest.fixture
async def plant(kafka: Broker, tmp_path: Path) -> AsyncIterator[KafkaPlant]:
    """A plant without a model, whose workers start a learner; what a failing test leaves behind is ended."""
    plants = KafkaPlants(tmp_path)
    try:
        plant = await plants.make(
            kafka.bootstrap,
            partitions=PARTITIONS,
            sequences={"end": ["marker"], "allowed_lateness": 0},
            model={"detector": "mean", "references": []},
            alerts={"false_alarm_rate": 0.05},
            learning=LEARNING,
            sinks={"events": "kafka:///events-of-this-test"},
        )
        plant.sections["sinks"] = {role: f"kafka:///{plant.output(role)}" for role in ("events", "windows")}
        plant.write_config()
        await create_topics(kafka.bootstrap, {plant.output("events"): 1})
        shutil.rmtree(plant.folder / "registry")
        yield plant
    finally:
        plants.close()


def messages(source: LearningPlant, numbers: range) -> list[Message]:
    """Whole sequences, those of a stream in one partition."""
    return [
        Message(
            source.message(number),
            key=f"s{number % 3}".encode(),
            partition=number % 3 % PARTITIONS,
            timestamp_ms=START_US // 1000 + 60_000 * number + 20_000,
        )
        for number in numbers
    ]


async def of(plant: KafkaPlant, role: Any) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"null") for record in await read_committed(plant.bootstrap, plant.output(role))]


async def until(plant: KafkaPlant, is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not await is_so():
        running = [worker for worker in plant.workers if worker.is_running]
        assert time.monotonic() < deadline, "".join(worker.said()[-3000:] for worker in running)
        await asyncio.sleep(0.2)


async def test_two_workers_start_one_learner_and_both_take_its_model(plant: KafkaPlant, tmp_path: Path) -> None:
    source = LearningPlant(tmp_path / "messages")
    workers = [plant.start("w1"), plant.start("w2")]
    for worker in workers:
        await worker.until(lambda worker=worker: len(worker.owned()) == 1)  # type: ignore[misc]
    await plant.feed(messages(source, range(90)))

    async def both_have_swapped() -> bool:
        kinds = Counter(event["kind"] for event in await of(plant, "events"))
        return kinds == {"model_promoted": 1, "model_swapped": 2}

    await until(plant, both_have_swapped)
    await plant.feed(messages(source, range(90, 150)))

    async def all_judged() -> bool:
        return len(await of(plant, "verdicts")) >= 150

    await until(plant, all_judged)
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [await worker.wait(LIMIT_S) for worker in workers] == [0, 0]
    verdicts = await of(plant, "verdicts")
    assert Counter(verdict["sequence"] for verdict in verdicts) == {f"B-{number}": 1 for number in range(150)}
    later = [verdict for verdict in verdicts if int(verdict["sequence"][2:]) >= 90]
    assert {verdict["model"]["version"] for verdict in later} == {"0001"}
    assert Counter(verdict["decision"] for verdict in later)["normal"] > 45
    learner = LearningPlant(plant.folder, learning=LEARNING)
    assert learner.registry.versions(NAME) == ("0001",)
    assert len(learner.stored("accepted") | learner.stored("reserve") | learner.stored("aside")) == 150


async def test_a_worker_that_is_stopped_while_it_trains_leaves_it_to_the_next(
    plant: KafkaPlant, tmp_path: Path
) -> None:
    plant.sections["model"] = {"detector": "mean", "options": {"epoch_ms": 120_000}, "references": []}
    plant.write_config()
    source = LearningPlant(tmp_path / "messages")
    learner = LearningPlant(plant.folder, learning=LEARNING)
    worker = plant.start("w1")
    await plant.feed(messages(source, range(90)))

    async def is_training() -> bool:
        return read_status(learner.registry, NAME).state == "running"

    await until(plant, is_training)
    worker.send(signal.SIGTERM)
    assert await worker.wait(LIMIT_S) == 0, worker.said()[-3000:]
    assert read_status(learner.registry, NAME).state == "interrupted"
    plant.sections["model"] = {"detector": "mean", "references": []}
    plant.write_config()
    plant.start("w1")

    async def has_swapped() -> bool:
        return "model_swapped" in {event["kind"] for event in await of(plant, "events")}

    async def are_judged() -> bool:
        return len(await of(plant, "verdicts")) >= 90

    await until(plant, has_swapped)
    await until(plant, are_judged)
    assert len(await of(plant, "verdicts")) == 90
    assert learner.registry.versions(NAME) == ("0001",)
