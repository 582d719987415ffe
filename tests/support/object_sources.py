"""Reads sources of objects, and the same files in a folder, event by event."""

from __future__ import annotations

import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from streamad.plugins import ConnectorContext, connect_source
from streamad.ports import ResumableSource, Source
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, PartitionAssigned, PartitionEnded, Record, RecordBatch


def context(base: Path) -> ConnectorContext:
    return ConnectorContext((ChannelSpec("temp"), ChannelSpec("flow")), ManualClock(), base)


def opened(url: str, base: Path, **options: Any) -> Source:
    return connect_source(url, options, context(base))


class Read:
    """What a source gave: the records of each partition, its last cursor and the offset after it, and its end."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {}
        self.ends: list[str] = []
        self.cursors: dict[str, tuple[int, str]] = {}

    @property
    def all(self) -> tuple[dict[str, list[Record]], list[str], dict[str, int]]:
        return self.records, self.ends, {name: offset for name, (offset, _) in self.cursors.items()}


async def read_all(source: Source, after: dict[str, tuple[int, str]] | None = None, *, batches: int = 10**9) -> Read:
    """Read ``source``, after the cursors ``after``, ``batches`` of each partition at most."""
    read, left = Read(), batches
    if after and isinstance(source, ResumableSource):
        source.check_cursors({name: cursor for name, (_, cursor) in after.items()})
    try:
        async with aclosing(cast("Any", source.batches())) as events:
            async for event in events:
                if isinstance(event, PartitionAssigned):
                    read.records[event.partition] = []
                    if after and event.partition in after and isinstance(source, ResumableSource):
                        await source.resume(event.partition, *after[event.partition])
                    else:
                        await source.seek(event.partition, None)
                elif isinstance(event, RecordBatch):
                    read.records[event.partition] += event.records
                    if event.cursor is not None:
                        read.cursors[event.partition] = event.next_offset, event.cursor
                    if (left := left - 1) <= 0:
                        break
                elif isinstance(event, PartitionEnded):
                    read.ends.append(event.partition)
    finally:
        await source.close()
    return read


def copies() -> list[Path]:
    """Return the folders of copies that are left."""
    return [path for path in Path(tempfile.gettempdir()).glob("streamad-objects-*") if path.is_dir()]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
