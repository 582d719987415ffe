"""Ends aiokafka's clients in bounded time: on their own they wait for as long as the broker is away."""

from __future__ import annotations

__all__ = ["stop_client"]

import asyncio
import contextlib
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

_Client: TypeAlias = AIOKafkaProducer | AIOKafkaConsumer
_TEAR_DOWN_S = 1.0
# Where aiokafka 0.14 keeps the tasks that go on when stop() was cancelled; there is no public way to end them.
_TASKS = (
    ("_sender", "_sender_task"),
    ("_coordinator", "_coordination_task"),
    ("_coordinator", "_heartbeat_task"),
    ("_coordinator", "_commit_refresh_task"),
    ("_coordinator", "_reset_committed_task"),
    ("_fetcher", "_fetch_task"),
)


async def stop_client(client: _Client, within_s: float) -> None:
    """Stop ``client`` in good order; where that takes longer than ``within_s``, tear it down. Never raises.

    Nothing is awaited under a time-out's cancellation: aiokafka swallows some of them and would wait on.
    """
    stopping = asyncio.ensure_future(client.stop())
    try:
        await asyncio.wait({stopping}, timeout=within_s)
    finally:
        if not stopping.done():
            stopping.cancel()
            for task in _tasks_of(client):
                task.cancel()
            tearing_down = asyncio.ensure_future(_tear_down(client))
            await asyncio.wait({stopping, tearing_down}, timeout=_TEAR_DOWN_S)
            tearing_down.cancel()
    if stopping.done() and not stopping.cancelled():
        stopping.exception()  # whatever it was, the client is of no more use


async def _tear_down(client: _Client) -> None:
    inner: Any = client.client if isinstance(client, AIOKafkaProducer) else client._client
    with contextlib.suppress(KafkaError, OSError):  # a connection that is broken already
        await inner.close()


def _tasks_of(client: _Client) -> list[asyncio.Task[Any]]:
    found = (getattr(getattr(client, part, None), name, None) for part, name in _TASKS)
    return [task for task in found if isinstance(task, asyncio.Task)]
