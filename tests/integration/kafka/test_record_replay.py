"""A topic's range says the same, replayed from the broker or from its recording; neither joins a group."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from streamad.plugins import ConnectorContext, connect_source
from streamad.ports import Source
from streamad.ranges import EVERYTHING, Span
from streamad.runtime.recordings import cut
from streamad.testing import ManualClock
from streamad.types import PartitionAssigned, Record, RecordBatch
from tests.support.kafka.broker import Broker, Message, admin_of, new_topic, produce, read_committed, unique_name
from tests.support.runtime.cli import CliPlant
from tests.support.runtime.pipeline import START_US

START_MS = START_US // 1000
N_PARTITIONS = 3
N_SEQUENCES = 36
STEP_S = 30
TROUBLE = [
    b"{broken",
    b'{"stream": "r1", "sequence": "x", "time": NaN, "values": {}}',
    b"\xff\xfe\x00",
    None,
    b"",
    b" \r\n",
    b'{\n  "stream": "r1"\n}',
    b" {} ",
    b'"\\ud800"',
    b"[" * 3000,
    b'{"stream": "r9", "sequence": null, "time": 1e999}',
]
KEYS = [None, b"", b"\xff\xfe", "µ".encode(), b'"quoted"']


def messages(seed: int = 1) -> list[Message]:
    """Whole sequences in chunks, each stream in its partition, with unreadable, odd and late records between."""
    rng = random.Random(seed)
    found: list[Message] = []
    for i in range(N_SEQUENCES):
        stream, partition = f"r{i % 5}", i % 5 % N_PARTITIONS
        at_ms = START_MS + i * STEP_S * 1000
        whole = json.loads(CliPlant.message(stream, f"s{i:02}", i * STEP_S, rng, odd=i % 9 == 0))
        half = len(whole["times"]) // 2
        first = {**whole, "times": whole["times"][:half], "values": whole["values"][:half], "end": False}
        second = {**whole, "times": whole["times"][half:], "values": whole["values"][half:]}
        found.append(Message(json.dumps(first).encode(), stream.encode(), partition, at_ms))
        trouble = TROUBLE[i % len(TROUBLE)]
        key = b"tombstone" if trouble is None else KEYS[i % len(KEYS)]
        found.append(Message(trouble, key, rng.randrange(N_PARTITIONS), at_ms - 5000 * (i % 3)))
        # Not JSON as Python's default, and pretty-printed: readable all the same.
        found.append(
            Message(json.dumps(second, indent=i % 2 or None).encode(), stream.encode(), partition, at_ms + 900)
        )
        if i % 7 == 0:
            found.append(Message(json.dumps(first).encode(), stream.encode(), partition, at_ms - 20_000))  # again, late
    return found


async def abort_some(bootstrap: str, topic: str) -> None:
    """Leave gaps in the offsets, as aborted transactions and their markers do."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique_name("abort")) as producer:
        for commit in (False, True):
            await producer.begin_transaction()
            for partition in range(N_PARTITIONS):
                await producer.send_and_wait(topic, b"{aborted", partition=partition, timestamp_ms=START_MS)
            await (producer.commit_transaction() if commit else producer.abort_transaction())


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> str:
    """A topic full of trouble, gaps in the middle and at its end."""
    found = messages()

    async def fill() -> str:
        # By the broker's reckoning these records are old enough to be deleted while the tests run.
        name = await new_topic(kafka, N_PARTITIONS, {"retention.ms": "-1"})
        await produce(kafka.bootstrap, name, found[:-12])
        await abort_some(kafka.bootstrap, name)
        await produce(kafka.bootstrap, name, found[-12:])
        await abort_some(kafka.bootstrap, name)
        return name

    return asyncio.run(fill())


def time_of(i: int) -> str:
    return f"2026-01-01T00:{i * STEP_S // 60:02}:{i * STEP_S % 60:02}Z"


SPANS = {
    "everything": (),
    "since": ("--since", time_of(9)),
    "between": ("--since", time_of(9), "--until", time_of(25)),
    "until": ("--until", time_of(20)),
    "nothing": ("--since", "2030-01-01"),
}


def judged(plant: CliPlant, *arguments: str | Path) -> dict[str, list[dict[str, Any]]]:
    """What a replay wrote, role by role, less when it was made and what the partition is called."""
    folder = plant.folder / f"out-{len(list(plant.folder.iterdir()))}"
    outcome = plant("replay", *arguments, "--quiet", "--out", folder)
    assert outcome.code == 0, outcome.err
    found: dict[str, list[dict[str, Any]]] = {}
    for role in ("verdicts", "alerts", "dead_letters", "late"):
        lines = (folder / f"{role}.jsonl").read_text().splitlines() if (folder / f"{role}.jsonl").exists() else []
        found[role] = sorted(map(_timeless, map(json.loads, lines)), key=str)
    return found


