"""Looks that come at the same time are scored together: a call of a detector costs much, a further window little."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from streamad.judge.early.model import Look, Scales
from streamad.judge.scoring import MicroBatcher
from streamad.system.tasks import look_at
from streamad.types import Window


class _Call(NamedTuple):
    windows: list[Window]
    task: asyncio.Task[Scales]


class Together:
    """Scores windows by looks. The last digits of a score depend on the company of its window; z leaves them out."""

    def __init__(self) -> None:
        self._calls: dict[tuple[MicroBatcher, int], _Call] = {}

    async def z(self, batcher: MicroBatcher, look: Look, window: Window) -> float:
        """Return the z of ``window``, scored with those that wait for the same look in this turn of the loop."""
        key = batcher, id(look)
        if key not in self._calls:
            windows: list[Window] = []
            task = asyncio.create_task(self._run(batcher, look, windows))
            task.add_done_callback(look_at)  # in case that all who wait are cancelled
            self._calls[key] = _Call(windows, task)
        call = self._calls[key]
        place = len(call.windows)
        call.windows.append(window)
        return float((await asyncio.shield(call.task))[place])

    async def _run(self, batcher: MicroBatcher, look: Look, windows: list[Window]) -> Scales:
        await asyncio.sleep(0)
        del self._calls[batcher, id(look)]
        return await batcher.run(look.z, windows)
