"""What lies above a low watermark that does not move is read again at every start: nothing of it comes out twice."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import pytest

from tests.support.kafka.broker import Broker, Message, read_committed
from tests.support.kafka.faults import KafkaPlants, finish
from tests.support.kafka.plant import KafkaPlant
from tests.support.kafka.workers import Worker
from tests.support.runtime.pipeline import line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")

START_MS = 1_790_000_000_000
N_SEQUENCES = 2_400
N_STREAMS = 4
# A stream's ids are kept in lists of 256 entries of about 30 bytes: the largest record that a commit writes.
RECORD_BYTES = 12_000
# On average a commit writes one such list, half full, for each stream that ended a sequence.
COMMIT_BYTES = 6_000 * N_STREAMS


def messages(texts: Sequence[bytes], *, first: int = 0) -> list[Message]:
    """Messages for partition 0, 10 ms apart from the ``first`` on."""
    return [
        Message(text, key=b"any", partition=0, timestamp_ms=START_MS + 10 * number)
        for number, text in enumerate(texts, first)
    ]


def last_messages() -> list[Message]:
    """What moves all clocks on by more than ``allowed_lateness``, twice."""
    return [
        Message(line("tick", f"tick-{i}", [1e6 + i], end=True), partition=0, timestamp_ms=START_MS + 3_600_000 * i)
        for i in (1, 2)
    ]


async def until_committed(worker: Worker, next_offset: int) -> None:
    """Return once ``worker`` has committed all before ``next_offset``."""
    await worker.until(lambda: any(entry["next_offset"] >= next_offset for entry in worker.logged("committed")))


async def live_until(plant: KafkaPlant, next_offset: int) -> Worker:
    """Start a worker, and kill it once it has committed all before ``next_offset``."""
    worker = plant.start()
    await until_committed(worker, next_offset)
    worker.kill()
    return worker


async def test_thousands_of_sequences_above_an_open_one_cost_no_more_progress_per_commit_and_come_once(
    kafka: Broker, plants: KafkaPlants
) -> None:
    rng = random.Random(41)
    plant = await plants.make(kafka.bootstrap, partitions=1)
    texts = [line("stuck", "stuck-0", [0.0, 1.0])]
    for number in range(N_SEQUENCES):
        stream, own = f"s{number % N_STREAMS}", number // N_STREAMS
        value = 10.0 if rng.random() < 0.1 else 1.0
        texts.append(line(stream, f"{stream}-{own}", [3.0 * own + i for i in range(3)], value, end=True))
    offset, lives = 0, []
    for part in [texts[first : first + 400] for first in range(0, len(texts), 400)]:
        await plant.feed(messages(part, first=offset))
        lives.append(await live_until(plant, offset + rng.randrange(1, len(part) + 1)))
        offset += len(part)
    first_begins = [entry["begin"] for life in lives for entry in life.logged("partition assigned")]
    assert first_begins == [0] * len(lives), "the stuck sequence holds the low watermark"

    await plant.feed(messages([line("stuck", "stuck-0", [2.0], end=True)], first=offset))
    await plant.feed(last_messages())
    worker = plant.start()
    expected = await finish(plant, worker)
    assert len(expected["verdicts"]) >= N_SEQUENCES
    assert max(entry["low_watermark"] for entry in worker.logged("committed")) > N_SEQUENCES, "it let go"

    records = await read_committed(kafka.bootstrap, plant.progress)
    sizes = [len(record.value or b"") for record in records]
    heads = [number for number, record in enumerate(records) if record.key == b"p"]
    commits = [sum(sizes[before + 1 : head + 1]) for before, head in zip([-1, *heads], heads, strict=False)]
    assert len(commits) > len(lives)
    assert max(sizes) < RECORD_BYTES
    half = len(commits) // 2
    assert sum(commits[half:]) / (len(commits) - half) < COMMIT_BYTES


async def test_dead_letters_and_late_records_above_the_low_watermark_are_written_once(
    kafka: Broker, plants: KafkaPlants
) -> None:
    plant = await plants.make(kafka.bootstrap, partitions=1)
    offset, lives = 0, []
    await plant.feed(messages([line("stuck", "stuck-0", [0.0, 1.0])]))
    for number in range(6):
        texts = [
            line("s", f"s-{number}", [100.0 * number + i for i in range(4)], end=True),
            b"{",
            line("s", f"s-{number}", [100.0 * number + 3.5]),  # closed
            line("s", f"s-{number}-late", [100.0 * number - 50.0]),  # too late for its stream
            b'{"stream": 3}',
            line("t", f"t-{number}", [100.0 * number], end=number % 2 == 0),
            line("s", f"s-{number}", [100.0 * number + 3.6]),
        ]
        await plant.feed(messages(texts, first=offset + 1))
        offset += len(texts)
        for next_offset in (offset - len(texts) // 2, offset + 1):
            lives.append(await live_until(plant, next_offset))
            lives.append(await live_until(plant, next_offset))  # one that has nothing new to tell
    assert [entry["begin"] for life in lives for entry in life.logged("partition assigned")] == [0] * len(lives)
    await plant.feed(last_messages())
    expected = await finish(plant, plant.start())
    assert len(expected["dead_letters"]) == 2 * 6
    assert len(expected["late"]) >= 2 * 6


async def test_killed_at_every_step_between_the_ends_of_two_sequences_of_a_stream_that_were_open_at_once(
    kafka: Broker, plants: KafkaPlants
) -> None:
    texts = [
        line("s", "a", [0.0, 1.0]),
        line("s", "a", [3.0]),
        line("s", "b", [6.0, 7.0], 10.0),  # a may still get late-comers
        line("s", "a", [2.0, 4.0]),
        line("other", "x", [5.0], end=True),
        line("s", "b", [8.0], 10.0),
        line("s", "a", [5.0], end=True),
        line("s", "b", [9.0], 10.0),
        line("s", "a", [4.5]),  # late: a is closed
        line("s", "b", [6.5], 10.0),
        line("other", "y", [9.0], end=True),
        line("s", "b", [10.0], 10.0, end=True),
        line("s", "c", [11.0]),
        line("s", "b", [10.5]),
        line("s", "c", [12.0], end=True),
    ]
    plant = await plants.make(kafka.bootstrap, partitions=1)
    lives = []
    for number, message in enumerate(messages(texts)):
        await plant.feed([message])
        lives.append(await live_until(plant, number + 1))
    await plant.feed(last_messages())
    expected = await finish(plant, plant.start())
    of_s = [verdict["sequence"] for verdict in expected["verdicts"] if verdict["stream"] == "s"]
    assert of_s == ["a", "b", "c"]
    begins = [entry["begin"] for life in lives for entry in life.logged("partition assigned")]
    assert begins == sorted(begins)
    assert 0 < len(set(begins)) < len(begins), "some began below what was judged"
