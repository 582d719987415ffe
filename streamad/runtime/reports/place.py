"""The place of the workers' status: a folder with a file for each worker, or a sink."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from streamad.errors import OutputError
from streamad.messages import OutputRecord, Running, WorkerStatus
from streamad.plant import Plant
from streamad.ports import Sink
from streamad.runtime.wiring import sink_for
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.places import file_path
from streamad.system.files import write_atomically, writing
from streamad.system.opening import read_regular
from streamad.types import to_us

SUFFIX = ".jsonl"
_FORGOTTEN_US = 86_400_000_000
_MOST_FILES = 1_000
_MOST_BYTES = 8 << 20


class StatusPlace(Protocol):
    """Takes the status of one worker; a write that failed may be tried again."""

    async def put(self, status: WorkerStatus, running: Sequence[Running]) -> None:
        """Replace what was there of the worker. Raises StreamadError."""

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


def status_place(plant: Plant) -> StatusPlace | None:
    """Return the place of the config, None if it has none."""
    url = plant.settings.sinks.status
    if url is None:
        return None
    folder = file_path(url)
    return _StatusSink(plant, url) if folder is None else StatusFolder(plant.base_dir / folder)


class StatusFolder:
    """A folder with one small file for each worker: its status, then a line for each open sequence with readings.

    The file is replaced, never appended to. The first write removes the files of workers that ended cleanly or have
    been silent for a day; files of others stay.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_cleared = False

    async def put(self, status: WorkerStatus, running: Sequence[Running]) -> None:
        """Replace the worker's file. Raises OutputError."""
        content = b"".join(msgspec.json.encode(message) + b"\n" for message in (status, *running))
        await asyncio.to_thread(self._write, status, content)

    def _write(self, status: WorkerStatus, content: bytes) -> None:
        if self._folder.exists() and not self._folder.is_dir():
            raise OutputError(f"cannot write in {self._folder}: it is a file, and sinks.status names a folder")
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / file_name(status.instance), content)
        if not self._is_cleared:
            self._is_cleared = True
            self._clear(status)

    def _clear(self, ours: WorkerStatus) -> None:
        """Remove the files of workers that are gone."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}"))[:_MOST_FILES]:
            with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
                line = read_regular(path, most_bytes=_MOST_BYTES, follows_links=False).partition(b"\n")[0]
                other = msgspec.json.decode(line, type=WorkerStatus)
                silent_us = to_us(ours.created_at) - to_us(other.created_at)
                is_another = other.instance != ours.instance and path.name == file_name(other.instance)
                if is_another and (other.stopped or silent_us > _FORGOTTEN_US):
                    path.unlink()

    async def close(self) -> None:
        """Do nothing: each file is closed once it is written."""


def file_name(instance: str) -> str:
    """Return the name of the file of a worker; an instance that is no file name is hashed."""
    if re.fullmatch(NAME_PATTERN, instance):
        return f"{instance}{SUFFIX}"
    return f"{hashlib.sha256(instance.encode()).hexdigest()[:32]}{SUFFIX}"


class _StatusSink:
    """A sink, outside of any transaction; after a failure it is connected anew."""

    def __init__(self, plant: Plant, url: str) -> None:
        self._plant, self._url = plant, url
        self._sink: Sink | None = None

    async def put(self, status: WorkerStatus, running: Sequence[Running]) -> None:
        records = [OutputRecord("status", status.instance, status)]
        records += [OutputRecord("status", f"{one.instance}/{one.stream}", one) for one in running]
        sink = self._sink = self._sink or sink_for(self._plant, "status", self._url)
        try:
            await sink.write(records)
            await sink.flush()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()
