"""Sources, sinks and feeds in this process's memory, by name: for tests and notebooks.

The source ``memory:lab`` reads the records of ``put_records("lab", ...)`` or of the feed ``memory:lab``; the sink
``memory:lab`` fills ``messages("lab")``.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence

from pydantic import BaseModel

from streamad.errors import CheckpointError, SourceError
from streamad.messages import OutputRecord
from streamad.plugins import ConnectorContext
from streamad.ports import FeedRecord
from streamad.settings.fields import ConfigSection
from streamad.types import PartitionAssigned, PartitionEnded, Record, RecordBatch, SourceEvent

_BATCH_RECORDS = 512
_records: dict[str, dict[str, list[Record]]] = {}
_messages: dict[str, list[OutputRecord]] = {}


def put_records(name: str, records: Iterable[Record | bytes], partition: str = "memory") -> None:
    """Append ``records`` to a partition of the source ``memory:name``; bytes get the next offset."""
    held = _records.setdefault(name, {}).setdefault(partition, [])
    for item in records:
        after = held[-1].offset + 1 if held else 0
        record = item if isinstance(item, Record) else Record(after, item)
        if record.offset < after:
            raise ValueError(f"offset {record.offset} does not come after {after - 1}")
        held.append(record)


def records(name: str, partition: str = "memory") -> list[Record]:
    """Return a copy of the records in a partition of the source ``memory:name``."""
    return list(_records.get(name, {}).get(partition, ()))


def messages(name: str) -> list[OutputRecord]:
    """Return a copy of the messages in the sink ``memory:name``."""
    return list(_messages.get(name, ()))


def clear(name: str) -> None:
    """Delete the records and messages under ``name``."""
    _records.pop(name, None)
    _messages.pop(name, None)


class MemoryOptions(ConfigSection):
    """Memory has no options; the URL names the place."""


class MemorySource:
    """Reads the records under the URL's name, one partition after the other; finite."""

    options_model: type[BaseModel] = MemoryOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self._name = rest
        self._seeks: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._closed = False

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield each partition with its records. Raises SourceError if there are none under the name."""
        if self._name not in _records:
            known = ", ".join(sorted(_records)) or "none"
            raise SourceError(f"memory:{self._name}: no records under this name (known: {known}); call put_records")
        offered: list[str] = []
        for partition in sorted(_records[self._name]):
            yield PartitionAssigned(partition)
            offered.append(partition)
            while partition not in self._seeks and not self._closed:
                self._changed.clear()
                await self._changed.wait()
            while not self._closed and (sought := self._sought(offered)) is not None:
                while (batch := self._next_batch(sought)) is not None:
                    yield batch
                if not self._closed:
                    del self._seeks[sought]
                    yield PartitionEnded(sought)
            if self._closed:
                return

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: at its first record)."""
        self._seeks[partition] = offset or 0
        self._changed.set()
        return self._seeks[partition]

    async def close(self) -> None:
        """End the iterator; safe to call twice."""
        self._closed = True
        self._changed.set()

    def _sought(self, offered: list[str]) -> str | None:
        return next((partition for partition in offered if partition in self._seeks), None)

    def _next_batch(self, partition: str) -> RecordBatch | None:
        if self._closed:
            return None
        held = _records.get(self._name, {}).get(partition, [])
        first = bisect_left(held, self._seeks[partition], key=lambda record: record.offset)
        batch = tuple(held[first : first + _BATCH_RECORDS])
        if not batch:
            return None
        self._seeks[partition] = batch[-1].offset + 1
        return RecordBatch(partition, batch, batch[-1].offset + 1)


class MemorySink:
    """Keeps messages under the URL's name; its position counts messages."""

    options_model: type[BaseModel] = MemoryOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self._held = _messages.setdefault(rest, [])
        self._name = rest

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Keep ``records`` in order."""
        self._held.extend(records)

    async def flush(self) -> None:
        """Return at once: written messages are kept already."""

    async def position(self) -> int:
        """Return the number of messages."""
        return len(self._held)

    async def truncate(self, position: int) -> None:
        """Delete all but the first ``position`` messages; raises CheckpointError if there are fewer."""
        if position > len(self._held):
            raise CheckpointError(
                f"memory:{self._name} holds {len(self._held)} messages, the checkpoint says {position}; "
                "memory does not outlive its process, begin without a checkpoint"
            )
        del self._held[position:]

    async def close(self) -> None:
        """Do nothing: the messages stay until ``clear``."""


class MemoryFeed:
    """Appends records to the partition "memory" of the source ``memory:name``."""

    options_model: type[BaseModel] = MemoryOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self._name = rest

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Append ``records`` in order, each at the next offset."""
        held = _records.setdefault(self._name, {}).setdefault("memory", [])
        for record in records:
            after = held[-1].offset + 1 if held else 0
            held.append(Record(after, record.value, record.timestamp_us, record.key))

    async def flush(self) -> None:
        """Return at once: sent records are there already."""

    async def close(self) -> None:
        """Do nothing: the records stay until ``clear``."""
