"""Ends aiokafka's clients, and starts that are given up, in bounded time.

On their own they wait for as long as the broker is away. Written against aiokafka 0.14, which has no public way to do
so.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection

from streamad.system.tasks import finished

_Client: TypeAlias = AIOKafkaProducer | AIOKafkaConsumer
_STOP_S = 1.0
_ROUNDS = 5


async def connected(start: Coroutine[Any, Any, None]) -> None:
    """Await ``start``, a client's start() or bootstrap(). The caller ends the client where it raises or is cancelled.

    One that is cancelled while it asks its first broker for the cluster forgets the connection to it, which stays
    open until the collector finds it. It is closed here.
    """
    starting = asyncio.ensure_future(start)
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await finished(_give_up(starting))
        raise


async def _give_up(starting: asyncio.Task[None]) -> None:
    starting.add_done_callback(look_at)
    for _ in range(_ROUNDS):  # aiokafka may take a cancellation for a broker that failed, and go on with the next
        first = _first_connection(starting)
        starting.cancel()
        await asyncio.wait([starting], timeout=_STOP_S / _ROUNDS)
        if first is not None:
            first.close()
        if starting.done():
            return


def _first_connection(starting: asyncio.Task[None]) -> AIOKafkaConnection | None:
    """Return the connection by which ``starting`` asks for the cluster: nothing but its own frame knows it."""
    coroutine: Any = starting.get_coro()
    while inspect.iscoroutine(coroutine):
        found = inspect.getcoroutinelocals(coroutine).get("bootstrap_conn")
        if isinstance(found, AIOKafkaConnection):
            return found
        coroutine = coroutine.cr_await
    return None


async def stop_client(client: _Client, within_s: float) -> None:
    """Stop ``client`` in good order for up to ``within_s``, then end what is left of it. Never raises.

    Nothing is awaited under a time-out's cancellation: aiokafka swallows some of them and would wait on.
    """
    stopping = asyncio.ensure_future(client.stop())
    stopping.add_done_callback(look_at)
    try:
        await asyncio.wait({stopping}, timeout=within_s)
    finally:
        # Also after a stop() in good order: a consumer's ends as cancelled where a fetch waits to be repeated, and
        # leaves the rest as it is.
        stopping.cancel()
        await discard(client)


async def discard(client: _Client) -> None:
    """Close the sockets of ``client`` and end its tasks, whatever they wait for; bounded, never raises.

    Nothing is said to the broker: an open transaction stays open until it is fenced or times out. All of it is done
    before a cancellation of the caller goes on.
    """
    await finished(_discard(client))


async def _discard(client: _Client) -> None:
    net = client.client if isinstance(client, AIOKafkaProducer) else client._client
    for connection in net._conns.values():
        if connection._writer is not None:
            connection._writer.transport.abort()  # close() would wait until all is written
    await _cancel_tasks(client)
    for stop in (client.stop, net.close):  # a consumer's stop ends early where it meets a cancelled task of its own
        stopping = asyncio.ensure_future(stop())
        await asyncio.wait([stopping], timeout=_STOP_S / 2)
        stopping.cancel()
        await _cancel_tasks(client)
        await asyncio.wait([stopping], timeout=_STOP_S / 2)
        if stopping.done():
            look_at(stopping)


async def _cancel_tasks(client: _Client) -> None:
    """End the tasks that ``client`` started; more than one round, for some wait for others before they end."""
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
    """Return the tasks that run a method of ``client`` or of one of its parts: aiokafka keeps no list of them."""
    parts = {id(part) for part in (client, *vars(client).values()) if type(part).__module__.startswith("aiokafka.")}
    tasks = []
    for task in asyncio.all_tasks():
        coroutine = task.get_coro()
        if inspect.iscoroutine(coroutine) and id(inspect.getcoroutinelocals(coroutine).get("self")) in parts:
            tasks.append(task)
    return tasks


def look_at(future: asyncio.Future[Any]) -> None:
    """Take the exception out of ``future``: asyncio complains of those that nobody looked at."""
    if not future.cancelled():
        future.exception()
