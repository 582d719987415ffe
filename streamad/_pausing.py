"""Waiting on the injected clock for what may come sooner."""

from __future__ import annotations

__all__ = ["pause"]

import asyncio

from streamad.ports import Clock


async def pause(seconds: float, clock: Clock, woken: asyncio.Event) -> None:
    """Return when ``woken`` is set or ``seconds`` have passed on ``clock``."""
    tasks = {asyncio.ensure_future(woken.wait()), asyncio.ensure_future(clock.sleep(seconds))}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
