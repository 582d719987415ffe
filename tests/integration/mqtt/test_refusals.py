"""What brokers refuse, by a stub that answers with the bytes of MQTT 5: one line, and no second try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
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
from tests.support.waiting import LIMIT_S

_CONNECT, _PUBLISH, _SUBSCRIBE = 0x10, 0x30, 0x80
CONTEXT = ConnectorContext((), SystemClock(), Path())


@asynccontextmanager
async def stub(*, connack: bytes = b"\x00\x00\x00", suback: int = 1, puback: int = 0) -> AsyncIterator[str]:
    """Yield the address of a broker that answers with ``connack`` (flags, reason, properties) and these reasons.

    MQTT 5, sections 3.2, 3.9 and 3.4. The packets that it gets are shorter than 128 bytes.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, length = await reader.readexactly(2)
                body = await reader.readexactly(length)
                if kind & 0xF0 == _CONNECT:
                    writer.write(b"\x20" + bytes([len(connack)]) + connack)
                elif kind & 0xF0 == _SUBSCRIBE:
                    writer.write(b"\x90\x04" + body[:2] + b"\x00" + bytes([suback]))
                elif kind & 0xF0 == _PUBLISH:
                    at = 2 + int.from_bytes(body[:2])
                    writer.write(b"\x40\x03" + body[at : at + 2] + bytes([puback]))

    async with listening(serve) as address:
        yield address


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Yield the address at which ``serve`` answers; every connection is closed at the end."""
    begun: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        begun.append(task)
        await serve(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*begun)


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
