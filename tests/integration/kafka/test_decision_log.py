"""The decision log on Kafka: each partition's chain is whole, whoever was killed; commands continue theirs."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest
import yaml
from aiokafka import AIOKafkaProducer

from streamad.decisions import recording
from streamad.decisions.chain import Decided, Head, entry_in, head_of, linked
from streamad.decisions.recording import record
from streamad.decisions.verifying import Verifying
from streamad.messages import DecisionEntry
from streamad.plant import Plant
from streamad.settings.plant_yaml import load_settings
from streamad.system.clock import SystemClock
from streamad.types import from_us
from tests.support.kafka.broker import Broker, Message, create_topics, produce, read_committed, unique_name
from tests.support.kafka.faults import KafkaPlants, until_verdicts
from tests.support.runtime.cli import started
from tests.support.runtime.pipeline import START_US, line
from tests.support.waiting import LIMIT_S

DECIDED = Decided("mark", "B-1", "kim", "claimed")
DECIDING = """
import sys
from pathlib import Path
from streamad.commands.shared.plants import load_plant
from streamad.decisions.chain import Decided
from streamad.decisions.recording import record
plant = load_plant(Path("plant.yaml"))
for writer in sys.argv[1:]:
    record(plant, writer, [Decided("mark", "B-2", "lee", "claimed")])
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")


def sequences(numbers: range) -> list[Message]:
    """Whole sequences, those of a stream in one partition."""
    return [
        Message(
            line(f"s{number % 2}", f"B-{number}", [60.0 * number + second for second in range(9)], end=True),
            key=b"%d" % (number % 2),
            partition=number % 2,
            timestamp_ms=START_US // 1000 + 60_000 * number + 10_000,
        )
        for number in numbers
    ]


async def test_chains_stay_whole_over_a_kill_a_second_worker_another_config_and_commands(
    kafka: Broker, tmp_path: Path
) -> None:
    """Three lives of workers and three commands on a broker: above 5 s of a core, and the only test of all of them."""
    plants = KafkaPlants(tmp_path)
    try:
        ends = {"end": ["marker"], "allowed_lateness": 0}
        plant = await plants.make(kafka.bootstrap, partitions=2, sequences=ends)
        plant.sections = {"sequences": ends, "sinks": {"decisions": f"kafka:///{plant.output('decisions')}"}}
        plant.write_config()
        await create_topics(kafka.bootstrap, {plant.output("decisions"): 1})
        killed = plant.start("w1")
        await plant.feed(sequences(range(20)))
        await until_verdicts(plant, 5)
        killed.kill()
        plant.sections = {**plant.sections, "run": {"report_interval": "59s"}}
        plant.write_config()
        workers = [plant.start(name) for name in ("w1", "w2")]
        await plant.feed(sequences(range(20, 40)))
        await until_verdicts(plant, 40)
        for worker in workers:
            worker.send(signal.SIGTERM)
            assert await worker.wait(LIMIT_S) == 0, worker.said()[-3000:]
        for mark in ("--false-alarm", "--confirmed"):
            done = plant.streamad("feedback", "--alert", f"{1:032x}", mark)
            assert done.returncode == 0, done.stderr
        verified = plant.streamad("audit", "verify", "--json")
        records = await read_committed(plant.bootstrap, plant.output("decisions"))
    finally:
        plants.close()
    found = json.loads(verified.stdout.splitlines()[-1])
    assert found["whole"], found
    entries = [entry_in(record.value or b"") for record in records]
    by_writer: dict[str, list[DecisionEntry]] = {}
    for entry in entries:
        by_writer.setdefault(entry.writer, []).append(entry)
    assert {one["writer"]: (one["entries"], one["repeats"]) for one in found["writers"]} == {
        writer: (len(of), 0) for writer, of in by_writer.items()
    }
    for number in range(2):
        kinds = [entry.kind for entry in by_writer.pop(f"{plant.name}/worker/{plant.topic}-{number}")]
        assert kinds[:2] == ["config", "model"]
        assert kinds[2:] in ([], ["config"]), (
            "the killed worker had judged nothing of it, or the next has another config"
        )
    (marks,) = by_writer.values()
    assert [(entry.number, entry.kind, entry.details["judgement"]) for entry in marks] == [
        (1, "mark", "false_alarm"),
        (2, "mark", "confirmed"),
    ]


