"""A broker of MQTT 5 that answers with what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

_CONNECT, _PUBLISH, _PUBACK, _SUBSCRIBE = 0x10, 0x30, 0x40, 0x80


def publish(topic: str, payload: bytes, number: int = 0) -> bytes:
    """Return the packet of a message, with QoS 1 if it has a number."""
    name = topic.encode()
    body = len(name).to_bytes(2) + name + (number.to_bytes(2) if number else b"") + b"\x00" + payload
    size, length = b"", len(body)
    while length > 127:
        size, length = size + bytes([length % 128 + 128]), length // 128
    return bytes([_PUBLISH + 2 * bool(number)]) + size + bytes([length]) + body


@asynccontextmanager
async def stub(
    *,
    connack: bytes = b"\x00\x00\x00",
    suback: int | tuple[int, ...] = 1,
    puback: int = 0,
    sent: bytes = b"",
    acknowledged: list[int] | None = None,
) -> AsyncIterator[str]:
    """Yield the address of a broker that answers with ``connack`` (flags, reason, properties) and these reasons.

    MQTT 5, sections 3.2, 3.9 and 3.4. The packets that it gets are shorter than 128 bytes. Packets of ``sent`` follow
    the answer to a second subscription, which the bridge has for the broker's counter; ``acknowledged`` gets numbers.
    """
    reasons = bytes([suback]) if isinstance(suback, int) else bytes(suback)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            n_subscribed = 0
            while True:
                kind, length = await reader.readexactly(2)
                body = await reader.readexactly(length)
                if kind & 0xF0 == _CONNECT:
                    writer.write(b"\x20" + bytes([len(connack)]) + connack)
                elif kind & 0xF0 == _SUBSCRIBE:
                    n_subscribed += 1
                    answer = reasons if n_subscribed == 1 else b"\x00"
                    writer.write(b"\x90" + bytes([3 + len(answer)]) + body[:2] + b"\x00" + answer)
                    writer.write(sent if n_subscribed == 2 else b"")
                elif kind & 0xF0 == _PUBACK and acknowledged is not None:
                    acknowledged.append(int.from_bytes(body[:2]))
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
