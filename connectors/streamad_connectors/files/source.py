"""Files as sources (JSON lines, raw records, CSV, Parquet, NPZ, UEA .ts), as sinks and as feeds.

The URL names a file, a folder or a glob pattern; every file is one partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import cast

from pydantic import BaseModel

from streamad.errors import SourceError, UsageError
from streamad.plugins import ConnectorContext
from streamad.ranges import EVERYTHING, Span
from streamad.types import PartitionAssigned, PartitionEnded, SourceEvent
from streamad_connectors.files.cursors import FileCursor, Watch, check_unchanged, decode_cursor, with_cursors
from streamad_connectors.files.finding import FoundFile, find_files
from streamad_connectors.files.formats import csv_rows, jsonl, npz, parquet_rows, records, ts
from streamad_connectors.files.formats.options import FileFormat, FileOptions, options_without_use
from streamad_connectors.files.formats.reading import (
    READ_FAILURES,
    BatchReader,
    Reader,
    ReadRecord,
    batched,
    read_error,
)
from streamad_connectors.files.formats.sequences import merge_labels, stream_name

_READERS: dict[FileFormat, Reader] = {
    "jsonl": jsonl.read_jsonl,
    "records": records.read_records,
    "csv": csv_rows.read_csv,
    "parquet": parquet_rows.read_parquet,
    "npz": npz.read_npz,
    "ts": ts.read_ts,
}
_LABELS = {"npz": npz.npz_labels, "ts": ts.ts_labels}


class FileSource:
    """Reads recordings from files, one after the other in the order of their paths; finite.

    A partition is a file, named by its path below the plant's folder, else by its absolute path. Offsets count bytes
    (jsonl), the topic's offsets (records), rows (csv, parquet) or chunks (npz, ts). Files may grow between two runs.
    """

    options_model: type[BaseModel] = FileOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self._rest = rest
        self._options = cast("FileOptions", options)
        self._context = context
        self._span = EVERYTHING
        self._offered: dict[str, FoundFile] = {}
        self._seeks: dict[str, int] = {}
        self._cursors: dict[str, FileCursor] = {}
        self._changed = asyncio.Event()
        self._closed = False

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield each file as a partition with its records, once ``seek`` was called for it. Raises SourceError."""
        offered = self._offered
        for file in await asyncio.to_thread(self.files):
            offered[file.partition] = file
            yield PartitionAssigned(file.partition, await asyncio.to_thread(self._is_seen_from_start, file))
            while file.partition not in self._seeks and not self._closed:
                self._changed.clear()
                await self._changed.wait()
            while (sought := self._sought(offered)) is not None:
                reader = self._open(sought)
                try:
                    while (batch := await reader.next_batch()) is not None and not self._stale(sought):
                        yield batch
                        if self._stale(sought):
                            break
                finally:
                    reader.close()
                if not self._stale(sought):
                    yield PartitionEnded(sought.partition)
            if self._closed:
                return

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: at its beginning), also while it is being read."""
        self._cursors.pop(partition, None)
        self._seeks[partition] = offset or 0
        self._changed.set()
        return self._seeks[partition]

    async def resume(self, partition: str, offset: int, cursor: str) -> int:
        """Begin ``partition`` at ``offset`` if its file still holds the records of ``cursor``. Raises SourceError."""
        known = decode_cursor(cursor, partition)
        await asyncio.to_thread(self._check_unchanged, self._offered[partition], known)
        begin = await self.seek(partition, offset)
        self._cursors[partition] = known
        return begin

    async def close(self) -> None:
        """End the iterator; safe to call twice."""
        self._closed = True
        self._changed.set()

    def between(self, since_us: int | None, until_us: int | None) -> FileSource:
        """Return a source of the records in a range of time; only recordings of raw records have such times.

        Raises UsageError for files of another format, SourceError if there are no files.
        """
        between = FileSource(self._rest, self._options, self._context)
        between._span = Span(since_us, until_us)
        if between._span != EVERYTHING:
            for file in self.files():
                if file.format != "records":
                    raise UsageError(
                        f"{file.path}: has no record times to cut by; --since and --until work with Kafka and with "
                        f"recordings of it (*{records.RECORDS_ENDING})"
                    )
        return between

    def labels(self) -> Mapping[str, str]:
        """Return sequence id -> class label of the selected npz and ts recordings."""
        found = [file for file in self.files() if file.format in _LABELS]
        try:
            return merge_labels((file.path, _LABELS[file.format](file.path, self._options)) for file in found)
        except READ_FAILURES as error:
            raise read_error(Path(self._rest), error) from error

    def channel_names(self) -> tuple[str, ...] | None:
        """Return the channel names of npz recordings, None unless all files give the same."""
        try:
            named = {npz.npz_channels(file.path) if file.format == "npz" else None for file in self.files()}
        except READ_FAILURES as error:
            raise read_error(Path(self._rest), error) from error
        return named.pop() if len(named) == 1 else None

    def files(self) -> list[FoundFile]:
        """Return the URL's present files in reading order. Raises SourceError if there are none."""
        found = find_files(self._rest, self._options, self._context.base_dir)
        for name, formats in options_without_use(self._options, (file.format for file in found)).items():
            raise SourceError(f"{self._rest}: option {name!r} is for {', '.join(formats)} files only; leave it out")
        streams: dict[str, Path] = {}
        for file in found:
            if file.format in _LABELS:
                other = streams.setdefault(stream_name(file.path, self._options), file.path)
                if other is not file.path:
                    raise SourceError(
                        f"{other} and {file.path} would both be stream {stream_name(file.path, self._options)!r}; "
                        "rename one, or read them one at a time"
                    )
        return found

    def _sought(self, offered: Mapping[str, FoundFile]) -> FoundFile | None:
        if self._closed:
            return None
        return next((file for partition, file in offered.items() if partition in self._seeks), None)

    def _stale(self, file: FoundFile) -> bool:
        return self._closed or file.partition in self._seeks

    def _open(self, file: FoundFile) -> BatchReader:
        offset = self._seeks.pop(file.partition)
        watch = Watch(file.path, file.partition, offset, self._cursors.pop(file.partition, None))
        batches = batched(self._records(file, offset), file.partition)
        return BatchReader(with_cursors(batches, watch), file.path)

    def _records(self, file: FoundFile, offset: int) -> Iterator[ReadRecord]:
        if file.format == "records":
            return records.read_records(file.path, offset, self._options, self._context, self._span)
        return _READERS[file.format](file.path, offset, self._options, self._context)

    def _check_unchanged(self, file: FoundFile, cursor: FileCursor) -> None:
        try:
            check_unchanged(file.path, cursor, lambda: self._records(file, cursor.begin))
        except READ_FAILURES as error:
            raise read_error(file.path, error) from error

    def _is_seen_from_start(self, file: FoundFile) -> bool:
        return file.format != "records" or records.is_seen_from_start(file.path, self._options, self._span)
