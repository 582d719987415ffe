"""Workers of a group that only judge, and one learner beside them, all of them killed: nothing lost or repeated."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from streamad.messages import SHARES
from tests.integration.kafka.test_learning_workers import LEARNING, LIMIT_S, messages, of, until
from tests.support.kafka.broker import Broker, admin_of, create_topics
from tests.support.kafka.faults import KafkaPlants
from tests.support.kafka.plant import KafkaPlant
from tests.support.kafka.workers import ForkServer, Worker
from tests.support.learning.store import NAME, LearningPlant

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

ELSEWHERE: dict[str, Any] = {**LEARNING, "process": "elsewhere", "after_inliers": 30, "min_interval": 0}


@pytest.fixture
async def plant(kafka: Broker, tmp_path: Path) -> AsyncIterator[KafkaPlant]:
    plants = KafkaPlants(tmp_path)
    try:
        plant = await plants.make(
            kafka.bootstrap,
            partitions=2,
            sequences={"end": ["marker"], "allowed_lateness": 0},
            model={"detector": "mean", "references": []},
            alerts={"false_alarm_rate": 0.05},
        )
        plant.sections["learning"] = {**ELSEWHERE, "feedback": f"kafka:///{plant.output('feedback')}"}
        plant.sections["sinks"] = {"events": f"kafka:///{plant.output('events')}"}
        plant.write_config()
        await create_topics(kafka.bootstrap, {plant.output("events"): 1, plant.output("feedback"): 1})
        shutil.rmtree(plant.folder / "registry")
        yield plant
    finally:
        plants.close()


def learner_of(plant: KafkaPlant, *arguments: str) -> Worker:
    log = plant.folder / f"learn-{len(plant.workers)}.log"
    plant.workers.append(ForkServer().start("learn", ["learn", *arguments], plant.folder, log))
    return plant.workers[-1]


def stored(plant: KafkaPlant) -> dict[str, tuple[str, str]]:
    store = LearningPlant(plant.folder, learning={**LEARNING, "process": "elsewhere"}).store()
    return {one.id: (one.sequence, share) for share in SHARES for one in store.read(share)}


async def committed(plant: KafkaPlant) -> dict[str, tuple[str, str]]:
    return {each["verdict_id"]: (each["sequence"], each["share"]) for each in await of(plant, "windows")}


async def test_workers_and_learner_killed_beside_each_other(plant: KafkaPlant, tmp_path: Path) -> None:
    source = LearningPlant(tmp_path / "messages")
    workers = [plant.start("w1"), plant.start("w2")]
    learner = learner_of(plant)
    for worker in workers:
        await worker.until(lambda worker=worker: len(worker.owned()) == 1)  # type: ignore[misc]

    for number, death in enumerate(("w1", "learn", "w2", "learn")):
        await plant.feed(messages(source, range(60 * number, 60 * number + 60)), per_s=120)
        if death == "learn":
            learner.kill()
            learner = learner_of(plant)
        else:
            at = 0 if death == "w1" else 1
            workers[at].kill()
            workers[at] = plant.start(death)

    async def all_judged() -> bool:
        return len(await of(plant, "verdicts")) >= 240

    async def all_learned() -> bool:
        return stored(plant) == await committed(plant)

    await until(plant, all_judged)
    await until(plant, all_learned)

    async def both_serve() -> bool:
        kinds = Counter(event["kind"] for event in await of(plant, "events"))
        return kinds["model_promoted"] >= 1 and kinds["model_swapped"] >= 2

    await until(plant, both_serve)
    for process in (*workers, learner):
        process.send(signal.SIGTERM)
    assert [await process.wait(LIMIT_S) for process in (*workers, learner)] == [0, 0, 0], learner.said()[-3000:]
    verdicts = await of(plant, "verdicts")
    assert Counter(each["sequence"] for each in verdicts) == {f"B-{number}": 1 for number in range(240)}
    assert (await committed(plant)).keys() == {each["verdict_id"] for each in verdicts}
    assert len(await of(plant, "windows")) == 240


async def test_a_mark_reaches_the_learner_by_its_topic_and_once(plant: KafkaPlant, tmp_path: Path) -> None:
    worker = plant.start("w1")
    await plant.feed(messages(LearningPlant(tmp_path / "messages"), range(80)))

    async def all_judged() -> bool:
        return len(await of(plant, "verdicts")) >= 80

    await until(plant, all_judged)
    done = await asyncio.to_thread(plant.streamad, "learn", "--present")
    assert done.returncode == 0, done.stderr
    first = (await of(plant, "verdicts"))[0]["verdict_id"]
    done = await asyncio.to_thread(plant.streamad, "feedback", "--alert", first, "--veto")
    assert done.returncode == 0, done.stderr
    known = LearningPlant(plant.folder, learning={**LEARNING, "process": "elsewhere"})
    assert known.store().marks() == {}, "the command writes to the topic alone"
    for _ in range(2):
        done = await asyncio.to_thread(plant.streamad, "learn", "--present")
        assert done.returncode == 0, done.stderr
    assert [mark.judgement for mark in known.store().marks().values()] == ["veto"]
    assert known.registry.versions(NAME) == ("0001",)
    worker.send(signal.SIGTERM)
    assert await worker.wait(LIMIT_S) == 0


async def test_windows_that_were_deleted_before_they_were_learned_are_an_event(
    plant: KafkaPlant, tmp_path: Path
) -> None:
    worker, source = plant.start("w1"), LearningPlant(tmp_path / "messages")

    async def judged(numbers: range) -> None:
        await plant.feed(messages(source, numbers))

        async def are_judged() -> bool:
            return len(await of(plant, "verdicts")) >= numbers.stop

        await until(plant, are_judged)
        worker.send(signal.SIGTERM)
        assert await worker.wait(LIMIT_S) == 0

    await judged(range(30))
    done = await asyncio.to_thread(plant.streamad, "learn", "--present")
    assert done.returncode == 0, done.stderr
    worker = plant.start("w1")
    await judged(range(30, 60))
    topic = plant.output("windows")
    async with admin_of(plant.bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=-1)})
    done = await asyncio.to_thread(plant.streamad, "learn", "--present")
    assert done.returncode == 0, done.stderr
    events = await of(plant, "events")
    told = next((event["message"] for event in events if event["kind"] == "window_skipped"), f"no event: {events}")
    assert "messages were deleted before they were read" in told
    assert f"{topic}-0, before offset" in told
    left = {sequence for sequence, _ in (await committed(plant)).values()}
    assert len(left) < 60
    known = {sequence for sequence, _ in stored(plant).values()}
    assert known == left | {f"B-{number}" for number in range(30)}