def logging_plant(folder: Path, bootstrap: str, topic: str) -> Plant:
    content = {
        "name": "hall", "channels": [{"name": "a"}], "window": {"length": 3},
        "source": {"url": f"kafka://{bootstrap}/{topic}-in"}, "sinks": {"decisions": f"kafka:///{topic}"},
    }  # fmt: skip
    path = folder / "plant.yaml"
    path.write_text(yaml.safe_dump(content))
    return Plant(load_settings(path), folder, SystemClock(), path)


@pytest.mark.parametrize("partitions", [1, 2])
async def test_an_entry_follows_its_writers_last_one_whoever_wrote_between(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """Two processes take turns as two writers; a third one fills what is looked through first."""
    monkeypatch.setattr(recording, "_NEAR", 3)
    topic = unique_name("decisions")
    await create_topics(kafka.bootstrap, {topic: partitions})
    plant = logging_plant(tmp_path, kafka.bootstrap, topic)
    (tmp_path / "deciding.py").write_text(DECIDING)
    head = Head()
    with started("a", "b", "a", "a", "b", program=("deciding.py",), cwd=tmp_path) as other:
        for writer in ("b", "a", "a"):
            await asyncio.to_thread(record, plant, writer, [DECIDED, DECIDED])
        assert await asyncio.to_thread(other.wait, LIMIT_S) == 0
    for writer in ("a", "b", "a"):
        for _ in range(4):
            entry = linked(DECIDED, "hall/third", head, from_us(START_US))
            head = head_of(entry)
            await produce(kafka.bootstrap, topic, [Message(msgspec.json.encode(entry), key=b"third")])
        await asyncio.to_thread(record, plant, writer, [DECIDED])
    verifying = Verifying()
    for found in await read_committed(kafka.bootstrap, topic):
        verifying.take(found.value or b"", "here")
    assert verifying.is_whole
    assert {name: chain.entries for name, chain in verifying.chains.items()} == {
        "hall/a": 3 + 4 + 2,
        "hall/b": 2 + 2 + 1,
        "hall/third": 12,
    }


async def test_what_others_write_in_a_writers_name_is_not_kept_in_memory(kafka: Broker, tmp_path: Path) -> None:
    topic = unique_name("decisions")
    await create_topics(kafka.bootstrap, {topic: 1})
    plant = logging_plant(tmp_path, kafka.bootstrap, topic)
    (entry,) = await asyncio.to_thread(record, plant, "a", [DECIDED])
    n, large = 24, b'{"writer":"hall/a"' + bytes(4_000_000)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap, compression_type="gzip", max_request_size=1 << 23
    ) as producer:
        for _ in range(n):
            await producer.send_and_wait(topic, large)
    tracemalloc.start()
    try:
        (following,) = await asyncio.to_thread(record, plant, "a", [DECIDED])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (following.number, following.previous) == (2, entry.hash)
    assert most < n * len(large) / 2


async def test_an_open_transaction_of_a_worker_hides_no_entry_from_its_writer(kafka: Broker, tmp_path: Path) -> None:
    topic = unique_name("decisions")
    await create_topics(kafka.bootstrap, {topic: 1})
    plant = logging_plant(tmp_path, kafka.bootstrap, topic)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, msgspec.json.encode(linked(DECIDED, "hall/w", Head(), from_us(START_US))))
        entries = [entry for _ in range(3) for entry in await asyncio.to_thread(record, plant, "a", [DECIDED])]
        await producer.abort_transaction()
    finally:
        await producer.stop()
    assert [(each.number, each.previous) for each in entries] == [
        (1, ""),
        (2, entries[0].hash),
        (3, entries[1].hash),
    ]
    assert [entry_in(each.value or b"") for each in await read_committed(kafka.bootstrap, topic)] == entries
