"""Work that is done whole, also where whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def finished(work: Coroutine[Any, Any, _T]) -> _T:
    """Return what ``work`` returns; a cancellation goes on only after it has ended, and whatever it raised is let go.

    For work in a thread, which must leave a file before anybody else touches it, and for clients to be closed.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # asyncio complains of those that nobody looked at
        raise
