"""Messages that no producer should send, on a real broker: each a dead letter, and everything after them is judged."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from tests.support.kafka.broker import Broker, Message, configure, read_committed
from tests.support.kafka.faults import KafkaPlants, finish
from tests.support.kafka.plant import KafkaPlant
from tests.support.runtime.pipeline import START_US, line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

START_MS = 1_790_000_000_000
N_PARTITIONS = 2
AT_ONCE = {"allowed_lateness": 0}  # a marker ends its sequence with nothing after it
HUGE = 10_000_000
LIMIT_BYTES = 8_000_000
KEPT_BYTES = 65_536
BROKER_LIMIT = 1_048_588  # message.max.bytes of a broker that nobody has configured


async def take_longer_messages(plant: KafkaPlant, n_bytes: int) -> None:
    await configure(plant.bootstrap, plant.topic, {"max.message.bytes": str(n_bytes), "retention.ms": "-1"})


async def feed(plant: KafkaPlant, messages: list[Message], compression: str | None = None) -> None:
    """Produce ``messages`` in order, each in a batch of its own, compressed if so wished."""
    producer = AIOKafkaProducer(
        bootstrap_servers=plant.bootstrap,
        compression_type=compression,
        max_request_size=2 * HUGE,
        max_batch_size=2 * HUGE,
    )
    async with producer:
        for one in messages:
            await producer.send_and_wait(
                plant.topic, one.value, one.key, one.partition, one.timestamp_ms, list(one.headers)
            )


def sequence(partition: int, number: int, **options: Any) -> Message:
    name = f"s{partition}"
    text = line(name, f"{name}-{number}", [100.0 * number + i for i in range(4)], end=True)
    return Message(text, options.pop("key", name.encode()), partition, START_MS + 1000 * number, **options)


def poison(partition: int) -> list[tuple[str, Message]]:
    """What is wrong, and the message; each is followed by a sequence that must be judged."""

    def message(value: bytes | None, **options: Any) -> Message:
        return Message(value, options.pop("key", b"k"), partition, START_MS, **options)

    good = json.loads(line("p", "p-1", [1.0]))
    return [
        ("invalid JSON", message(b'{"stream": "s0", "time": 12')),
        ("invalid msgpack", message(b"\x82\xa6stream\xc1\xc1")),
        ("neither", message(b"\xff\xfe\x00garbage")),
        ("not finite", message(json.dumps({**good, "times": [1e999]}).encode())),
        ("Schema Registry", message(b"\0\0\0\0\x07\x02r1\x02")),
        ("its header", message(b"\x02r1\x02", headers=[("__value_schema_id", b"\1" + bytes(16))])),
        ("deeply nested", message(b"[" * 100_000)),
        ("10 MB", message(b"[" + b" " * (HUGE - 2) + b"]")),
        ("huge key", message(b"{", key=b"K" * 700_000)),
        ("key that is no text", message(b"{", key=b"\xff\x00\xfe")),
        ("no key", message(b"{", key=None)),
        ("headers", message(b"{", headers=[("trace", b"\xff\x00"), ("trace", b""), ("", b"x" * 50_000)])),
    ]


async def test_every_poison_in_every_partition_is_a_dead_letter_and_blocks_nothing(
    kafka: Broker, plants: KafkaPlants
) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=N_PARTITIONS, sequences=AT_ONCE)
    await take_longer_messages(plant, 12_000_000)
    sent: dict[tuple[int, int], tuple[str, Message]] = {}
    messages = []
    for partition in range(N_PARTITIONS):
        for number, (kind, message) in enumerate(poison(partition)):
            sent[partition, 2 * number] = kind, message
            messages += [message, sequence(partition, number)]
    await feed(plant, messages)
    worker = plant.start()
    expected = await finish(plant, worker)

    assert len(expected["verdicts"]) == len(messages) // 2
    assert len(expected["dead_letters"]) == len(sent)
    letters = await read_committed(plant.bootstrap, plant.output("dead_letters"))
    assert len(letters) == len(sent)
    for letter in letters:
        headers = {name: value.decode() for name, value in letter.headers}
        assert headers["streamad-origin-topic"] == plant.topic
        assert headers["streamad-message"] == "dead_letter"
        assert headers["streamad-error-kind"]
        assert headers["streamad-error"]
        where = int(headers["streamad-origin-partition"]), int(headers["streamad-origin-offset"])
        kind, original = sent.pop(where)
        body = json.loads(letter.value)
        value = original.value or b""
        kept, key = (base64.b64decode(body[name] or "") for name in ("value", "key"))
        assert kept == value[:KEPT_BYTES], kind
        assert key == (original.key or b"")[:KEPT_BYTES], kind
        assert body["truncated"] == (max(len(value), len(original.key or b"")) > KEPT_BYTES), kind
        assert body["size_bytes"] == len(value), kind
        assert body["sha256"] == hashlib.sha256(value).hexdigest(), kind
        assert len(letter.value) < BROKER_LIMIT, kind
    assert not sent


async def test_tombstones_are_skipped_and_move_the_progress(kafka: Broker, plants: KafkaPlants) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=1, sequences=AT_ONCE)
    nothing = [Message(value, b"s0", 0, START_MS) for value in (None, b"")]
    await feed(plant, [*nothing, sequence(0, 0), *nothing])
    expected = await finish(plant, plant.start())
    assert len(expected["verdicts"]) == 1
    assert expected["dead_letters"] == []


async def test_compressed_messages_are_read_whatever_they_are_compressed_with(
    kafka: Broker, plants: KafkaPlants
) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=N_PARTITIONS, sequences=AT_ONCE)
    for number, compression in enumerate((None, "gzip", "snappy", "lz4", "zstd")):
        both = [sequence(partition, number) for partition in range(N_PARTITIONS)]
        wrong = [Message(b"{" * 1000, b"k", partition, START_MS) for partition in range(N_PARTITIONS)]
        await feed(plant, wrong + both, compression)
    expected = await finish(plant, plant.start())
    assert len(expected["verdicts"]) == len(expected["dead_letters"]) == 5 * N_PARTITIONS


async def test_late_samples_of_a_chunk_too_large_for_one_message_arrive_in_several(
    kafka: Broker, plants: KafkaPlants
) -> None:
    n = 85_000
    plant = await plants.make(kafka.bootstrap, partitions=1, sequences=AT_ONCE)
    await take_longer_messages(plant, 12_000_000)
    late = {
        "stream": "s0",
        "sequence": "s0-0",
        "times": [START_US / 1e6 + 1 + i / 1000 for i in range(n)],
        "values": [[1.0 + i / n, 2.0, 3.123456789012345] for i in range(n)],
        "padding": "x" * 1_000_000,
    }
    chunk = json.dumps(late).encode()
    assert 5_000_000 < len(chunk) < LIMIT_BYTES
    await feed(plant, [sequence(0, 0), sequence(0, 1), Message(chunk, b"s0", 0, START_MS + 2000), sequence(0, 2)])
    expected = await plant.expected()
    worker = plant.start()
    await plant.until_judged(expected)
    worker.kill()

    assert len(expected["late"]) == 1
    whole = expected["late"][0]
    assert len(whole["times"]) == n
    parts = await read_committed(plant.bootstrap, plant.output("late"))
    assert len(parts) > 3
    assert all(len(part.value) < BROKER_LIMIT for part in parts)
    bodies = [json.loads(part.value) for part in parts]
    assert [time for body in bodies for time in body["times"]] == whole["times"]
    assert [row for body in bodies for row in body["values"]] == whole["values"]
    for part, body in zip(parts, bodies, strict=True):
        assert body["origin"] == whole["origin"]
        assert (b"streamad-origin-offset", b"2") in [(name.encode(), value) for name, value in part.headers]
