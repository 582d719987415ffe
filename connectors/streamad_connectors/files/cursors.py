"""Cursors: what a source must know of a file to notice later that other records stand where it has read."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from streamad.errors import SourceError
from streamad.tables import ColumnBatch
from streamad.types import Record, RecordBatch
from streamad_connectors.files.formats.reading import Batches, ReadRecord

BLOCK_BYTES = 64 * 1024
_SPREAD_BLOCKS = 16
_DIGEST_BYTES = 12
_WRITTEN_STEP_US = 60_000_000
_WRITTEN_STEPS = 64


class FileCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="file"):
    """How far a file was read, and what it held.

    ``digest`` is that of blocks of its first ``size`` bytes (see ``sample_digest``). ``crc`` and ``n_bytes`` are CRC-32
    and length of the values of the records from offset ``begin`` on and below ``next_offset``. ``written`` holds the
    file's times of change when records were first read (see ``RecordBatch.written``). ``order`` says what sorted the
    records, if any did, ``lines`` which options said where rows of CSV begin. Of followed files, ``numeric`` has a 1
    for each CSV column of numbers and a 0 for each other one, and ``inode`` is the file's. ``tag`` is that of a remote
    file, ``is_complete`` says that it was read to its end.
    """

    name: str
    size: int
    digest: str
    begin: int
    next_offset: int
    crc: int = 0
    n_bytes: int = 0
    written: tuple[tuple[int, int], ...] = ()
    order: str = ""
    lines: str = ""
    numeric: str = ""
    inode: int = 0
    tag: str = ""
    is_complete: bool = False

    @property
    def is_unread(self) -> bool:
        """Return whether no record was read, so that nothing tells the file from others."""
        return self.next_offset == self.begin

    def after(self, batch: RecordBatch, mtime_us: int) -> FileCursor:
        """Return the cursor after ``batch``, which the file held when it was changed last, at ``mtime_us``.

        Its size and digest stay as they are.
        """
        if batch.next_offset <= self.next_offset:
            return self
        values = b"".join([record.value for record in batch.records if record.offset >= self.next_offset])
        return msgspec.structs.replace(
            self,
            next_offset=batch.next_offset,
            crc=zlib.crc32(values, self.crc),
            n_bytes=self.n_bytes + len(values),
            written=_written(self.written, self.next_offset, mtime_us),
        )


class FinishedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that was read to its end before the next one was begun: its name, size, digest and times of change."""

    name: str
    size: int
    digest: str
    mtime_ns: int
    written: tuple[tuple[int, int], ...] = ()
    tag: str = ""


class JoinedCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="joined"):
    """How far joined files were read.

    ``current`` is the file with the ordinal ``ordinal``, changed at ``mtime_ns`` when reading it began;
    ``is_complete``: it was read to its end. ``finished`` are those before it, in the order of their
    ordinals, without the first ``dropped``, the last of which was ``through``. ``is_log``: all were written under one
    name, one after the other, and followed.
    """

    ordinal: int
    current: FileCursor
    mtime_ns: int
    is_complete: bool = False
    finished: tuple[FinishedFile, ...] = ()
    dropped: int = 0
    through: str = ""
    through_ns: int = 0
    is_log: bool = False

    @property
    def names(self) -> set[str]:
        """Return the names of the files that it knows."""
        return {self.current.name, *(file.name for file in self.finished)}


Cursor: TypeAlias = FileCursor | JoinedCursor

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Cursor] = msgspec.json.Decoder(Cursor)


def encode_cursor(cursor: Cursor) -> str:
    """Return the text of ``cursor``."""
    return _encoder.encode(cursor).decode()


def encode_finished(file: FinishedFile) -> bytes:
    """Return the text of one finished file, for ``encode_joined``."""
    return _encoder.encode(file)


def encode_joined(cursor: JoinedCursor, finished: Iterable[bytes]) -> str:
    """Return the text of ``cursor``, whose ``finished`` files are encoded: they are many, and seldom change."""
    head, files = _encoder.encode(msgspec.structs.replace(cursor, finished=())), b",".join(finished)
    return (b'%b,"finished":[%b]}' % (head[:-1], files) if files else head).decode()


