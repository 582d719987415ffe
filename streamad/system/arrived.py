"""What has arrived of an asynchronous iterator: read ahead in the background, and handed out together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Arrived(Generic[_T]):
    """Reads ``items`` ahead while it is entered: at most ``most``, and no more once their sizes reach ``most_size``."""

    def __init__(
        self, items: AsyncIterator[_T], size: Callable[[_T], int], *, most: int = 500, most_size: int = 16 << 20
    ) -> None:
        self._items, self._size, self._most, self._most_size = items, size, most, most_size
        self._held: list[_T] = []
        self._held_size = 0
        self._has_news, self._has_room = asyncio.Event(), asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Arrived[_T]:
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

    async def take(self) -> list[_T]:
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
