"""Partitions on their way out: what was under way for them ends before the committer lets them go."""

from __future__ import annotations

__all__ = ["Releases"]

import asyncio
from collections.abc import Sequence
from typing import Any

from streamad.ports import Committer


class Releases:
    """Gives partitions up to ``committer``, one after the other where the same one is dropped again meanwhile."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._under_way: dict[str, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Return those under way; they raise what the committer raises."""
        return list(self._under_way.values())

    def begin(self, name: str, left: Sequence[asyncio.Task[Any]], *, is_ours: bool) -> None:
        """Cancel what is ``left`` to do for a partition and, unless it ``is_ours``, give it up when that has ended."""
        for task in left:
            task.cancel()
        before = self._under_way.get(name)
        release = asyncio.create_task(self._release(name, [*left, *([before] if before else [])], is_ours=is_ours))
        self._under_way[name] = release
        release.add_done_callback(lambda _: self._ended(name, release))

    async def done(self, name: str) -> None:
        """Return once no release of the partition is under way, however it ended."""
        if (release := self._under_way.get(name)) is not None:
            await asyncio.wait([release])

    async def _release(self, name: str, left: list[asyncio.Task[Any]], *, is_ours: bool) -> None:
        await asyncio.gather(*left, return_exceptions=True)
        if not is_ours:  # or the committer would forget how often it was fenced, and since when its commits fail
            await self._committer.release(name)

    def _ended(self, name: str, release: asyncio.Task[None]) -> None:
        if self._under_way.get(name) is release:
            del self._under_way[name]
