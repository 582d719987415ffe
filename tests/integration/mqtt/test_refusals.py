"""What brokers refuse, by a stub that answers with the bytes of MQTT 5: one line, and no second try."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamad.errors import OutputError, SourceError
from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad.types import FeedRecord
from streamad_connectors.mqtt import MqttFeed, MqttInlet
from streamad_connectors.mqtt.options import MqttInletOptions, MqttOptions
from tests.support.mqtt_stub import listening, stub
from tests.support.waiting import LIMIT_S

CONTEXT = ConnectorContext((), SystemClock(), Path())


async def first(address: str) -> FeedRecord:
    inlet = MqttInlet(f"{address}/plant/+", MqttInletOptions(connect_timeout="500ms"), CONTEXT)
    messages = inlet.messages()
    try:
        async with asyncio.timeout(LIMIT_S):
            return await anext(messages)
    finally:
        await messages.aclose()
        await inlet.close()


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"connack": b"\x00\x84\x00"}, "refuses: it does not speak MQTT 5"),
        ({"connack": b"\x00\x01"}, "refuses|ended"),
        ({"connack": b"\x00\x86\x00"}, "refuses: user or password is wrong"),
        ({"connack": b"\x00\x89\x00"}, "refuses: Server busy"),
        ({"suback": 0x87}, r"refuses the subscription to plant/\+: Not authorized"),
        ({"suback": (1, 1)}, "answers the subscription to another number of topics"),
        ({"suback": 0}, r"gives plant/\+ with QoS 0 alone"),
    ],
)
async def test_a_refusal_is_one_line(answers: dict[str, Any], said: str) -> None:
    async with stub(**answers) as address:
        with pytest.raises(SourceError, match=said) as caught:
            await first(address)
    assert "\n" not in str(caught.value)


async def test_a_broker_that_says_nothing_is_not_waited_for_long() -> None:
    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(listen) as address:
        with pytest.raises(SourceError, match=r"no answer within 0\.5 s"):
            await first(address)


async def test_a_broker_that_keeps_sessions_for_less_time_is_named() -> None:
    with capture_logs() as logs:
        # Property 0x11: the session's expiry in seconds. The subscription is refused, which ends the try.
        async with stub(connack=b"\x00\x00\x05\x11\x00\x00\x00\x3c", suback=0x87) as address:
            with pytest.raises(SourceError, match="refuses the subscription"):
                await first(address)
    assert [line["seconds"] for line in logs if "less time" in line["event"]] == [60]


async def test_a_message_that_the_broker_refuses_ends_the_feed() -> None:
    async with stub(puback=0x97) as address:
        feed = MqttFeed(f"{address}/plant", MqttOptions(), CONTEXT)
        await feed.send([FeedRecord(b"1")])
        with pytest.raises(OutputError, match="refuses a message: Quota exceeded"):
            await feed.flush()
        await feed.close()
