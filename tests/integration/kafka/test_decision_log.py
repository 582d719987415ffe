"""The decision log on Kafka: each partition's chain is whole, whoever was killed; commands continue theirs."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from streamad.decisions.chain import entry_in
from streamad.messages import DecisionEntry
from tests.support.kafka.broker import Broker, Message, create_topics, read_committed
from tests.support.kafka.faults import KafkaPlants, until_verdicts
from tests.support.runtime.pipeline import START_US, line
from tests.support.waiting import LIMIT_S

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
