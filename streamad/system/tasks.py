"""Asyncio tasks: work that a cancelled caller must not interrupt, waits for several things, pauses, reading ahead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


async def finished(work: Coroutine[Any, Any, _T]) -> _T:
    """Return what ``work`` returns. A cancellation takes effect only after ``work`` has ended, and drops its error.

    For work in a thread, which must leave a file before another caller touches it, and for clients to be closed.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        look_at(task)
        raise


def look_at(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a future that is done, because asyncio logs those that were never retrieved."""
    if not future.cancelled():
        future.exception()


def is_stop(error: BaseException) -> bool:
    """Return whether ``error`` ends the running task from outside: a Ctrl-C, or a cancellation that was requested.

    A CancelledError or GeneratorExit that foreign code raises is none: nobody has cancelled the task.
    """
    if not isinstance(error, asyncio.CancelledError | GeneratorExit):
        return isinstance(error, KeyboardInterrupt)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a coroutine that is closed after its loop
        return True
    return task is None or task.cancelling() > 0


async def wait_for_either(event: asyncio.Event, *futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Return once ``event`` is set or one of ``futures`` is done, or after ``timeout_s``; cancels no future."""
    is_set = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({is_set, *futures}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_set.cancel()


class Backoff:
    """A pause between attempts: ``first_us``, doubled by each failure in a row, at least ``shortest_us`` after one."""

    def __init__(self, first_us: int, longest_us: int, shortest_us: int = 0) -> None:
        self._first_us = first_us
        self._longest_us = max(longest_us, first_us)
        self._shortest_us = shortest_us
        self.pause_us = first_us

    def failed(self) -> None:
        """Double the pause, up to ``longest_us``."""
        self.pause_us = min(max(2 * self.pause_us, self._shortest_us), self._longest_us)

    def reset(self) -> None:
        """Return to the first pause, after a success."""
        self.pause_us = self._first_us


_ItemT = TypeVar("_ItemT")


class Arrived(Generic[_ItemT]):
    """Reads ``items`` ahead while it is entered: at most ``most``, and no more once their sizes reach ``most_size``."""

    def __init__(
        self, items: AsyncIterator[_ItemT], size: Callable[[_ItemT], int], *, most: int = 500, most_size: int = 16 << 20
    ) -> None:
        self._items, self._size, self._most, self._most_size = items, size, most, most_size
        self._held: list[_ItemT] = []
        self._held_size = 0
        self._has_news, self._has_room = asyncio.Event(), asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Arrived[_ItemT]:
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._has_news.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async for item in self._items:
            self._held.append(item)
            self._held_size += self._size(item)
            self._has_news.set()
            while len(self._held) >= self._most or self._held_size >= self._most_size:
                self._has_room.clear()
                await self._has_room.wait()

    async def take(self) -> list[_ItemT]:
        """Return what has arrived, in order, at least one item; nothing at the end. Raises what the iterator raises."""
        assert self._reading is not None
        while not self._held:
            if self._reading.done():
                self._reading.result()
                return []
            self._has_news.clear()
            await self._has_news.wait()
        held, self._held, self._held_size = self._held, [], 0
        self._has_room.set()
        return held
