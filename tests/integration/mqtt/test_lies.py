"""What brokers and publishers send without leave: by a stub that sends the bytes of MQTT 5."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad_connectors.mqtt import MqttInlet
from streamad_connectors.mqtt.connection import Connection
from streamad_connectors.mqtt.inlet import DROPPED
from streamad_connectors.mqtt.options import MqttInletOptions, MqttOptions, Place, credentials_of
from tests.support.mqtt_stub import publish, stub
from tests.support.waiting import LIMIT_S

QUOTA_EXCEEDED = b"\xe0\x02\x97\x00"


@asynccontextmanager
async def reading(sent: bytes, topic: str, acknowledged: list[int]) -> AsyncIterator[tuple[MqttInlet, list[str]]]:
    """Yield an inlet to which a broker sends ``sent``, and the topics of what has come."""
    async with stub(sent=sent, acknowledged=acknowledged) as address:
        inlet = MqttInlet(f"{address}/{topic}", MqttInletOptions(), ConnectorContext((), SystemClock(), Path()))
        topics: list[str] = []

        async def read() -> None:
            async for record in inlet.messages():
                topics.append(record.label)

        task = asyncio.create_task(read())
        try:
            yield inlet, topics
        finally:
            inlet.stop()
            await asyncio.gather(task)
            await inlet.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - what a stub sends
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("said", [b"9" * 5_000, b"9" * 400, b"many", b"\xff"])
async def test_a_counter_that_is_no_number_is_passed_over(said: bytes) -> None:
    sent = publish(DROPPED, b"7") + publish(DROPPED, said) + publish("plant/r1", b"1", 1)
    async with reading(sent, "plant/+", []) as (inlet, topics):
        await until(lambda: bool(topics))
        assert inlet.counts.broker_dropped == 7


async def test_the_counter_is_a_message_for_those_who_subscribe_to_it() -> None:
    acknowledged: list[int] = []
    sent = publish(DROPPED, b"7", 3) + publish("$SYS/broker/load", b"1", 4)
    async with reading(sent, "$SYS/#", acknowledged) as (inlet, topics):
        await until(lambda: len(topics) == 2)
        inlet.release(2)
        await until(lambda: acknowledged == [3, 4])
    async with reading(publish(DROPPED, b"7") + publish("a", b"1", 3), "#", acknowledged) as (_, topics):
        await until(lambda: bool(topics))
        assert topics == ["a"]


async def test_large_messages_are_held_up_to_64_megabytes() -> None:
    sent = b"".join(publish("plant/r1", bytes(1_000_000), number) for number in range(1, 101))
    acknowledged: list[int] = []
    async with reading(sent, "plant/+", acknowledged) as (inlet, topics):
        await until(lambda: len(topics) == 68)
        for _ in range(20):
            await asyncio.sleep(0)
        assert inlet.counts.in_flight == 68
        inlet.release(68)
        await until(lambda: len(topics) == 100)
        inlet.release(32)
        await until(lambda: acknowledged == [*range(1, 101)])


async def test_a_broker_that_says_why_it_ends_the_connection_is_waited_for() -> None:
    with capture_logs() as logs:
        async with reading(QUOTA_EXCEEDED, "plant/+", []) as (inlet, _):
            await until(lambda: inlet.counts.connections == 6)
    assert sum("Quota exceeded" in line.get("why", "") for line in logs) >= 5


async def test_a_broker_that_is_silent_is_no_other_client_that_takes_over() -> None:
    """It is also silent for a bridge that does not read, since Kafka is away, and looks at no answer."""
    options = MqttOptions(keep_alive="1s")  # type: ignore[arg-type] # as the config has it
    async with stub() as address:
        credentials = credentials_of(options.security, Path(), encrypts=False)
        connection = Connection(Place.of(address, encrypts=False), options, credentials, "streamad")
        await connection.open()
        async with asyncio.timeout(LIMIT_S):
            ended = await connection.ended
        await connection.close()
    assert (ended.is_told, ended.is_final) == (True, False)
    assert "Keep alive timeout" in ended.text
