"""What the pipeline does with records whose schemas are not known yet: their partition waits, and the others go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Protocol

from streamad.ingest.intake import Intake
from streamad.ingest.schemas.framing import SchemaKey
from streamad.ports import Clock, PausableSource, Source
from streamad.schemas.fetching import Fetcher
from streamad.types import PartitionEnded, RecordBatch, SourceEvent


class ReadPartition(Protocol):
    """A partition that is read: where reading goes on, its way in, and what fetches the schemas that it waits for."""

    intake: Intake
    expected: int
    fetching: asyncio.Task[None] | None

    @property
    def name(self) -> str:
        """Return the partition's name."""


class SchemaWaits:
    """Lets batches through once the schemas of their records were fetched.

    A partition of a source that can pause it is read again from there, so nothing is kept in memory. Another source is
    not read on: what came of it waits in ``held``. ``on_done`` is called when schemas are there, or have failed.
    """

    def __init__(
        self, source: Source, fetcher: Fetcher | None, clock: Clock, on_done: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        self.held: deque[SourceEvent] = deque()
        self._source = source
        self._fetcher = fetcher
        self._clock = clock
        self._on_done = on_done
        self._fetching: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Return what fetches for ``held``."""
        return [] if self._fetching is None else [self._fetching]

    def holds(self, event: SourceEvent) -> bool:
        """Return whether ``event`` waits behind others."""
        if self.held:
            self.held.append(event)
        return bool(self.held)

    def released(self) -> list[SourceEvent]:
        """Return what was held, once its schemas are there. Raises SourceError, ConfigError."""
        if self._fetching is None or not self._fetching.done():
            return []
        task, self._fetching = self._fetching, None
        task.result()
        released = [*self.held]
        self.held.clear()
        return released

    def ready(self, partition: ReadPartition, batch: RecordBatch) -> RecordBatch | None:
        """Return the part of ``batch`` that can be decoded, None if there is none; begin to fetch for the rest."""
        if partition.fetching is not None:
            return None
        used = partition.intake.schemas
        if self._fetcher is None or used is None:
            return batch
        wanted = used.wanted(batch.records, self._clock.monotonic_us())
        if not wanted:
            return batch
        if not isinstance(self._source, PausableSource):
            self.held.append(batch)
            self._fetching = asyncio.create_task(self._fetcher.fetch(wanted))
            self._fetching.add_done_callback(self._on_done)
            return None
        self._source.pause(partition.name)
        partition.fetching = asyncio.create_task(self._fetch(self._fetcher, partition, wanted))
        partition.fetching.add_done_callback(self._on_done)
        first = min(wanted.values())
        records = tuple(record for record in batch.records if record.offset < first)
        return replace(batch, records=records, next_offset=first, caught_up=False) if records else None

    def forget(self, name: str) -> None:
        """Drop what is held of a partition that is restored, or no longer ours."""
        kept = [
            event
            for event in self.held
            if not (isinstance(event, RecordBatch | PartitionEnded) and event.partition == name)
        ]
        self.held.clear()
        self.held.extend(kept)

    async def _fetch(self, fetcher: Fetcher, partition: ReadPartition, wanted: Collection[SchemaKey]) -> None:
        await fetcher.fetch(wanted)
        await self._source.seek(partition.name, partition.expected)
