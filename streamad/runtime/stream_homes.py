"""Which partitions a stream is in: what the claims of all partitions say, whichever processes read them.

Laws (tests/unit/runtime/test_stream_homes.py, test_shared_homes.py), for claims that lie in the log in this order:
every process comes to the same answers, also one that reads the log after compaction; once two claims of a stream are
known to a process, it commits no verdict of the stream but ``unscorable``; one event is written about the split.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from streamad.partition_progress import Claim
from streamad.ports import ClaimLog

MAX_STREAMS = 100_000
"""The newest streams that are remembered. A claim that was forgotten is made again at the stream's next sequence."""


class LocalClaims:
    """A log of one process that reads all partitions: a claim is there at once, and gone with its partition."""

    outlives = False

    def __init__(self) -> None:
        self._n = 0
        self._new: list[tuple[int, Claim]] = []

    async def catch_up(self) -> None:
        """Return: nobody else claims."""

    def write(self, claims: Sequence[Claim]) -> None:
        """Append ``claims``."""
        for claim in claims:
            self._new.append((self._n, claim))
            self._n += 1

    def take(self) -> Sequence[tuple[int, Claim]]:
        """Return the claims since the last call."""
        new, self._new = self._new, []
        return new

    async def close(self) -> None:
        """Do nothing."""


class Home(NamedTuple):
    """A living claim: the places in the log of the first one and of the one that says the rest (see ``Claim``)."""

    partition: str
    since: int
    at: int
    time_us: int | None
    n_judged: int | None
    told: bool


class StreamHomes:
    """The living claims of the newest ``most`` streams, as far as this process has read the log.

    A stream with two of them is split, since the second one; that one's partition tells of it (``teller``).
    """

    def __init__(self, log: ClaimLog, most: int = MAX_STREAMS) -> None:
        self._log = log
        self._most = most
        self._homes: dict[str, tuple[Home, ...]] = {}
        self._waiting: dict[tuple[str, str], asyncio.Event] = {}
        self._saying: dict[tuple[str, str], Claim] = {}
        self.has_forgotten = False
        """Whether there were more streams than are remembered."""

    @property
    def are_shared(self) -> bool:
        """Return whether claims outlive the process and its partitions."""
        return self._log.outlives

    @property
    def are_awaited(self) -> bool:
        """Return whether claims of this process were not read back yet."""
        return bool(self._waiting)

    # --- what is known ---

    def knows(self, stream: str, partition: str) -> bool:
        """Return whether the claim of ``partition`` lives."""
        return any(home.partition == partition for home in self._homes.get(stream, ()))

    def is_split(self, stream: str) -> bool:
        """Return whether ``stream`` was seen in two partitions."""
        return len(self._homes.get(stream, ())) > 1

    def of(self, stream: str) -> tuple[Home, ...]:
        """Return the living claims of ``stream``."""
        return self._homes.get(stream, ())

    def in_partition(self, partition: str) -> list[tuple[str, Home]]:
        """Return the streams that ``partition`` claims."""
        claimed = ((stream, home) for stream, homes in self._homes.items() for home in homes)
        return [(stream, home) for stream, home in claimed if home.partition == partition]

    def split_at(self, stream: str) -> int:
        """Return the place of the claim that split ``stream``: what was said before it was not said of this split."""
        return sorted(home.since for home in self._homes[stream])[1]

    def teller(self, stream: str) -> str | None:
        """Return the partition whose claim split ``stream``, None once the event about it is committed."""
        homes, at = self._homes[stream], self.split_at(stream)
        if any(home.told and home.at > at for home in homes):
            return None
        return next(home.partition for home in homes if home.since == at)

    def unanswered(self, stream: str) -> set[str]:
        """Return the partitions that have not said how many verdicts they had committed before the split."""
        at = self.split_at(stream)
        return {home.partition for home in self._homes[stream] if home.n_judged is None or home.at <= at}

    # --- what is claimed ---

    async def catch_up(self) -> None:
        """Return once ``update`` gives all claims of before the call. Raises SourceError, OutputError."""
        await self._log.catch_up()

    def claim(self, streams: Iterable[str], partition: str, time_us: int | None) -> None:
        """Claim those of ``streams`` that are not claimed for ``partition``, all in one round trip."""
        new = [
            stream
            for stream in streams
            if not self.knows(stream, partition) and (stream, partition) not in self._waiting
        ]
        for stream in new:
            self._waiting[stream, partition] = asyncio.Event()
        if new:
            self._log.write([Claim(stream, partition, time_us) for stream in new])

    async def claimed(self, stream: str, partition: str) -> None:
        """Return once the claim, made before, was read back."""
        if (waiting := self._waiting.get((stream, partition))) is not None:
            await waiting.wait()

    def say(self, stream: str, partition: str, n_judged: int, *, told: bool) -> None:
        """Renew the claim of ``partition``, which lives, with what it has to say about the split."""
        home = next(home for home in self._homes[stream] if home.partition == partition)
        claim = Claim(stream, partition, home.time_us, home.since, n_judged, told)
        if self._saying.get((stream, partition)) != claim:
            self._saying[stream, partition] = claim
            self._log.write([claim])

    def end(self, streams: Collection[str], partition: str) -> None:
        """End the claims of ``partition`` on ``streams``, which it has forgotten."""
        if streams:
            self._log.write([Claim(stream, partition, ended=True) for stream in streams])

    def update(self) -> list[str]:
        """Take in the claims that were read; return the streams whose claims have changed."""
        changed: dict[str, None] = {}
        for at, claim in self._log.take():
            self._apply(at, claim)
            changed[claim.stream] = None
            key = claim.stream, claim.partition
            self._saying.pop(key, None)
            if not claim.ended and (waiting := self._waiting.pop(key, None)) is not None:
                waiting.set()
        return list(changed)

    def _apply(self, at: int, claim: Claim) -> None:
        homes = self._homes.get(claim.stream, ())
        others = tuple(home for home in homes if home.partition != claim.partition)
        if claim.ended:
            if others:
                self._homes[claim.stream] = others
            else:
                self._homes.pop(claim.stream, None)
            return
        since = at if claim.since is None else claim.since
        since = min((since, *(home.since for home in homes if home.partition == claim.partition)))
        if not homes and len(self._homes) >= self._most:
            del self._homes[next(iter(self._homes))]
            self.has_forgotten = True
        home = Home(claim.partition, since, at, claim.time_us, claim.n_judged, claim.told)
        self._homes[claim.stream] = (*others, home)

    # --- partitions of one process come and go ---

    def leave_unshared(self, partition: str) -> None:
        """End the claims on streams seen in ``partition`` alone: they may go on in the next file."""
        self._leave(partition, lambda homes: len(homes) == 1)

    def leave(self, partition: str, still_read: Collection[str]) -> None:
        """End the claims of ``partition``, except on split streams of which another partition is still read.

        Once none of them is, all claims on such a stream end.
        """
        others = frozenset(still_read) - {partition}
        self._leave(partition, lambda homes: others.isdisjoint(home.partition for home in homes))

    def _leave(self, partition: str, is_over: Callable[[tuple[Home, ...]], bool]) -> None:
        if self.are_shared:
            return  # whoever reads the partition next has claimed them already
        for stream in [stream for stream, home in self.in_partition(partition) if is_over(self._homes[stream])]:
            for home in self._homes[stream]:
                self.end([stream], home.partition)
        self.update()
