"""Content that is the same for everybody: made once for all who ask for it, as many browsers do after each change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

APART_S = 0.25
FRESH_S = 1.0
_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Makes content with ``make`` in a thread, at most once in ``APART_S``.

    Law: nobody gets content that is older than the last change at the time of asking, or than ``FRESH_S``. ``state``
    returns a value that differs after a change.
    """

    def __init__(self, make: Callable[[], _T], state: Callable[[], Hashable]) -> None:
        self._make, self._state = make, state
        self._begun_s = float("-inf")
        self._seen: Hashable = None
        self._made: asyncio.Task[_T] | None = None
        self._next: asyncio.Task[_T] | None = None

    async def get(self) -> _T:
        """Return the content; raises what ``make`` raises."""
        if self._next is None and not self._is_fresh():
            self._next = asyncio.create_task(self._renew())
        task = self._next or self._made
        assert task is not None
        return await asyncio.shield(task)  # others wait for it, too

    def _is_fresh(self) -> bool:
        made = self._made
        if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
            return False
        is_young = asyncio.get_running_loop().time() - self._begun_s < FRESH_S
        return self._seen == self._state() and is_young

    async def _renew(self) -> _T:
        loop = asyncio.get_running_loop()
        if self._made is not None and not self._made.done():
            await asyncio.wait([self._made])
        await asyncio.sleep(self._begun_s + APART_S - loop.time())
        self._made, self._next = self._next, None
        self._begun_s, self._seen = loop.time(), self._state()
        return await run_in_threadpool(self._make)
