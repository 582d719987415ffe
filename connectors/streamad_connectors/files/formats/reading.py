"""Shared by the readers of all file formats: opening, batches, and one-line errors."""

from __future__ import annotations

import asyncio
import gzip
import io
import threading
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.system.rights import reason
from streamad.system.tasks import look_at
from streamad.tables import ColumnBatch, Wanted
from streamad.types import Record, RecordBatch
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.whole_lines import end_of_hole

MAX_BATCH_RECORDS = 512
MAX_BATCH_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 18
_MOST_AHEAD = 64

READ_FAILURES = (OSError, EOFError, zlib.error, zipfile.BadZipFile, MemoryError)
"""The errors of reading a missing, forbidden or damaged file, or one for which there is not enough memory."""

ReadRecord: TypeAlias = tuple[Record, int]
"""A record and the offset to read after it."""

Reader: TypeAlias = Callable[[Path, int, FileOptions, ConnectorContext], Iterator[ReadRecord]]
"""Yields the records of a file from an offset on; offsets do not depend on where reading began."""

ColumnReader: TypeAlias = Callable[
    [Path, int, FileOptions, ConnectorContext, Wanted], Generator[ColumnBatch, None, None]
]
"""Yields the columns of these names of the rows that a ``Reader`` yields."""

Batches: TypeAlias = Generator[RecordBatch | ColumnBatch, None, None]


_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)
_on_bytes: ContextVar[Callable[[int], None] | None] = ContextVar("on_bytes", default=None)


class InterruptedReadError(Exception):
    """Raised inside a reader's thread once nobody waits for what it reads."""


def check_stop() -> None:
    """Raise InterruptedReadError in a reader's thread for which nobody waits any more."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise InterruptedReadError


class _Pieces(io.RawIOBase):
    """The bytes of a file in pieces; once the run is stopped there are none, however long the file holds no record."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self.is_packed = isinstance(inner, gzip.GzipFile)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._inner.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def fileno(self) -> int:
        return self._inner.fileno()

    def readinto(self, buffer: Any, /) -> int:
        check_stop()
        n_read = cast("io.BufferedIOBase", self._inner).readinto(buffer)
        if (on_bytes := _on_bytes.get()) is not None and n_read and not self.is_packed:
            on_bytes(n_read)
        return n_read

    def close(self) -> None:
        self._inner.close()
        super().close()


def open_bytes(path: Path) -> BinaryIO:
    """Open ``path`` for reading bytes; unpack it, piece by piece, if its name ends in ``.gz``."""
    is_packed = path.suffix.lower() == ".gz"
    inner = gzip.GzipFile(path, "rb") if is_packed else path.open("rb", buffering=0)
    return cast("BinaryIO", io.BufferedReader(_Pieces(cast("BinaryIO", inner)), _BUFFER_BYTES))


def skip_hole(handle: BinaryIO) -> int:
    """Go to the end of the hole of a sparse file that ``handle`` (``open_bytes``) stands in; return how many bytes."""
    raw = getattr(handle, "raw", None)
    if not isinstance(raw, _Pieces) or raw.is_packed:
        return 0
    at, read_to = handle.tell(), raw.tell()
    end = end_of_hole(handle.fileno(), at)
    raw.seek(read_to)  # looking for data has moved it, and ``handle`` has read ahead
    if end > at:
        handle.seek(end)
    return end - at


class BatchReader:
    """Reads batches in a thread, so that a slow disk does not block the event loop; small ones some at a time.

    ``on_bytes`` is told there of bytes that were read of a file of text that is not packed.
    """

    def __init__(
        self,
        batches: Batches,
        path: Path,
        interrupted: threading.Event | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self._batches = batches
        self._path = path
        self._on_bytes = on_bytes
        self._interrupted = interrupted or threading.Event()
        self._ahead: deque[RecordBatch | ColumnBatch] = deque()
        self._failure: BaseException | None = None

    async def next_batch(self) -> RecordBatch | ColumnBatch | None:
        """Return the next batch, None at the end. Raises SourceError.

        If it is cancelled, ``interrupted`` is set and it waits for the thread, which reads one piece at most: nothing
        can be read after that.
        """
        if not self._ahead and self._failure is None:
            await self._read_ahead()
        if self._ahead:
            return self._ahead.popleft()
        if isinstance(self._failure, READ_FAILURES):
            raise read_error(self._path, self._failure) from self._failure
        if self._failure is not None:
            raise self._failure
        return None

    async def _read_ahead(self) -> None:
        reading = asyncio.ensure_future(asyncio.to_thread(self._read))
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            self._interrupted.set()
            await asyncio.wait([reading])
            look_at(reading)
            raise

    def _read(self) -> None:
        """Read until there are the records of one batch; an error comes after the batches before it."""
        records = size = 0
        _stop.set(self._interrupted)
        _on_bytes.set(self._on_bytes)
        try:
            while records < MAX_BATCH_RECORDS and size < MAX_BATCH_BYTES and len(self._ahead) < _MOST_AHEAD:
                batch = next(self._batches, None)
                if batch is None:
                    return
                self._ahead.append(batch)
                if isinstance(batch, ColumnBatch):
                    return  # its rows can be made only until the next one is read
                records += len(batch.records)
                size += sum(len(record.value) for record in batch.records)
        except InterruptedReadError:
            self._failure = SourceError(f"{self._path}: reading it was interrupted; the next run goes on")
        except (SourceError, *READ_FAILURES) as error:
            self._failure = error

    def close(self) -> None:
        """Release the file."""
        self._batches.close()


def batched(records: Iterator[ReadRecord], partition: str) -> Generator[RecordBatch, None, None]:
    """Join ``records`` into batches of at most 512 records and about 1 MiB."""
    batch: list[Record] = []
    size = 0
    after = 0
    for record, after in records:
        batch.append(record)
        size += len(record.value)
        if len(batch) >= MAX_BATCH_RECORDS or size >= MAX_BATCH_BYTES:
            yield RecordBatch(partition, tuple(batch), after)
            batch, size = [], 0
    if batch:
        yield RecordBatch(partition, tuple(batch), after)


def read_error(path: Path, error: BaseException) -> SourceError:
    """Return an error of one line: why ``path`` cannot be read, and advice."""
    if isinstance(error, PermissionError):
        return SourceError(f"{path}: {reason(error, path, 'read')}")
    if isinstance(error, FileNotFoundError):
        return SourceError(f"{path}: no such file; check the path")
    if isinstance(error, IsADirectoryError):
        return SourceError(f"{path}: is a folder, not a file")
    if isinstance(error, MemoryError):
        return SourceError(f"{path}: there is not enough memory to read it; free some, or split the file")
    detail = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        detail = error.strerror or detail
    return SourceError(f"{path}: cannot be read ({detail}); the file may be damaged or still being written")


def too_large_error(path: Path, what: str, limit: int) -> SourceError:
    """Return the error that ``what`` in ``path`` would take more memory than the option allows."""
    return SourceError(
        f"{path}: {what} would take more than {limit / (1 << 20):.0f} MiB unpacked; if the file is good, raise the "
        "option max_decompressed_bytes, or split the file"
    )


def shrunk_error(path: Path, offset: int, length: int, unit: str) -> SourceError:
    """Return the error that ``path`` ends before the offset where reading should continue."""
    return SourceError(
        f"{path}: has only {length} {unit}, but reading resumes at {offset}: it was replaced or cut; "
        "put the file back, or give the new one another name"
    )