def _timeless(message: dict[str, Any]) -> dict[str, Any]:
    message["created_at"] = None
    if "origin" in message:
        message["origin"]["partition"] = message["origin"]["partition"].split("/")[-1].removesuffix(".records.jsonl")
    # Scores depend on their batch in the last digits of a float32.
    message["score"] = round(message["score"], 4) if message.get("score") is not None else None
    return message


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
def test_a_recording_is_judged_as_its_topic(plant: CliPlant, kafka: Broker, topic: str, span: tuple[str, ...]) -> None:
    plant.write_config(source={"url": f"kafka://{kafka.bootstrap}/{topic}"})
    recorded = plant("record", "--out", "kept", "--json", *span)
    assert recorded.code == 0, recorded.err
    assert sorted(path.name for path in (plant.folder / "kept").iterdir()) == [
        f"{topic}-{number}.records.jsonl" for number in range(N_PARTITIONS)
    ]
    from_topic = judged(plant, *span)
    if span == SPANS["nothing"]:
        empty = plant("replay", "kept")
        assert (empty.code, "no record was read" in empty.err) == (1, True)
        return
    assert judged(plant, "kept") == from_topic
    assert judged(plant, "--from", f"kafka://{kafka.bootstrap}/{topic}", *span) == from_topic
    if not span:
        assert {verdict["sequence"] for verdict in from_topic["verdicts"]} >= {f"s{i:02}" for i in range(N_SEQUENCES)}
        assert from_topic["alerts"]
        assert len(from_topic["dead_letters"]) > 10
        assert from_topic["late"]
        assert judged(plant, "kept", *SPANS["between"]) == judged(plant, *SPANS["between"])
    details = {str(verdict["detail"]).split(":")[0] for verdict in from_topic["verdicts"]}
    assert ("partial" in details) == (len(span) > 0 and span[0] == "--since" and span != SPANS["nothing"])


async def everything(source: Source) -> dict[str, tuple[bool, list[Record]]]:
    found: dict[str, tuple[bool, list[Record]]] = {}
    async for event in source.batches():
        if isinstance(event, PartitionAssigned):
            found[event.partition.split("/")[-1].removesuffix(".records.jsonl")] = (event.seen_from_start, [])
            await source.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            found[event.partition.split("/")[-1].removesuffix(".records.jsonl")][1].extend(event.records)
    await source.close()
    return found


@pytest.mark.parametrize(
    "span",
    [EVERYTHING, Span(START_US + 270_000_001, None), Span(START_US + 270_000_000, START_US + 600_000_000)],
    ids=["everything", "since", "between"],
)
def test_a_recording_holds_the_very_records(plant: CliPlant, kafka: Broker, topic: str, span: Span) -> None:
    url = f"kafka://{kafka.bootstrap}/{topic}"
    context = ConnectorContext((), ManualClock(), plant.folder)
    assert plant("record", "--from", url, "--out", "kept").code == 0
    live = asyncio.run(everything(cut(connect_source(url, {}, context), span, url)))
    kept = asyncio.run(everything(cut(connect_source("kept", {}, context), span, "kept")))
    assert live == kept
    assert sum(len(records) for _, records in live.values()) > 30
    if span == EVERYTHING:
        assert {partition: records for partition, (_, records) in kept.items()} == {
            f"{topic}-{number}": [
                Record(record.offset, record.value or b"", record.timestamp * 1000, record.key)
                for record in asyncio.run(read_committed(kafka.bootstrap, topic))
                if record.partition == number
            ]
            for number in range(N_PARTITIONS)
        }


def test_no_group_is_joined_and_nothing_committed(plant: CliPlant, kafka: Broker, topic: str) -> None:
    plant.write_config(source={"url": f"kafka://{kafka.bootstrap}/{topic}"}, name=unique_name("quiet"))
    before = asyncio.run(groups(kafka.bootstrap))
    for command in (("replay", "-q"), ("record", "--out", "kept"), ("score",)):
        outcome = plant(*command)
        assert outcome.code == 0, outcome.err
    assert asyncio.run(groups(kafka.bootstrap)) == before


async def groups(bootstrap: str) -> Sequence[Any]:
    async with admin_of(bootstrap) as admin:
        return sorted(await admin.list_consumer_groups())


def test_training_on_a_live_topic_ends_and_leaves_halves_out(plant: CliPlant, kafka: Broker, topic: str) -> None:
    plant.write_config(source={"url": f"kafka://{kafka.bootstrap}/{topic}"}, model={"recordings": None})
    refused = plant("train", "--no-promote")
    assert refused.code == 1
    assert "15\u00a0% of 447 samples (31 too late, 36 records refused) are lost" in refused.err
    whole = plant("train", "--no-promote", "--force")
    assert whole.code == 0, whole.err
    assert "trained on 36 sequences" in whole.out, whole.err
    later = plant("train", "--no-promote", "--force", "--since", time_of(9))
    assert later.code == 0, later.err
    assert later.err.count("partial: the beginning of the sequence may not have been seen") == 5  # one of each stream
    assert "trained on 22 sequences" in later.out, later.err
