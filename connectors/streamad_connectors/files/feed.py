"""Writes raw records into a recording (see ``formats.records``), which appears as a whole or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, Field

from streamad.errors import OutputError
from streamad.plugins import ConnectorContext
from streamad.ports import FeedRecord
from streamad.settings.fields import ConfigSection
from streamad.system.files import append_whole, sync_folder, writing
from streamad.system.tasks import finished
from streamad.types import Record
from streamad_connectors.files.formats.records import RECORDS_ENDING, encode_header, encode_record

_UNFINISHED = ".part"


class RecordsFeedOptions(ConfigSection):
    """The first line of a recording; the URL names the file."""

    partition: str | None = Field(None, description="where the records come from; default the file's name")
    from_start: bool = Field(True, description="whether nothing of the partition lies before the first record")


class RecordsFeed:
    """Writes raw records into a new file, whose name must end in ``.records.jsonl``; makes missing folders.

    Until the first ``flush`` the file has the further ending ``.part``, which no source reads; after a crash it holds
    all records that were sent. A failed write leaves no half line. Records without an offset get the next one.
    """

    options_model: type[BaseModel] = RecordsFeedOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self.path = Path(context.base_dir, rest)
        if not self.path.name.removesuffix(RECORDS_ENDING) or not rest.endswith(RECORDS_ENDING):
            raise OutputError(f"file:{rest}: recordings need a name that ends in {RECORDS_ENDING}")
        assert isinstance(options, RecordsFeedOptions)
        partition = options.partition or self.path.name.removesuffix(RECORDS_ENDING)
        self._header = encode_header(partition, from_start=options.from_start, streamad=version("streamad-monitor"))
        self._unfinished = self.path.with_name(self.path.name + _UNFINISHED)
        self._descriptor: int | None = None
        self._length = 0  # bytes of whole lines in the file
        self._next_offset = 0
        self._published = False
        self._lock = asyncio.Lock()

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Write ``records`` to the file. Raises OutputError, also if an offset is not above the last one."""
        await self._in_thread(lambda: self._append(records))

    async def flush(self) -> None:
        """Return once all records are on the disk under the file's own name. Raises OutputError."""
        await self._in_thread(self._publish)

    async def close(self) -> None:
        """Release the file; safe to call twice. A recording that was never flushed keeps its unfinished name."""
        async with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        async with self._lock:
            await finished(asyncio.to_thread(self._guarded, work))

    def _guarded(self, work: Callable[[], None]) -> None:
        with writing(self.path if self._published else self._unfinished):
            work()

    def _append(self, records: Sequence[FeedRecord]) -> None:
        lines = bytearray()
        after = self._next_offset
        for record in records:
            offset = after if record.offset is None else record.offset
            if offset < after:
                raise OutputError(f"{self.path}: offset {offset} does not come after {after - 1}")
            time_us, schema, label = record.timestamp_us, record.schema, record.label
            lines += encode_record(Record(offset, record.value, time_us, record.key, schema=schema, label=label))
            after = offset + 1
        self._write(lines)
        self._next_offset = after

    def _publish(self) -> None:
        descriptor = self._open()
        os.fsync(descriptor)
        if not self._published:
            self._refuse_existing()
            self._unfinished.rename(self.path)
            self._published = True
        sync_folder(self.path.parent)

    def _open(self) -> int:
        if self._descriptor is not None:
            return self._descriptor
        if self._length:
            raise OutputError(f"{self.path}: the recording was closed; nothing can be added to it")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._refuse_existing()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._unfinished, flags, 0o666)
        except FileExistsError:
            raise OutputError(
                f"{self._unfinished} is there: another recording is being written, or one was cut short; "
                f"remove its {_UNFINISHED} to keep what it holds, or delete it"
            ) from None
        try:
            self._write(self._header)
        except OSError:
            os.close(self._descriptor)
            self._descriptor = None
            self._unfinished.unlink()
            raise
        return self._descriptor

    def _refuse_existing(self) -> None:
        if self.path.exists():
            raise OutputError(f"{self.path} is there already: name another folder or file")

    def _write(self, content: bytes | bytearray) -> None:
        append_whole(self._open(), content, self._length)
        self._length += len(content)
