from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection

from streamad_connectors.kafka.client.stopping import connected, discard, stop_client
from tests.support.waiting import LIMIT_S


class SilentBroker:
    """A server that takes whatever it is sent and never answers."""

    def __init__(self) -> None:
        self.address = ""
        self.is_reached = asyncio.Event()
        self.readers: list[asyncio.StreamReader] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep the connection."""
        self.readers.append(reader)
        self.writers.append(writer)
        self.is_reached.set()


@pytest.fixture
async def silent_broker() -> AsyncIterator[SilentBroker]:
    """One that is up."""
    broker = SilentBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield broker
    server.close()
    for writer in broker.writers:
        writer.close()


@pytest.mark.parametrize("end", [discard, partial(stop_client, within_s=0.05)], ids=["discard", "stop_client"])
@pytest.mark.parametrize("turns", range(1, 12))
async def test_a_client_is_closed_whenever_its_end_is_cancelled(
    end: Callable[[AIOKafkaConsumer], Coroutine[Any, Any, None]], turns: int, silent_broker: SilentBroker
) -> None:
    """aiokafka complains of what was left open when the collector finds it, in the midst of whatever runs then."""
    consumer = AIOKafkaConsumer(bootstrap_servers=silent_broker.address)
    async with asyncio.timeout(LIMIT_S):
        starting = asyncio.ensure_future(consumer.start())
        await silent_broker.is_reached.wait()
        ending = asyncio.ensure_future(end(consumer))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_cancelled = ending.cancel()
        await asyncio.wait([ending, starting])
    assert ending.cancelled() == is_cancelled
    assert consumer._closed  # noqa: SLF001 - else its __del__ complains
    assert starting.cancelled() or starting.exception() is not None


@pytest.mark.parametrize("kind", [AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaClient])
async def test_a_start_that_is_cancelled_while_it_asks_for_the_cluster_leaves_no_connection(
    kind: type[AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaClient],
    silent_broker: SilentBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks = asyncio.Event()

    async def knows_the_versions(_: AIOKafkaConnection) -> None:
        return None

    def asked(*_: Any) -> asyncio.Future[Any]:
        asks.set()
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(AIOKafkaConnection, "_do_version_lookup", knows_the_versions)
    monkeypatch.setattr(AIOKafkaConnection, "send", asked)
    client = kind(bootstrap_servers=silent_broker.address)
    start = client.bootstrap() if isinstance(client, AIOKafkaClient) else client.start()
    starting = asyncio.ensure_future(connected(start))
    await asks.wait()
    starting.cancel()
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(asyncio.CancelledError):
            await starting
        (reader,) = silent_broker.readers
        assert await reader.read() == b"", "closed, though the client does not know it"
        await (client.close() if isinstance(client, AIOKafkaClient) else discard(client))
        assert asyncio.all_tasks() == {asyncio.current_task()}
