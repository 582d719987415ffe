"""A broker that is away, for moments or longer than silence ends a sequence: nothing lost, repeated or cut."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence

import pytest

from tests.support.kafka.broker import Broker, Message
from tests.support.kafka.faults import KafkaPlants, finish, until_read, until_verdicts
from tests.support.kafka.plant import KafkaPlant, traffic
from tests.support.kafka.workers import Worker
from tests.support.runtime.pipeline import line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

GAP_S = 6.0  # long beside what a busy machine takes for a connection and a few messages
START_MS = 1_790_000_000_000
MINUTE_MS = 60_000


# --- longer than silence ends a sequence ---


def chunks(plant: KafkaPlant, number: int, parts: Sequence[int], start_ms: int) -> list[Message]:
    """Parts of sequence ``number`` of three streams of each partition, record times 10 ms apart."""
    messages: list[Message] = []
    for part in parts:
        for partition in range(plant.partitions):
            for stream in range(3):
                name = f"s{partition}-{stream}"
                times_s = [100.0 * number + 2 * part + i for i in range(2)]
                text = line(name, None, times_s, 10.0 if (number + stream) % 3 == 0 else 1.0)
                messages.append(Message(text, name.encode(), partition, start_ms + 10 * len(messages)))
    return messages


def last_ones(plant: KafkaPlant, start_ms: int) -> list[Message]:
    """One sequence of a record for each partition, late enough that nothing stays open before it."""
    return [
        Message(line(f"z{partition}", None, [1e4, 1e4 + 1], end=True), b"z", partition, start_ms)
        for partition in range(plant.partitions)
    ]


@pytest.mark.parametrize("how", ["frozen", "killed"])
async def test_a_broker_away_for_longer_than_the_gap_cuts_no_open_sequence(
    unstable_kafka: Broker, plants: KafkaPlants, how: str
) -> None:
    broker = unstable_kafka
    sequences = {"end": ["gap", "marker"], "gap": f"{GAP_S:g}s", "allowed_lateness": 0}
    plant = await plants.make(broker.bootstrap, partitions=2, sequences=sequences)
    n_streams = 3 * plant.partitions
    worker = plant.start()
    await plant.feed(chunks(plant, 0, [0, 1, 2], START_MS))
    await until_verdicts(plant, n_streams)  # silence does end a sequence, while the broker says that it is

    before = chunks(plant, 1, [0, 1, 2], START_MS + MINUTE_MS)
    n_before = len(before) // plant.partitions + len(chunks(plant, 0, [0, 1, 2], 0)) // plant.partitions
    await plant.feed(before)
    await until_read(worker, {f"{plant.topic}-{number}": n_before for number in range(plant.partitions)})
    if how == "frozen":
        broker.pause()
        await asyncio.sleep(1.5 * GAP_S)
        broker.resume()
    else:
        broker.kill()
        await asyncio.sleep(GAP_S)
        await asyncio.to_thread(broker.start)
    await asyncio.sleep(1.2)  # the worker is back before its producer: of the silence only this counts
    await plant.feed(chunks(plant, 1, [3, 4], START_MS + MINUTE_MS + 10 * len(before)))
    await plant.feed(last_ones(plant, START_MS + 2 * MINUTE_MS))

    expected = await finish(plant, worker)
    judged = [verdict["n_samples"] for verdict in expected["verdicts"] if verdict["stream"].startswith("s")]
    assert sorted(judged) == [6] * n_streams + [10] * n_streams


# --- for moments, at any moment ---


async def amid_work(worker: Worker, rng: random.Random) -> None:
    """Return at some moment while ``worker`` commits: between two commits, or amid one."""
    await worker.until_logged("committed", worker.n_commits + rng.randrange(1, 4))
    await asyncio.sleep(rng.random() * 0.1)


async def goes_on(worker: Worker) -> None:
    """Return once ``worker`` commits again, by itself and in the same process."""
    await worker.until_logged("committed", worker.n_commits + 2)
    assert worker.is_running, worker.said()[-3000:]


async def test_frozen_again_and_again_amid_commits_each_message_comes_once(
    unstable_kafka: Broker, plants: KafkaPlants
) -> None:
    broker = unstable_kafka
    rng = random.Random(51)
    short = {"request_timeout": "1s", "transaction_timeout": "2s"}
    plant = await plants.make(broker.bootstrap, options=short)
    worker = plant.start()
    flow = plant.flow(traffic(51, partitions=4, streams=80, sequences=30), per_s=300)
    for freeze_s in (0.1, 0.3, 1.3, 0.2, 2.5, 0.4, 1.3, 3.5, 0.1, 0.3):  # the time-out of a commit is 1 s
        await amid_work(worker, rng)
        broker.pause()
        await asyncio.sleep(freeze_s)
        broker.resume()
        await goes_on(worker)
    await flow.cut()
    await finish(plant, worker)
    failed = worker.logged("commit failed, partition restored")
    assert len(failed) >= 3, "freezes that a commit did not survive"
    assert any("in doubt" in entry["reason"] for entry in failed)


@pytest.mark.parametrize("delay_ms", [0, 150], ids=["reading", "scoring"])
async def test_killed_or_stopped_and_started_again_amid_the_work_each_message_comes_once(
    unstable_kafka: Broker, plants: KafkaPlants, delay_ms: int
) -> None:
    broker = unstable_kafka
    rng = random.Random(52 + delay_ms)
    plant = await plants.make(broker.bootstrap, model={"options": {"delay_ms": delay_ms}})
    worker = plant.start()
    flow = plant.flow(traffic(52, partitions=4, streams=80, sequences=30), per_s=150 if delay_ms else 300)
    for end in (broker.kill, broker.stop, broker.kill):
        await amid_work(worker, rng)
        await asyncio.to_thread(end)
        await asyncio.to_thread(broker.start)
        await goes_on(worker)
    await flow.cut()
    await finish(plant, worker)
