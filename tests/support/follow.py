"""Reads a followed source step by step, and writes and rotates the files that it follows."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

from streamad.types import FILE_OFFSETS, PartitionAssigned, Record, RecordBatch, SourceEvent
from tests.support.files import source


class Tail:
    """One partition of a followed source: its records so far, and its batches with cursors.

    Nothing is read between two calls of ``catch_up``, which returns once a look that began after the call found
    nothing more.
    """

    def __init__(self, url: str, base: Path, **options: Any) -> None:
        self.source = source(url, base, **{"follow": True, "follow_interval": "1ms", **options})
        self.records: list[Record] = []
        self.batches: list[RecordBatch] = []
        self.assigned: list[PartitionAssigned] = []
        self._events = cast("AsyncGenerator[SourceEvent, None]", self.source.batches())

    async def __aenter__(self) -> Tail:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the source, as a run does that ends."""
        await self._events.aclose()
        await self.source.close()

    async def begin(self, offset: int | None = None, cursor: str | None = None) -> None:
        """Wait for the partition and begin it."""
        event = await anext(self._events)
        assert isinstance(event, PartitionAssigned)
        self.assigned.append(event)
        if offset is not None and cursor is not None:
            await self.source.resume(event.partition, offset, cursor)
        else:
            await self.source.seek(event.partition, offset)

    async def catch_up(self) -> list[RecordBatch]:
        """Return the new batches with records or a cursor; further partitions are only noted."""
        found: list[RecordBatch] = []
        async for event in self._events:
            if isinstance(event, PartitionAssigned):
                self.assigned.append(event)
                continue
            assert isinstance(event, RecordBatch)
            if event.caught_up:
                break
            found.append(event)
            self.records.extend(event.records)
        self.batches += found
        return found

    @property
    def values(self) -> list[bytes]:
        """The values of all records."""
        return [record.value for record in self.records]

    @property
    def local(self) -> list[tuple[int, bytes]]:
        """Offset in its file and value of every record."""
        return [(record.offset % FILE_OFFSETS, record.value) for record in self.records]


def append(path: Path, content: bytes) -> None:
    """Append ``content``, as a logger does."""
    with path.open("ab") as file:
        file.write(content)


def rotate(path: Path, *, copies: bool = False) -> None:
    """Rotate ``path`` as logrotate does: rename it, or with ``copies`` copy and truncate it."""
    numbers = [int(old.name.rpartition(".")[2]) for old in path.parent.glob(f"{path.name}.*")]
    for number in sorted(numbers, reverse=True):
        path.with_name(f"{path.name}.{number}").rename(path.with_name(f"{path.name}.{number + 1}"))
    if copies:
        path.with_name(f"{path.name}.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
    else:
        path.rename(path.with_name(f"{path.name}.1"))
        path.touch()


def write_anew(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of what the same file holds."""
    with path.open("wb") as file:
        file.write(content)


def delete(path: Path) -> None:
    """Delete a file."""
    path.unlink()


def move(path: Path, name: str) -> None:
    """Give a file another name."""
    path.rename(path.with_name(name))


def n_open_files() -> int:
    """The number of descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))