def decode_cursor(text: str, partition: str) -> Cursor:
    """Return the cursor of ``text``. Raises SourceError if it is none of this version."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(
            f"{partition}: the checkpoint's cursor cannot be read ({error}); finish with the version that wrote it"
        ) from error


def other_kind_error(rest: str, cursor: Cursor | None) -> SourceError:
    """Return the error that a checkpoint, which has ``cursor``, was made with other options for the URL's files."""
    if isinstance(cursor, JoinedCursor) and cursor.is_log:
        made, remedy = "follow: true and files: separate", "set both again in source.options"
    elif isinstance(cursor, JoinedCursor):
        made, remedy = "files: joined", "set source.options.files to joined"
    else:
        made, remedy = "files: separate", "set source.options.files to separate"
    return SourceError(
        f"{rest}: the checkpoint was made with {made}, so verdicts would come again or be lost; "
        f"{remedy}, or move the checkpoint and the outputs away to begin anew"
    )


def check_lines(cursor: Cursor, lines: str) -> None:
    """Raise SourceError if other ``lines`` of CSV would be taken for records now than when ``cursor`` was made."""
    current = cursor.current if isinstance(cursor, JoinedCursor) else cursor
    if current.is_unread or current.lines == lines:
        return
    raise SourceError(
        f"{current.name}: the checkpoint was made with {current.lines or 'no header and no first_row'} in "
        "source.options, so rows would be judged again or be lost; set that again, or move the checkpoint and the "
        "outputs away to begin anew"
    )


def sample_digest(path: Path, size: int) -> str:
    """Return the digest of the first ``size`` bytes: of the first 64 KiB, the last, and 16 such blocks between.

    Shorter files count whole. Raises OSError.
    """
    with path.open("rb", buffering=0) as file:
        return digest_of(file, size)


