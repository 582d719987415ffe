"""A producer without keys spreads streams over the partitions of three workers: no fragment is judged."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

import pytest

from streamad.runtime.partition import SPLIT
from tests.support.kafka.broker import Broker, Message, produce, read_committed
from tests.support.kafka.faults import KafkaPlants, until_so
from tests.support.kafka.plant import KafkaPlant
from tests.support.runtime.pipeline import line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

PARTITIONS = 3
STREAMS = ("r1", "r2", "r3", "r4")
KILLS = 3


def spread(i: int, time_s: float, *, end: bool) -> list[Message]:
    """A sample of sequence ``i`` of every stream in every partition, and of a stream that is whole in each."""
    return [
        Message(line(stream, f"q-{i}", [time_s + number / 10], end=end), partition=number)
        for number in range(PARTITIONS)
        for stream in (*STREAMS, f"own-{number}")
    ]


async def known_to_be_split(plant: KafkaPlant) -> Counter[str]:
    """How many partitions know that each stream is in several: they have said how many verdicts they had committed."""
    last = {record.key: record.value for record in await read_committed(plant.bootstrap, plant.claims)}
    said = (key for key, value in last.items() if value is not None and json.loads(value).get("n_judged") is not None)
    return Counter(json.loads(key or b"")[2] for key in said)


async def events(plant: KafkaPlant) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in await read_committed(plant.bootstrap, plant.events)]


async def test_no_fragment_is_judged_over_kills_and_rebalances_and_one_event_is_written(
    kafka: Broker, plants: KafkaPlants
) -> None:
    rng = random.Random(45)
    plant = await plants.make(kafka.bootstrap, partitions=PARTITIONS, with_events=True, sequences={"end": ["marker"]})
    await plant.feed(spread(0, 0, end=False))
    workers = [plant.start(f"w{n}", static=False) for n in range(3)]

    async def all_know() -> bool:
        counts = await known_to_be_split(plant)
        return all(counts[stream] == PARTITIONS for stream in STREAMS)

    await until_so(plant, all_know)
    n_sequences = 0
    for _ in range(KILLS):
        for _ in range(4):
            n_sequences += 1
            await plant.feed(spread(n_sequences, 100.0 * n_sequences, end=True))
            await asyncio.sleep(rng.random() * 0.3)
        await workers[-1].until(lambda: any(worker.owned() for worker in workers))
        victim = rng.choice([n for n, worker in enumerate(workers) if worker.owned()])
        workers[victim].kill()
        workers[victim] = plant.start(f"w{victim}", static=False)
    expected = n_sequences * PARTITIONS * (len(STREAMS) + 1)

    async def all_is_judged() -> bool:
        return len(await plant.committed("verdicts")) >= expected

    await until_so(plant, all_is_judged)

    async def all_is_told() -> bool:
        return len(await events(plant)) >= len(STREAMS)

    await until_so(plant, all_is_told)
    verdicts = await plant.committed("verdicts")
    assert len(verdicts) == len({verdict["verdict_id"] for verdict in verdicts}) == expected
    split = [verdict for verdict in verdicts if verdict["stream"] in STREAMS]
    assert {(verdict["decision"], verdict["detail"]) for verdict in split} == {("unscorable", SPLIT)}
    assert "unscorable" not in {verdict["decision"] for verdict in verdicts if verdict["stream"] not in STREAMS}
    assert not [alert for alert in await plant.committed("alerts") if alert["stream"] in STREAMS]
    found = [event for event in await events(plant) if event["kind"] == "stream_in_two_partitions"]
    assert Counter(event["stream"] for event in found) == dict.fromkeys(STREAMS, 1)
    assert all("which stand: 0;" in event["message"] for event in found)


async def test_foreign_bytes_among_the_claims_are_ignored_with_one_event(kafka: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=1, with_events=True, sequences={"end": ["marker"]})
    foreign = [
        Message(b"no claim", b"no key"),
        Message(b"\xff\xfe", b"\x00"),
        Message(b"{}", b'["claim","x-0","r1"]'),
        Message(b'{"schema_version":1,"time_us":"soon"}', b'["claim","x-0","r1"]'),
        Message(b'{"schema_version":1}', b'["claim","another.topic-0","r1"]'),  # of an input that was read before
        Message(None, b"[" * 100_000),
    ]
    await produce(kafka.bootstrap, plant.claims, foreign)
    worker = plant.start()
    await plant.feed([Message(line("r1", f"q-{i}", [10.0 * i], end=True), partition=0) for i in range(5)])

    async def all_is_judged() -> bool:
        return len(await plant.committed("verdicts")) >= 5 and bool(await events(plant))

    await until_so(plant, all_is_judged)
    await produce(kafka.bootstrap, plant.claims, foreign)
    await plant.feed([Message(line("r2", "q-1", [100.0], end=True), partition=0)])

    async def another_is_judged() -> bool:
        return len(await plant.committed("verdicts")) >= 6

    await until_so(plant, another_is_judged)
    assert worker.is_running
    assert "unscorable" not in {verdict["decision"] for verdict in await plant.committed("verdicts")}
    (event,) = await events(plant)
    assert event["kind"] == "foreign_claims"
    assert plant.claims in event["message"]
