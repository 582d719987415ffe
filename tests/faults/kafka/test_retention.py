"""What a topic no longer holds, or holds damaged: told in time, never skipped in silence nor judged by half."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.broker import Broker, Message, configure, new_broker, new_topic, read_committed
from tests.support.kafka.faults import KafkaPlants, until_so, until_verdicts
from tests.support.kafka.plant import KafkaPlant
from tests.support.runtime.pipeline import line
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

RETENTION_S = 6.0


@pytest.fixture
def broker(kafka_jars: Path) -> Iterator[Broker]:
    """A broker that looks every half second for what is too old."""
    with new_broker({"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "0"}) as broker:
        yield broker


def now(text: bytes) -> Message:
    return Message(text, b"k", 0, int(time.time() * 1000))


def whole(number: int, value: float = 1.0) -> Message:
    return now(line("others", f"others-{number}", [100.0 * number + i for i in range(4)], value, end=True))


async def until_told(plant: KafkaPlant, topic: str, kind: str) -> None:
    """Return once an event of this ``kind`` is in the events ``topic``."""

    async def is_told() -> bool:
        return kind in [json.loads(record.value)["kind"] for record in await read_committed(plant.bootstrap, topic)]

    await until_so(plant, is_told)


async def test_a_sequence_open_past_the_retention_is_reported_and_never_judged_in_part(
    broker: Broker, plants: KafkaPlants
) -> None:
    events = await new_topic(broker)
    plant = await plants.make(
        broker.bootstrap,
        partitions=1,
        options={"retention_check": "1s"},
        sequences={"allowed_lateness": 0},
        run={"report_interval": "1s"},
        sinks={"events": f"kafka:///{events}"},
    )
    await configure(plant.bootstrap, plant.topic, {"retention.ms": str(int(RETENTION_S * 1000)), "segment.ms": "1000"})
    worker = plant.start()
    await worker.until_logged("status")

    # One stays open at offset 0, others go on; one of them is anomalous, one message unreadable, one sample late.
    opened_s = time.time()
    await plant.feed([now(line("open", "open-0", [0.0, 1.0])), whole(0), whole(1, 10.0), now(b"{")])
    await plant.feed([now(line("others", "others-0", [1.5]))])
    for number in range(2, 6):
        await asyncio.sleep(0.7)
        await plant.feed([whole(number)])
    await until_verdicts(plant, 6)
    await worker.until(lambda: worker.logged("status")[-1]["commits"] > 5)
    await until_told(plant, events, "low_watermark_old")
    told_s = time.time()
    await until_told(plant, events, "retention_passed_low_watermark")
    assert told_s - opened_s >= RETENTION_S / 2
    old, passed = worker.logged("low_watermark_old"), worker.logged("retention_passed_low_watermark")
    assert len(old) == 1
    assert old[0]["timestamp"] < passed[0]["timestamp"], "which is told again whenever the topic's begin moves"
    statuses = worker.logged("status")
    ages = [status["low_watermark_age_s"] for status in statuses if status["low_watermark_age_s"] is not None]
    assert ages == sorted(ages)
    assert ages[-1] - ages[0] > 3
    assert {entry["low_watermark"] for entry in worker.logged("committed")} == {0}

    last = statuses[-1]
    assert last["records"] == 9
    assert last["sequences"] == {"marker": 6}
    assert last["verdicts"] == {"normal": 5, "anomalous": 1}
    assert last["alerts"] == 1
    assert last["dead_letters"] == {"malformed": 1}
    assert last["late_samples"] == 1
    assert last["commits"] == sum(entry["timestamp"] <= last["timestamp"] for entry in worker.logged("committed"))
    assert last["commits_failed"] == 0
    assert last["rebalances"] == 1
    assert last["lag"] == 0
    assert last["open_sequences"] == 1
    assert last["buffered_bytes"] > 0
    assert last["partitions"] == 1
    latencies = [status for status in statuses if status["latency_p50_ms"] is not None]
    assert latencies
    assert all(0 < status["latency_p50_ms"] <= status["latency_p99_ms"] < 10_000 for status in latencies)

    worker.send(signal.SIGTERM)
    assert await worker.wait(LIMIT_S) == 0
    refused = plant.start()
    assert await refused.wait(LIMIT_S) == 1
    assert "--accept-gap" in refused.said().splitlines()[-1]
    assert "offsets 0 to" in refused.said()
    assert not refused.logged("committed")

    accepting = plant.start("w1", "--accept-gap")
    await plant.feed([now(line("open", "open-0", [2.0, 3.0], end=True)), whole(6), whole(7)])
    await until_verdicts(plant, 9)
    await until_told(plant, events, "gap_accepted")
    accepting.send(signal.SIGTERM)
    assert await accepting.wait(LIMIT_S) == 0, accepting.said()
    verdicts = (await plant.outputs())["verdicts"]
    by_name = {verdict["sequence"]: verdict for verdict in verdicts}
    assert len(by_name) == len(verdicts) == 9
    assert by_name["open-0"]["decision"] == "unscorable"
    assert "partial" in by_name["open-0"]["detail"]
    assert all(by_name[f"others-{n}"]["decision"] == ("anomalous" if n == 1 else "normal") for n in range(6))


async def test_a_batch_damaged_on_disk_is_reported_and_never_skipped(broker: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(broker.bootstrap, partitions=1, sequences={"allowed_lateness": 0})
    await plant.feed([whole(0)])
    before = plant.start()
    await until_verdicts(plant, 1)
    before.send(signal.SIGTERM)
    assert await before.wait(LIMIT_S) == 0, before.said()[-3000:]
    await plant.feed([now(b"to be damaged")])
    await plant.feed([whole(1)])
    await asyncio.to_thread(broker.stop)
    (log,) = broker.folder.rglob(f"{plant.topic}-0/00000000000000000000.log")
    content = log.read_bytes()
    assert content.count(b"to be damaged") == 1
    log.write_bytes(content.replace(b"to be damaged", b"to be Damaged"))
    await asyncio.to_thread(broker.start)
    worker = plant.start()
    assert await worker.wait(LIMIT_S) == 1, worker.said()[-3000:]
    assert f"records of topic {plant.topic} are damaged" in worker.said().splitlines()[-1]
    assert "Traceback" not in worker.said()
    verdicts = (await plant.outputs())["verdicts"]
    assert [verdict["sequence"] for verdict in verdicts] == ["others-0"]  # none of what lies behind it
