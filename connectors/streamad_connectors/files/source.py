"""Files as sources (JSON lines, raw records, CSV, Parquet, NPZ), as sinks and as feeds.

The URL names a file, a folder or a glob pattern; every file is one partition, or all are one together.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from pydantic import BaseModel

from streamad.errors import SourceError, UsageError
from streamad.plugins import ConnectorContext
from streamad.ports import PartitionContent
from streamad.ranges import EVERYTHING, Span
from streamad.tables import ColumnBatch, TableLayout, Wanted
from streamad.types import PartitionAssigned, PartitionEnded, SourceEvent
from streamad_connectors.files.cursors import (
    Cursor,
    FileCursor,
    JoinedCursor,
    Watch,
    check_lines,
    check_unchanged,
    decode_cursor,
    other_kind_error,
    with_cursors,
)
from streamad_connectors.files.finding import (
    FoundFile,
    batch_with_id,
    check_ids,
    check_row_files,
    check_row_options,
    content_of,
    find_files,
    joined_name,
    with_ids,
)
from streamad_connectors.files.follow.source import Following
from streamad_connectors.files.formats import records
from streamad_connectors.files.formats.known import check_named_format, options_without_use
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import (
    READ_FAILURES,
    Batches,
    BatchReader,
    ReadRecord,
    batched,
    read_error,
)
from streamad_connectors.files.formats.sequences import merge_labels, stream_name
from streamad_connectors.files.formats.sorting import sorted_records, sorting_of
from streamad_connectors.files.hive import batch_with_columns, with_columns
from streamad_connectors.files.joined import JoinedFiles, is_same_remote


class FileSource:
    """Reads recordings from files, one after the other; finite unless they are followed (see ``follow``).

    Separate files are partitions, in the order of their paths, each named by its path below the plant's folder, else by
    its absolute path. Joined ones are one partition, named as the URL's path is (see ``joined``). Offsets in a file
    count bytes (jsonl), the topic's offsets (records), rows (csv, parquet) or chunks (npz). Files may grow between
    two runs.
    """

    options_model: type[BaseModel] = FileOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self._rest = rest
        self._options = cast("FileOptions", options)
        self._context = context
        check_named_format(self._options)
        if self._options.sort and context.times is None:
            raise SourceError(
                f"{rest}: option 'sort' needs absolute times in the messages; leave it out (nor with decode.registry)"
            )
        if context.rows_are_times:
            check_row_options(rest, self._options, context.sequence_from)
        self._sorting = sorting_of(context.times) if self._options.sort and context.times is not None else ""
        self._span = EVERYTHING
        self._wanted: Wanted | None = None
        self._holds_open = (self._options.at_end or ("hold" if self._is_joined else "judge")) == "hold"
        self._offered: dict[str, FoundFile | JoinedFiles] = {}
        self._seeks: dict[str, tuple[int, Cursor | None]] = {}
        self._changed = asyncio.Event()
        self._closed = False
        self._interrupted = threading.Event()
        self._sizes: dict[str, int] = {}
        self._n_read = 0
        self._following = Following(rest, self._options, context) if self._options.follow else None

    @property
    def _is_joined(self) -> bool:
        return self._options.files == "joined"

    def batches(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield each partition with its records, once ``seek`` was called for it. Raises SourceError."""
        return cast("AsyncGenerator[SourceEvent, None]", self._events(None))

    def column_batches(self, wanted: Wanted) -> AsyncGenerator[SourceEvent | ColumnBatch, None]:
        """Yield the same as ``batches``, the rows of some formats by column. Raises SourceError."""
        return self._events(wanted)

    async def _events(self, wanted: Wanted | None) -> AsyncGenerator[SourceEvent | ColumnBatch, None]:
        self._wanted = wanted
        if self._following is not None:
            async with aclosing(self._following.batches()) as events:
                async for event in events:
                    yield event
            return
        for partition, files in (await asyncio.to_thread(self._partitions)).items():
            n_before = self._n_read
            self._offered[partition] = files
            yield PartitionAssigned(partition, await asyncio.to_thread(self._is_seen_from_start, files))
            while partition not in self._seeks and not self._closed:
                await self._changed.wait()
                self._changed.clear()
            while (sought := self._sought()) is not None:
                reader = self._open(sought)
                try:
                    while (batch := await reader.next_batch()) is not None and not self._stale(sought):
                        yield batch
                        if self._stale(sought):
                            break
                finally:
                    reader.close()
                if not self._stale(sought):
                    self._n_read = n_before + self._sizes.get(partition, sum(self._sizes.values()))  # joined: all
                    yield PartitionEnded(sought, holds_open=self._holds_open)
            if self._closed:
                return

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: at its beginning), also while it is being read."""
        if self._following is not None:
            return await self._following.begin(partition, offset or 0, None)
        return self._begin(partition, offset or 0, None)

    async def resume(self, partition: str, offset: int, cursor: str) -> int:
        """Begin ``partition`` at ``offset`` if its files still hold the records of ``cursor``. Raises SourceError."""
        known = decode_cursor(cursor, partition)
        check_lines(known, self._options.lines)
        if self._following is not None:
            return await self._following.begin(partition, offset, known)
        await asyncio.to_thread(self._check, self._offered[partition], offset, known)
        return self._begin(partition, offset, known)

    def check_cursors(self, cursors: Mapping[str, str | None]) -> None:
        """Raise SourceError if files were read joined and are separate now, or the other way round."""
        known = {name: decode_cursor(text, name) for name, text in cursors.items() if text is not None}
        follows = self._following is not None
        found = {file.partition for file in self.files()} if self._following is None else self._following.names()
        if not self._is_joined:
            for cursor in known.values():
                if isinstance(cursor, JoinedCursor) and not (cursor.is_log and follows) and cursor.names & found:
                    raise other_kind_error(self._rest, cursor)
            if self._following is not None:
                self._following.check_renamed(known)
            return
        for name in found & cursors.keys():
            stored = known.get(name)
            if not isinstance(stored, JoinedCursor) or stored.is_log:
                raise other_kind_error(self._rest, stored)
        own = self._joined_name()
        for name, cursor in known.items():
            if name != own and isinstance(cursor, JoinedCursor) and cursor.names & found:
                raise SourceError(
                    f"{self._rest}: the checkpoint has these files as {name}, so they would be judged again; "
                    "put the URL back, or move the checkpoint and the outputs away to begin anew"
                )

    async def close(self) -> None:
        """End the iterator; safe to call twice."""
        self._closed = True
        self._interrupted.set()
        self._changed.set()
        if self._following is not None:
            await self._following.close()

    def between(self, since_us: int | None, until_us: int | None) -> FileSource:
        """Return a source of the records in a range of time; only recordings of raw records have such times.

        Raises UsageError for files of another format, SourceError if there are no files.
        """
        between = self._with_options(self._options.model_copy(update={"follow": False}))
        between.cut_to(Span(since_us, until_us))
        return between

    def cut_to(self, span: Span) -> None:
        """Read the records in ``span`` alone, up to now. Raises as ``between``."""
        self._span = span
        self._holds_open = self._options.at_end == "hold"
        if span != EVERYTHING:
            for file in self.files():
                if file.format.name != "records":
                    raise UsageError(
                        f"{file.path}: has no record times to cut by; --since and --until work with Kafka and with "
                        f"recordings of it (*{records.RECORDS_ENDING})"
                    )

    def _with_options(self, options: FileOptions) -> FileSource:
        return FileSource(self._rest, options, self._context)

    def partitions(self) -> Mapping[str, PartitionContent]:
        """Return the content of each partition: paths, sizes and times of change. Raises SourceError."""
        files = self.files()
        if not self._is_joined:
            return {file.partition: content_of([file])._replace(place=self._place(file)) for file in files}
        return {self._joined_name(): content_of(files)}

    def only(self, partition: str) -> FileSource:
        """Return a source of one of the ``partitions``; all joined files are one."""
        alone = self._alone(None if self._is_joined else partition)
        alone._span, alone._holds_open = self._span, self._holds_open  # noqa: SLF001 - it is of this class
        return alone

    def _place(self, file: FoundFile) -> str:
        """Return where ``file`` lies if its partition's name does not say it."""
        return ""

    def _alone(self, partition: str | None) -> FileSource:
        """Return a source of ``partition``, or of all files for None."""
        rest = self._rest if partition is None else str(self._context.base_dir.absolute() / partition)
        return FileSource(rest, self._options, self._context)

    def share_read(self) -> float | None:
        """Return the share of the files' bytes that was read; 0 of sorted files, None of those that are followed."""
        if self._following is not None:
            return None
        total = sum(self._sizes.values())
        return 0.0 if self._options.sort or not total else min(1.0, self._n_read / total)

    def _count(self, n_bytes: int) -> None:
        self._n_read += n_bytes

    def labels(self) -> Mapping[str, str]:
        """Return sequence id -> class label of the selected recordings that have labels."""
        labelled = [(file, read) for file in self.files() if (read := file.format.labels) is not None]

        def labels_of() -> Iterator[tuple[Path, Mapping[str, str]]]:
            for file, read in labelled:
                with file.held():
                    yield file.path, read(file.path, self._options)

        try:
            return merge_labels(labels_of())
        except READ_FAILURES as error:
            raise read_error(Path(self._rest), error) from error

    def channel_names(self) -> tuple[str, ...] | None:
        """Return the channel names of recordings that have them, None unless all files give the same."""
        named: set[tuple[str, ...] | None] = set()
        try:
            for file in self.files():
                if (read := file.format.channels) is None:
                    return None
                with file.held():
                    named.add(read(file.path, self._options))
        except READ_FAILURES as error:
            raise read_error(Path(self._rest), error) from error
        return named.pop() if len(named) == 1 else None

    def table_layout(self) -> TableLayout | None:
        """Return how the first CSV file of the URL looks to be laid out, None if there is none. Raises SourceError."""
        file = next((file for file in self.files() if file.format.layout is not None), None)
        if file is None or file.format.layout is None:
            return None
        try:
            with file.held():
                return file.format.layout(file.path, self._options)
        except READ_FAILURES as error:
            raise read_error(file.path, error) from error

    def files(self) -> list[FoundFile]:
        """Return the URL's present files in the order of their paths. Raises SourceError if there are none."""
        if "order" in self._options.model_fields_set and not self._is_joined:
            raise SourceError(f"{self._rest}: option 'order' is for files: joined only; leave it out")
        found = self._find()
        for name, formats in options_without_use(self._options, (file.format for file in found)).items():
            raise SourceError(f"{self._rest}: option {name!r} is for {', '.join(formats)} files only; leave it out")
        check_ids(found, self._context.sequence_from)
        if self._context.rows_are_times:
            check_row_files(found)
        streams: dict[str, Path] = {}
        for file in found:
            if file.format.labels is not None:
                other = streams.setdefault(stream_name(file.path, self._options), file.path)
                if other is not file.path:
                    raise SourceError(
                        f"{other} and {file.path} would both be stream {stream_name(file.path, self._options)!r}; "
                        "rename one, or read them one at a time"
                    )
        return found

    def _find(self) -> list[FoundFile]:
        return find_files(self._rest, self._options, self._context.base_dir)

    def _joined_name(self) -> str:
        return joined_name(self._rest, self._context.base_dir)

    def _partitions(self) -> dict[str, FoundFile | JoinedFiles]:
        files = self.files()
        self._sizes = {file.partition: _size(file) for file in files}
        if not self._is_joined:
            return {file.partition: file for file in files}
        name, read, batches_of = self._joined_name(), self._records, self._batches
        return {name: JoinedFiles(name, files, self._options, read, batches_of=batches_of, sorting=self._sorting)}

    def _begin(self, partition: str, offset: int, cursor: Cursor | None) -> int:
        self._seeks[partition] = (offset, cursor)
        self._changed.set()
        return offset

    def _sought(self) -> str | None:
        if self._closed:
            return None
        return next((partition for partition in self._seeks if partition in self._offered), None)

    def _stale(self, partition: str) -> bool:
        return self._closed or partition in self._seeks

    def _open(self, partition: str) -> BatchReader:
        offset, known = self._seeks.pop(partition)
        files = self._offered[partition]
        if isinstance(files, JoinedFiles):
            assert not isinstance(known, FileCursor)
            return BatchReader(files.batches(offset, known), files.first.path, self._interrupted, self._count)
        assert not isinstance(known, JoinedCursor)
        return BatchReader(self._batches_of(files, offset, known), files.path, self._interrupted, self._count)

    def _batches_of(self, file: FoundFile, offset: int, known: FileCursor | None) -> Batches:
        """Yield the records of a separate file; none of a remote one that was read to its end and is as it was."""
        if known and known.is_complete and offset >= known.next_offset and is_same_remote(file, known, self._sorting):
            return
        options = {"order": self._sorting, "lines": self._options.lines, "tag": file.tag}
        watch = Watch(file.path, file.partition, offset, known, **options)
        with file.held(), closing(with_cursors(self._batches(file, offset, file.partition), watch)) as batches:
            yield from batches

    def _batches(self, file: FoundFile, offset: int, partition: str) -> Batches:
        by_column = file.format.by_column
        if self._wanted is None or by_column is None or self._options.sort:
            yield from batched(self._records(file, offset), partition)
            return
        id_from = self._context.sequence_from
        with closing(by_column(file.path, offset, self._options, self._context, self._wanted)) as batches:
            for batch in batches:
                found = batch_with_id(batch_with_columns(batch, file.fields), file.path, id_from)
                yield replace(found, partition=partition)

    def _records(self, file: FoundFile, offset: int) -> Iterator[ReadRecord]:
        if file.format.name == "records":
            return records.read_records(file.path, offset, self._options, self._context, self._span)
        if self._options.sort and self._context.times is not None and file.format.labels is None:
            unsorted = file.format.read(file.path, 0, self._options, self._context)
            found = sorted_records(file.path, offset, unsorted, self._context.times, self._interrupted)
        else:
            found = file.format.read(file.path, offset, self._options, self._context)
        return with_ids(with_columns(found, file.fields), file.path, self._context.sequence_from)

    def _check(self, files: FoundFile | JoinedFiles, offset: int, cursor: Cursor) -> None:
        if isinstance(files, JoinedFiles):
            if not isinstance(cursor, JoinedCursor) or cursor.is_log:
                raise other_kind_error(self._rest, cursor)
            files.check(offset, cursor)
            return
        if not isinstance(cursor, FileCursor):
            raise other_kind_error(self._rest, cursor)
        if is_same_remote(files, cursor, self._sorting):
            return
        try:
            with files.held():
                check_unchanged(files.path, cursor, lambda: self._records(files, cursor.begin), order=self._sorting)
        except READ_FAILURES as error:
            raise read_error(files.path, error) from error

    def _is_seen_from_start(self, files: FoundFile | JoinedFiles) -> bool:
        file = files.first if isinstance(files, JoinedFiles) else files
        if file.format.name != "records":
            return True
        with file.held():
            return records.is_seen_from_start(file.path, self._options, self._span)


def _size(file: FoundFile) -> int:
    with suppress(OSError):  # reading it says why
        return file.size
    return 0
