"""The bridge against servers that answer as no mosquitto does: refusals, silence, other protocols, damaged packets."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad_connectors.mqtt import MqttInlet
from streamad_connectors.mqtt.options import MqttInletOptions
from tests.support.waiting import IN_TIME_S

ACCEPTED = b"\x20\x03\x00\x00\x00"  # CONNACK: no session, success, no properties
CONNECT, PUBACK, SUBSCRIBE = 0x10, 0x40, 0x82


class Script:
    """What a server answers: to CONNECT, to each SUBSCRIBE (reason codes); ``then``: what it sends afterwards.

    Each of ``then`` goes to one connection, which it ends but for the last.
    """

    def __init__(self, connack: bytes = ACCEPTED, suback: bytes = b"\x01", then: Sequence[bytes] = ()) -> None:
        self.connack, self.suback, self.then = connack, suback, list(then)
        self.acknowledged: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        n_subscribed = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                kind, body = await _packet(reader)
                if kind == CONNECT:
                    writer.write(self.connack)
                elif kind == SUBSCRIBE:
                    writer.write(b"\x90" + bytes([3 + len(self.suback)]) + body[:2] + b"\x00" + self.suback)
                    n_subscribed += 1
                    if n_subscribed == 2 and self.then:  # its topics and what was dropped
                        writer.write(self.then.pop(0))
                        if self.then:
                            return
                elif kind == PUBACK:
                    self.acknowledged.append(int.from_bytes(body[:2], "big"))


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind, size, shift = (await reader.readexactly(1))[0], 0, 0
    while True:
        (digit,) = await reader.readexactly(1)
        size |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            return kind, await reader.readexactly(size)


@asynccontextmanager
async def served(script: Script) -> AsyncIterator[MqttInlet]:
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = MqttInletOptions.model_validate({"connect_timeout": "300ms"})
    inlet = MqttInlet(f"127.0.0.1:{port}/plant/+/samples", options, ConnectorContext((), SystemClock(), Path()))
    try:
        yield inlet
    finally:
        inlet.stop()
        await inlet.close()
        server.close()
        await server.wait_closed()


def publish(topic: bytes, payload: bytes, number: int, first: int = 0x32) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic + number.to_bytes(2, "big") + b"\x00" + payload
    return bytes([first, len(body)]) + body


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (Script(b"\x20\x03\x00\x84\x00"), "refuses: it does not speak MQTT 5, which the bridge needs"),
        (Script(b"\x20\x02\x00\x01"), "MQTT 5"),  # as MQTT 3.1.1 answers to a version that it does not speak
        (Script(b"\x20\x03\x00\x87\x00"), "refuses: this user may not connect"),
        (Script(b"\x20\x03\x00\x8a\x00"), "refuses: this client is banned"),
        (Script(b"\x20\x03\x00\x88\x00"), "refuses: Server unavailable"),
        (Script(b""), "no answer within 0.3 s"),
        (Script(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "the connection ended|no answer within"),
        (Script(b"\xff" * 40), "the connection ended|no answer within"),
        (Script(suback=b"\x87"), "refuses the subscription to plant/\\+/samples: Not authorized"),
        (Script(suback=b"\x8f"), "refuses the subscription to plant/\\+/samples: Topic filter invalid"),
        (Script(suback=b"\x00"), "with QoS 0 alone"),
    ],
)
async def test_a_server_that_is_of_no_use_is_one_line_in_time(script: Script, said: str) -> None:
    problems = _problems()
    async with served(script) as inlet:
        with pytest.raises(SourceError, match=said) as caught:
            async with asyncio.timeout(IN_TIME_S):
                _ = [record async for record in inlet.messages()]
    assert "\n" not in str(caught.value)
    assert problems == []


async def test_a_damaged_packet_hangs_nothing() -> None:
    """The next connection's message is taken, or the bridge ends with one line; nothing is raised in the loop."""
    problems = _problems()
    rng = random.Random(0)
    ends = Counter[str]()
    for _ in range(40):
        damaged = bytearray(publish(b"plant/r1/samples", bytes(rng.randrange(256) for _ in range(12)), 4))
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        script = Script(then=[bytes(damaged), publish(b"plant/r1/samples", b"7", 5)])
        async with served(script) as inlet, asyncio.timeout(IN_TIME_S):
            try:
                async for record in inlet.messages():
                    inlet.release(1)
                    if record.value == b"7":
                        break
            except SourceError as error:
                ends[str(error).partition(" sends ")[2]] += 1
                continue
            while script.acknowledged[-1:] != [5]:  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(0.001)
            ends["goes on"] += 1
    assert ends.keys() == {"goes on", "what is no MQTT (UnicodeDecodeError)"}
    assert min(ends.values()) > 3
    assert problems == []


def _problems() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found
