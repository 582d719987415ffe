"""Windows in parts on a real broker: whole after a commit, nothing of an aborted one, and again until released."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from aiokafka import AIOKafkaProducer

from streamad.messages import OutputRecord, Window, packed_values, unpacked_values
from streamad.plugins import ConnectorContext, connect_subscription
from streamad.testing import ManualClock
from streamad_connectors.kafka.reading.subscription import KafkaSubscription
from streamad_connectors.kafka.writing.committer import KafkaCommitter
from streamad_connectors.kafka.writing.messages import encode
from tests.support.kafka.broker import Broker, Message, configure, new_topic, produce, unique_name
from tests.support.kafka.commits import make_plant, steps_of
from tests.support.waiting import LIMIT_S

NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
VALUES = np.random.default_rng(1).normal(size=(8, 4_000)).astype(np.float32)
LIMIT_BYTES = 12_000


def window(name: str, values: np.ndarray[Any, np.dtype[np.float32]] = VALUES) -> Window:
    return Window(
        verdict_id=name,
        stream="s",
        sequence=name,
        start_time=NOW,
        end_time=NOW,
        n_samples=values.shape[1],
        model=None,
        channels=[f"c{number}" for number in range(len(values))],
        units=["°C"] * len(values),
        length=values.shape[1],
        values=packed_values(values),
        alerted=False,
        created_at=NOW,
    )


def subscription_to(broker: str, topic: str, **options: Any) -> KafkaSubscription:
    given = {"start": "earliest", **options}
    found = connect_subscription(f"kafka://{broker}/{topic}", given, ConnectorContext((), ManualClock(), Path()))
    return cast("KafkaSubscription", found)


async def test_what_a_transaction_commits_is_whole_and_of_an_aborted_one_nothing_comes(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    topic = plant.outputs["events"]
    await configure(plant.bootstrap, topic, {"max.message.bytes": str(LIMIT_BYTES)})
    record = OutputRecord("events", "s", window("a"))
    parts = encode(record, topic, LIMIT_BYTES)
    assert len(parts) > 10
    async with AIOKafkaProducer(bootstrap_servers=plant.bootstrap, transactional_id=unique_name("other")) as producer:
        await producer.begin_transaction()
        for part in parts[:4]:
            await producer.send_and_wait(topic, part.value, part.key, headers=list(part.headers))
        await producer.abort_transaction()
    (step,) = steps_of(plant.partition(), 1)
    committer = KafkaCommitter(plant.state(), plant.sinks(max_message_bytes=LIMIT_BYTES))
    await committer.restore(plant.partition())
    await committer.commit(step.update, [*step.outputs, record])
    await committer.close()
    reading = subscription_to(plant.bootstrap, topic)
    reading.end_with_present()
    async with asyncio.timeout(LIMIT_S):
        found = [each.value async for each in reading.messages()]
    await reading.close()
    whole = [value for value in found if b'"type":"window"' in value]
    assert whole == [msgspec.json.encode(record.message)]
    assert unpacked_values(msgspec.json.decode(whole[0], type=Window)).tobytes() == VALUES.tobytes()
    assert len(found) == 1 + sum(each.role == "events" for each in step.outputs)


async def test_a_window_in_parts_comes_again_whole_until_it_is_released(kafka: Broker) -> None:
    """Messages of other producers lie between its parts; the group begins with its first part."""
    topic, group = await new_topic(kafka, 1), unique_name("group")
    parts = encode(OutputRecord("windows", "s", window("a")), topic, 50_000)
    assert len(parts) > 3
    sent = [Message(part.value, b"s", 0, headers=part.headers) for part in parts]
    await produce(
        kafka.bootstrap, topic, [*sent[:2], Message(b"1", partition=0), *sent[2:], Message(b"2", partition=0)]
    )
    whole = msgspec.json.encode(window("a"))

    async def read(n: int, *, released: int) -> list[bytes]:
        reading = subscription_to(kafka.bootstrap, topic, group=group)
        reading.hold()
        messages = reading.messages()
        async with asyncio.timeout(LIMIT_S):
            found = [(await anext(messages)).value for _ in range(n)]
        reading.release(released)
        await cast("Any", messages).aclose()
        await reading.close()
        return found

    assert await read(3, released=1) == [b"1", whole, b"2"]
    assert await read(2, released=2) == [b"1", whole]
    await produce(kafka.bootstrap, topic, [Message(b"3", partition=0)])
    assert await read(2, released=2) == [b"2", b"3"]


async def test_a_window_whose_first_parts_are_gone_is_a_message_with_a_problem(kafka: Broker) -> None:
    topic = await new_topic(kafka, 1)
    parts = encode(OutputRecord("windows", "s", window("a")), topic, 50_000)
    sent = [Message(part.value, b"s", 0, headers=part.headers) for part in parts[1:]]
    await produce(kafka.bootstrap, topic, [*sent, Message(b"2", partition=0)])
    reading = subscription_to(kafka.bootstrap, topic)
    reading.end_with_present()
    async with asyncio.timeout(LIMIT_S):
        found = [each async for each in reading.messages()]
    await reading.close()
    assert [each.value for each in found] == [b"", b"2"]
    assert "a window in parts is lost: some were deleted before they were read" in (found[0].problem or "")
    assert found[0].place == f"{topic}-0, offset {len(sent) - 1}"
