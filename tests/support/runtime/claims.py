"""A log of claims that processes share, in memory: what a compacted topic does, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from streamad.partition_progress import Claim


async def at_once() -> None:
    return


class ClaimTopic:
    """What outlives the processes: the claims in their order; ``pause`` is how long a write takes, ``lag`` a read."""

    def __init__(self, pause: Callable[[], Awaitable[None]] = at_once) -> None:
        self.pause = self.lag = pause
        self.entries: list[tuple[int, Claim]] = []
        self.readers: list[ClaimReader] = []
        self.n = 0

    def append(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.entries.append((self.n, claim))
            self.n += 1
        for reader in self.readers:
            reader.fetch()

    def compact(self) -> None:
        """Keep the last claim of each stream and partition, and none that has ended."""
        last = {(claim.stream, claim.partition): (at, claim) for at, claim in self.entries}
        self.entries = sorted(entry for entry in last.values() if not entry[1].ended)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is being written, and every process that listens has been given all that was."""
        return not any(reader.tasks for reader in self.readers)

    def living(self, stream: str) -> set[str]:
        last = {(claim.stream, claim.partition): claim for _, claim in self.entries}
        return {claim.partition for claim in last.values() if claim.stream == stream and not claim.ended}


class ClaimReader:
    """One process's view of the topic."""

    outlives = True

    def __init__(self, topic: ClaimTopic, on_news: Callable[[], None]) -> None:
        self._topic = topic
        self._on_news = on_news
        self._next = self._taken = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        topic.readers.append(self)

    async def catch_up(self) -> None:
        end = self._topic.n
        await self._topic.pause()
        self._next = max(self._next, end)

    def write(self, claims: Sequence[Claim]) -> None:
        async def written() -> None:
            async with self._writing:
                await self._topic.pause()
                self._topic.append(claims)

        self._begin(written())

    def fetch(self) -> None:
        async def fetched() -> None:
            end = self._topic.n
            await self._topic.lag()
            self._next = max(self._next, end)
            self._on_news()

        self._begin(fetched())

    def take(self) -> Sequence[tuple[int, Claim]]:
        new = [entry for entry in self._topic.entries if self._taken <= entry[0] < self._next]
        self._taken = max(self._taken, self._next)
        return new

    async def close(self) -> None:
        """End as a crash does: what is being written may be lost."""
        if self in self._topic.readers:
            self._topic.readers.remove(self)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