def digest_of(file: IO[bytes], size: int) -> str:
    """Return the digest of the first ``size`` bytes of ``file``, unbuffered (see ``sample_digest``). Raises OSError."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for begin in block_starts(size):
        file.seek(begin)
        digest.update(file.read(min(BLOCK_BYTES, size - begin)))
    return digest.hexdigest()


def block_starts(size: int) -> list[int]:
    """Return where the blocks begin that stand for the first ``size`` bytes of a file."""
    n_blocks = _SPREAD_BLOCKS + 2
    if size <= n_blocks * BLOCK_BYTES:
        return list(range(0, size, BLOCK_BYTES))
    last = size - BLOCK_BYTES
    return [last * number // (n_blocks - 1) for number in range(n_blocks)]


class Watch:
    """Makes the cursors of a file while it is read; ``known`` is the last committed one.

    Records below the known cursor are read again, and are in it already. Call ``begin`` before the file is read.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        offset: int,
        known: FileCursor | None = None,
        *,
        order: str = "",
        lines: str = "",
        tag: str = "",
    ) -> None:
        self._path = path
        self.offset = offset
        if known is None or known.next_offset < offset:
            known = FileCursor(name=name, size=-1, digest="", begin=offset, next_offset=offset)
        self.cursor = msgspec.structs.replace(known, order=order, lines=lines, tag=tag, is_complete=False)
        self._begun_size = 0

    def begin(self) -> None:
        """Note the file's size: what is read now goes at least so far. Raises OSError."""
        self._begun_size = self._path.stat().st_size

    @property
    def has_grown(self) -> bool:
        """Return whether the file holds more than at ``begin``. Raises OSError."""
        return self._path.stat().st_size > self._begun_size

    def take(self, batch: RecordBatch) -> FileCursor:
        """Return the cursor after ``batch``. Raises OSError."""
        if batch.next_offset <= self.cursor.next_offset:
            return self.cursor
        status = self._path.stat()
        self.cursor = self.cursor.after(batch, status.st_mtime_ns // 1_000)
        # What a sorted file has grown by meanwhile is not among its sorted records.
        return self._sized(self._begun_size if self.cursor.order else status.st_size)

    def pass_by(self, batch: ColumnBatch) -> ColumnBatch:
        """Return ``batch`` with its times of change; the cursor does not tell what its rows were. Raises OSError."""
        written = _written(self.cursor.written, self.cursor.next_offset, self._path.stat().st_mtime_ns // 1_000)
        self.cursor = msgspec.structs.replace(self.cursor, next_offset=batch.next_offset, written=written)
        return replace(batch, written=written)

    def finish(self) -> FileCursor:
        """Return the cursor with size and digest of what was there at ``begin``. Raises OSError."""
        return self._sized(self._begun_size)

    def _sized(self, size: int) -> FileCursor:
        if size != self.cursor.size:
            self.cursor = msgspec.structs.replace(self.cursor, size=size, digest=sample_digest(self._path, size))
        return self.cursor


def _written(steps: tuple[tuple[int, int], ...], offset: int, mtime_us: int) -> tuple[tuple[int, int], ...]:
    """Return ``steps`` with the time of change at which the records from ``offset`` on are read first.

    A later time counts from a minute on, so that a growing file has few steps; an earlier one never.
    """
    if steps and mtime_us < steps[-1][1] + _WRITTEN_STEP_US:
        return steps
    return (*steps, (offset, mtime_us))[-_WRITTEN_STEPS:]


def with_cursors(batches: Batches, watch: Watch) -> Batches:
    """Yield ``batches`` with the cursors of ``watch`` (columns: none); a remote file has one more, that it was all."""
    with closing(batches):
        watch.begin()
        after = watch.offset
        for batch in batches:
            after = batch.next_offset
            if isinstance(batch, ColumnBatch):
                yield watch.pass_by(batch)
                continue
            cursor = watch.take(batch)
            yield replace(batch, cursor=encode_cursor(cursor), written=cursor.written)
        if watch.cursor.tag:
            complete = msgspec.structs.replace(watch.finish(), is_complete=True)
            yield RecordBatch(complete.name, (), after, cursor=encode_cursor(complete), written=complete.written)


def check_unchanged(
    path: Path, cursor: FileCursor, records: Callable[[], Iterator[ReadRecord]], *, order: str = ""
) -> None:
    """Raise SourceError unless ``path`` still holds the records of ``cursor``; it may have grown.

    If the bytes differ (a file packed or written anew), or what sorts them, or a file to be sorted has grown,
    ``records`` from ``cursor.begin`` on decide. Raises OSError.
    """
    if cursor.next_offset == cursor.begin:
        return
    size = path.stat().st_size
    is_long = size == cursor.size if order else size >= cursor.size
    is_same = order == cursor.order and is_long and sample_digest(path, cursor.size) == cursor.digest
    if not is_same and not _are_same(cursor, records()):
        if order != cursor.order:
            raise other_order_error(path)
        if order and size > cursor.size:
            raise SourceError(
                f"{path}: grew by records that sort before those that were judged; "
                "put them into another file, or move the checkpoint and the outputs away to begin anew"
            )
        raise SourceError(
            f"{path}: no longer holds the records that were judged: it was replaced or cut; "
            "put the file back, or give the new one another name"
        )


def other_order_error(path: Path) -> SourceError:
    """Return the error that the records of ``path`` are sorted otherwise than when they were judged."""
    return SourceError(
        f"{path}: its records come in another order than those that were judged: set source.options.sort and "
        "decode back, or move the checkpoint and the outputs away to begin anew"
    )


def _are_same(cursor: FileCursor, records: Iterator[ReadRecord]) -> bool:
    crc = n_bytes = 0
    reached = cursor.begin
    record: Record
    for record, after in records:
        if record.offset >= cursor.next_offset:
            break
        crc = zlib.crc32(record.value, crc)
        n_bytes += len(record.value)
        reached = after
    return (crc, n_bytes, reached) == (cursor.crc, cursor.n_bytes, cursor.next_offset)
