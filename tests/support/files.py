"""Reads a whole file source, and lets files fail as on a full disk or a network share."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from streamad.plugins import ConnectorContext, connect_source
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, PartitionAssigned, PartitionEnded, Record, RecordBatch, SequenceFrom
from streamad_connectors.files.source import FileSource


def source(
    url: str | Path,
    base: Path,
    *,
    channels: tuple[str, ...] = (),
    sequence_from: SequenceFrom = "message",
    **options: Any,
) -> FileSource:
    specs = tuple(ChannelSpec(name) for name in channels)
    context = ConnectorContext(specs, ManualClock(), base, sequence_from=sequence_from)
    return cast("FileSource", connect_source(str(url), options, context))


async def read(url: str | Path, base: Path, *, begin: int | None = None, **options: Any) -> dict[str, list[Record]]:
    return await read_source(source(url, base, **options), begin=begin)


async def read_source(opened: FileSource, *, begin: int | None = None) -> dict[str, list[Record]]:
    seen: dict[str, list[Record]] = {}
    async with aclosing(cast("Any", opened.batches())) as events:
        async for event in events:
            if isinstance(event, PartitionAssigned):
                seen[event.partition] = []
                await opened.seek(event.partition, begin)
            elif isinstance(event, RecordBatch):
                seen[event.partition].extend(event.records)
            else:
                assert isinstance(event, PartitionEnded)
    await opened.close()
    return seen


async def read_one(url: str | Path, base: Path, *, begin: int | None = None, **options: Any) -> list[Record]:
    (records,) = (await read(url, base, begin=begin, **options)).values()
    return records


async def read_maps(url: str | Path, base: Path, **options: Any) -> list[Any]:
    return [msgspec.msgpack.decode(record.value) for record in await read_one(url, base, **options)]


@contextmanager
def file_size_limit(n_bytes: int) -> Iterator[None]:
    """Let every write beyond ``n_bytes`` of a file fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def stale_handle(path: Path) -> Iterator[None]:
    """Let every look at ``path`` fail as on a network share whose server has forgotten it."""
    stat = Path.stat

    def failing(one: Path, **more: bool) -> os.stat_result:
        if one == path:
            raise OSError(errno.ESTALE, "Stale file handle", str(one))
        return stat(one, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "stat", failing)
        yield
