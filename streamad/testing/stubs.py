"""A clock that a test advances, and a source and a sink in memory."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict

from streamad.errors import CheckpointError
from streamad.messages import OutputRecord
from streamad.ports import Clock
from streamad.types import PartitionAssigned, PartitionEnded, PartitionRevoked, Record, RecordBatch, SourceEvent


class ManualClock:
    """A clock that moves only by ``advance``; sleepers wake in the order of their times."""

    def __init__(self, start_us: int = 1_767_225_600_000_000) -> None:
        self._now_us = start_us
        self._monotonic_us = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = itertools.count()

    @property
    def n_sleepers(self) -> int:
        """Return how many calls of ``sleep`` wait."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def now_us(self) -> int:
        """Return the wall-clock time in microseconds."""
        return self._now_us

    def monotonic_us(self) -> int:
        """Return the microseconds advanced so far."""
        return self._monotonic_us

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced by ``seconds``; for 0 or less, after other tasks ran."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic_us + round(seconds * 1e6), next(self._count), future))
        await future

    def advance(self, seconds: float) -> None:
        """Move both clocks by ``seconds`` and wake the sleepers that are due; they run when the caller next awaits."""
        if seconds < 0:
            raise ValueError("a clock cannot be advanced backwards; use set_wall for a wall clock that was set back")
        step_us = round(seconds * 1e6)
        self._now_us += step_us
        self._monotonic_us += step_us
        while self._sleepers and self._sleepers[0][0] <= self._monotonic_us:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    def set_wall(self, now_us: int) -> None:
        """Set the wall clock alone, as an operator or a time server does; no sleeper wakes."""
        self._now_us = now_us


class _NoOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait of this length in a ListSource's script, on its clock."""

    seconds: float


ScriptItem: TypeAlias = SourceEvent | Pause | Exception


class ListSource:
    """Plays a script of source events; exceptions in it are raised, a Pause sleeps on ``clock``.

    Of a RecordBatch only records from the offset of ``seek`` on are delivered; after a seek backwards the played
    batches are delivered again. With ``endless`` the iterator waits for ``feed`` after the script's end, as a broker's.
    """

    options_model: type[BaseModel] = _NoOptions

    def __init__(self, script: Iterable[ScriptItem], *, clock: Clock | None = None, endless: bool = False) -> None:
        self._script = list(script)
        self._clock = clock
        self._endless = endless
        self._played = 0
        self._next: dict[str, int] = {}
        self._again: list[RecordBatch | PartitionEnded] = []
        self._changed = asyncio.Event()
        self._closed = False

    @classmethod
    def of(cls, partitions: Mapping[str, Sequence[Record]], *, batch_records: int = 100) -> ListSource:
        """Return a finite source of ``partitions``, whose batches alternate."""
        script: list[ScriptItem] = [PartitionAssigned(partition) for partition in partitions]
        longest = max((len(records) for records in partitions.values()), default=0)
        for first in range(0, longest, batch_records):
            for partition, records in partitions.items():
                if part := tuple(records[first : first + batch_records]):
                    script.append(RecordBatch(partition, part, part[-1].offset + 1))
        return cls([*script, *(PartitionEnded(partition) for partition in partitions)])

    def feed(self, *items: ScriptItem) -> None:
        """Append to the script, also while it is played."""
        self._script.extend(items)
        self._changed.set()

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Play the script; a batch of a partition waits until ``seek`` was called for it."""
        while not self._closed:
            if self._again:
                event: ScriptItem = self._again.pop(0)
            elif self._played < len(self._script):
                event = self._script[self._played]
                if isinstance(event, RecordBatch | PartitionEnded) and event.partition not in self._next:
                    await self._change()
                    continue
                self._played += 1
            elif self._endless:
                await self._change()
                continue
            else:
                return
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Pause):
                if self._clock is None:
                    raise ValueError("a script with a Pause needs a clock")
                await self._clock.sleep(event.seconds)
                continue
            if isinstance(event, PartitionRevoked):
                self._next.pop(event.partition, None)
            if (rest := self._rest(event)) is not None:
                yield rest

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: at the script's first record of it)."""
        begin = offset or 0
        self._next[partition] = begin
        self._again = [batch for batch in self._again if batch.partition != partition]
        for event in self._script[: self._played]:
            match event:
                case RecordBatch(partition=name, next_offset=after) if name == partition and after > begin:
                    self._again.append(event)
                case PartitionEnded(partition=name) if name == partition:
                    self._again.append(event)
        self._changed.set()
        return begin

    async def close(self) -> None:
        """End the iterator; safe to call twice."""
        self._closed = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _rest(self, event: SourceEvent) -> SourceEvent | None:
        """Return ``event`` without records below the partition's next offset, None if none are left."""
        if isinstance(event, PartitionEnded):
            return PartitionEnded(event.partition, self._next[event.partition])
        if not isinstance(event, RecordBatch):
            return event
        begin = self._next[event.partition]
        records = tuple(record for record in event.records if record.offset >= begin)
        if event.records and not records:
            return None
        after = max(begin, event.next_offset)
        self._next[event.partition] = after
        return RecordBatch(event.partition, records, after, event.caught_up, begin, event.end_offset)


class ListSink:
    """A durable sink in a list: ``pending`` holds written, ``records`` flushed ones; its position counts records.

    Set ``failure`` to an exception and the next ``write`` or ``flush`` raises it.
    """

    options_model: type[BaseModel] = _NoOptions

    def __init__(self, records: Iterable[OutputRecord] = ()) -> None:
        self.records = list(records)
        self.pending: list[OutputRecord] = []
        self.failure: Exception | None = None
        self.n_flushes = 0
        self.closed = False

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Take ``records`` in order."""
        self._fail()
        self.pending.extend(records)

    async def flush(self) -> None:
        """Move ``pending`` to ``records``."""
        self._fail()
        self.n_flushes += 1
        self.records.extend(self.pending)
        self.pending.clear()

    async def position(self) -> int:
        """Return the number of flushed records."""
        return len(self.records)

    async def truncate(self, position: int) -> None:
        """Cut back to ``position`` records; raises CheckpointError if fewer are there."""
        if position > len(self.records):
            raise CheckpointError(f"the sink holds {len(self.records)} records, the checkpoint says {position}")
        del self.records[position:]
        self.pending.clear()

    async def close(self) -> None:
        """Set ``closed``."""
        self.closed = True

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
