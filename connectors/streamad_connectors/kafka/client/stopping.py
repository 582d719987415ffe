"""Stops aiokafka's clients, and cancelled starts of them, in bounded time.

Their own ``stop`` waits for as long as the broker is away. aiokafka 0.14 has no public way around it.
"""

# ruff: noqa: SLF001 - only aiokafka's private state leads to its sockets

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection

from streamad.system.tasks import finished, look_at

_Client: TypeAlias = AIOKafkaProducer | AIOKafkaConsumer
_STOP_S = 1.0
_ROUNDS = 5


async def connected(start: Coroutine[Any, Any, None]) -> None:
    """Await ``start``, a client's start() or bootstrap(). If it raises or is cancelled, the caller stops the client.

    A start that is cancelled during its first metadata request loses the reference to that connection, which would
    stay open until garbage collection. It is closed here.
    """
    starting = asyncio.ensure_future(start)
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await finished(_cancel_start(starting))
        raise


async def _cancel_start(starting: asyncio.Task[None]) -> None:
    starting.add_done_callback(look_at)
    for _ in range(_ROUNDS):  # aiokafka may treat a cancellation as a failed broker and try the next one
        first = _first_connection(starting)
        starting.cancel()
        await asyncio.wait([starting], timeout=_STOP_S / _ROUNDS)
        if first is not None:
            first.close()
        if starting.done():
            return


def _first_connection(starting: asyncio.Task[None]) -> AIOKafkaConnection | None:
    """Return the connection of the first metadata request; only the frame of ``starting`` refers to it."""
    coroutine: Any = starting.get_coro()
    while inspect.iscoroutine(coroutine):
        found = inspect.getcoroutinelocals(coroutine).get("bootstrap_conn")
        if isinstance(found, AIOKafkaConnection):
            return found
        coroutine = coroutine.cr_await
    return None


async def stop_client(client: _Client, within_s: float) -> None:
    """Stop ``client`` gracefully for up to ``within_s``, then discard it. Never raises.

    Nothing is awaited under a time-out's cancellation, because aiokafka swallows some of them and keeps waiting.
    """
    stopping = asyncio.ensure_future(client.stop())
    stopping.add_done_callback(look_at)
    try:
        await asyncio.wait({stopping}, timeout=within_s)
    finally:
        # Also after a graceful stop(): a consumer's ends as cancelled if a fetch waits to be retried, and leaves the
        # rest open.
        stopping.cancel()
        await discard(client)


async def discard(client: _Client) -> None:
    """Close the sockets of ``client`` and cancel its tasks, in bounded time; never raises.

    The broker gets no message: an open transaction stays open until it is fenced or times out. A cancellation of the
    caller takes effect afterwards.
    """
    await finished(_discard(client))


async def _discard(client: _Client) -> None:
    net = client.client if isinstance(client, AIOKafkaProducer) else client._client
    for connection in net._conns.values():
        if connection._writer is not None:
            connection._writer.transport.abort()  # close() would first wait for the write buffer
    await _cancel_tasks(client)
    for stop in (client.stop, net.close):  # a consumer's stop ends early at a cancelled task of its own
        stopping = asyncio.ensure_future(stop())
        await asyncio.wait([stopping], timeout=_STOP_S / 2)
        stopping.cancel()
        await _cancel_tasks(client)
        await asyncio.wait([stopping], timeout=_STOP_S / 2)
        if stopping.done():
            look_at(stopping)


async def _cancel_tasks(client: _Client) -> None:
    """Cancel the tasks of ``client``, in rounds, because some wait for others before they end."""
    for _ in range(_ROUNDS):
        tasks = _tasks_of(client)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        done, _pending = await asyncio.wait(tasks, timeout=_STOP_S / _ROUNDS)
        for task in done:
            look_at(task)


def _tasks_of(client: _Client) -> list[asyncio.Task[Any]]:
    """Return the tasks that run a method of ``client`` or of one of its parts; aiokafka keeps no list of them."""
    parts = {id(part) for part in (client, *vars(client).values()) if type(part).__module__.startswith("aiokafka.")}
    tasks = []
    for task in asyncio.all_tasks():
        coroutine = task.get_coro()
        if inspect.iscoroutine(coroutine) and id(inspect.getcoroutinelocals(coroutine).get("self")) in parts:
            tasks.append(task)
    return tasks
