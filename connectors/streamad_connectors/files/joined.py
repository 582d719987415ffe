"""Several files as one partition, one after the other: a sequence may begin in one file and end in the next.

An offset is the ordinal of the file x 2^40 + the offset in the file; a file keeps its ordinal for good.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace as replace_fields

from streamad.errors import SourceError
from streamad.tables import ColumnBatch
from streamad.types import FILE_OFFSETS, Record, RecordBatch
from streamad_connectors.files.cursors import (
    FileCursor,
    FinishedFile,
    JoinedCursor,
    Watch,
    check_unchanged,
    encode_finished,
    encode_joined,
    other_order_error,
    sample_digest,
)
from streamad_connectors.files.finding import FoundFile
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import READ_FAILURES, Batches, ReadRecord, read_error

REMEMBERED_FILES = 1000
OrderKey: TypeAlias = tuple[int, list[str | int], str]


def order_key(name: str, mtime_ns: int, order: Literal["name", "time"]) -> OrderKey:
    """Return what files are ordered by: numbers in names compare as numbers; ``time``: the time of change first."""
    parts: list[str | int] = [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]
    return (mtime_ns if order == "time" else 0, parts, name)


@dataclass(frozen=True, slots=True)
class Part:
    """One file to read: its ordinal, the local offset to begin at, and its time of change when reading began."""

    file: FoundFile
    ordinal: int
    begin: int
    mtime_ns: int
    written: tuple[tuple[int, int], ...] = ()


class JoinedFiles:
    """Reads ``files`` as ``partition``.

    ``read`` yields the records of one file from a local offset on, ``batches_of`` them in batches.
    """

    def __init__(
        self,
        partition: str,
        files: Sequence[FoundFile],
        options: FileOptions,
        read: Callable[[FoundFile, int], Iterator[ReadRecord]],
        *,
        batches_of: Callable[[FoundFile, int, str], Batches],
        sorting: str = "",
    ) -> None:
        self.partition = partition
        self._options = options
        self._read = read
        self._batches_of = batches_of
        self._sorting = sorting
        keyed = [
            (order_key(file.partition, mtime_ns, options.order), mtime_ns, file) for file, mtime_ns in map(_aged, files)
        ]
        self._files = [(file, key, mtime_ns) for key, mtime_ns, file in sorted(keyed, key=lambda item: item[0])]

    @property
    def files(self) -> list[FoundFile]:
        """Return the files in their order."""
        return [file for file, _, _ in self._files]

    @property
    def first(self) -> FoundFile:
        """Return the file that comes first."""
        return self._files[0][0]

    def plan(self, offset: int, known: JoinedCursor | None) -> list[Part]:
        """Return the files to read from ``offset`` on, after reading went as far as ``known``.

        Raises SourceError if the files do not continue what was read.
        """
        if known is None:
            parts = [Part(file, ordinal, 0, mtime_ns) for ordinal, (file, _, mtime_ns) in enumerate(self._files)]
        else:
            parts = [*self._known_parts(offset, known), *self._new_parts(known)]
        ordinal, local = divmod(offset, FILE_OFFSETS)
        parts = [part for part in parts if part.ordinal >= ordinal]
        return [replace(part, begin=local) if part.ordinal == ordinal else part for part in parts]

    def check(self, offset: int, known: JoinedCursor) -> None:
        """Raise SourceError if the files do not continue what was read as far as ``known``, or hold other records."""
        first = self.plan(offset, known)[:1]
        if known.current.order != self._sorting and first and first[0].ordinal < known.ordinal:
            raise other_order_error(first[0].file.path)  # nothing would tell whether the offset means the same there
        found = {file.partition: file for file, _, _ in self._files}
        for old in known.finished:
            if old.name in found:
                _check_finished(found[old.name], old)
        current = known.current
        if (file := found.get(current.name)) is not None and not is_same_remote(file, current, self._sorting):
            with file.held(), _named(file.path):
                check_unchanged(file.path, current, lambda: self._read(file, current.begin), order=self._sorting)

    def _known_parts(self, offset: int, known: JoinedCursor) -> list[Part]:
        """Return the files of ``known`` that are there."""
        found = {file.partition: (file, mtime_ns) for file, _, mtime_ns in self._files}
        done = offset // FILE_OFFSETS
        if done < known.dropped:
            raise forgotten_error(self.partition, known.dropped - done)
        parts = []
        for ordinal, old in enumerate(known.finished, known.dropped):
            if old.name in found:
                file, mtime_ns = found[old.name]
                parts.append(Part(file, ordinal, 0, mtime_ns, old.written))
            elif ordinal >= done:
                raise gone_error(old.name)
        current = known.current
        if current.name in found:
            parts.append(Part(found[current.name][0], known.ordinal, 0, known.mtime_ns))
        elif not known.is_complete or offset < known.ordinal * FILE_OFFSETS + current.next_offset:
            raise gone_error(current.name)
        return parts

    def _new_parts(self, known: JoinedCursor) -> list[Part]:
        """Return the files that ``known`` does not name; all must come after it."""
        names = {known.current.name, *(old.name for old in known.finished)}
        position = order_key(known.current.name, known.mtime_ns, self._options.order)
        forgotten = order_key(known.through, known.through_ns, self._options.order) if known.dropped else None
        others = [item for item in self._files if item[0].partition not in names]
        new = [item for item in others if forgotten is None or item[1] > forgotten]
        if len(others) - len(new) > known.dropped:
            raise one_is_new_error(self.partition, known)
        for file, key, _ in new:
            if key < position:
                raise too_late_error(file.path, known.current.name)
        return [Part(file, ordinal, 0, mtime) for (file, _, mtime), ordinal in zip(new, count(known.ordinal + 1))]

    def batches(self, offset: int, known: JoinedCursor | None) -> Batches:
        """Yield the records from ``offset`` on, with cursors. Raises SourceError."""
        history = History(known)
        for part in self.plan(offset, known):
            with part.file.held(), closing(self._of_part(part, known, history)) as batches:
                yield from batches

    def _of_part(self, part: Part, known: JoinedCursor | None, history: History) -> Batches:
        file, path = part.file, part.file.path
        is_read_again = known is not None and part.ordinal < known.ordinal
        is_current = known is not None and part.ordinal == known.ordinal
        of_file = known.current if known and is_current else None
        options = {"order": self._sorting, "lines": self._options.lines, "tag": file.tag}
        watch = Watch(path, file.partition, part.begin, of_file, **options)
        if not is_read_again:
            history.begin(part.ordinal, part.mtime_ns, watch.cursor)
            yield placed(
                RecordBatch(self.partition, (), part.begin), part.ordinal, path, cursor=history.cursor(watch.cursor)
            )
        after = part.begin
        with _named(path), closing(self._whole(part, watch, is_read_again=is_read_again)) as batches:
            for batch in batches:
                after = batch.next_offset
                if isinstance(batch, ColumnBatch):
                    yield _placed_columns(watch.pass_by(batch), part.ordinal, path)
                    continue
                if is_read_again:
                    yield placed(batch, part.ordinal, path, written=part.written)
                    continue
                current = watch.take(batch)
                yield placed(batch, part.ordinal, path, cursor=history.cursor(current), written=current.written)
        if not is_read_again:
            with _named(path):
                complete = history.cursor(watch.finish(), is_complete=True)
            yield placed(RecordBatch(self.partition, (), after), part.ordinal, path, cursor=complete)

    def _whole(self, part: Part, watch: Watch, *, is_read_again: bool) -> Batches:
        """Yield the records of a file to its end, with those that it grows by meanwhile unless it is sorted."""
        after, is_begun = part.begin, False
        while not is_begun or (watch.has_grown and not self._sorting and not is_read_again):
            is_begun = True
            watch.begin()
            with closing(self._batches_of(part.file, after, self.partition)) as batches:
                for batch in batches:
                    after = batch.next_offset
                    yield batch


class History:
    """The finished files of a partition, and the cursors that name them."""

    def __init__(self, known: JoinedCursor | None) -> None:
        self._cursor = known
        self._finished = list(known.finished) if known is not None else []
        self._encoded = deque(map(encode_finished, self._finished))

    @property
    def at(self) -> JoinedCursor | None:
        """Return how far the files were read; None before the first one."""
        return self._cursor

    def begin(self, ordinal: int, mtime_ns: int, current: FileCursor) -> None:
        """Go on to the file ``current``, changed at ``mtime_ns``: the one before is finished."""
        before = self._cursor
        if before is not None and before.ordinal == ordinal:
            return
        dropped, through, through_ns = ordinal, "", 0
        if before is not None:
            old = before.current
            self._finished.append(FinishedFile(old.name, old.size, old.digest, before.mtime_ns, old.written, old.tag))
            self._encoded.append(encode_finished(self._finished[-1]))
            dropped, through, through_ns = before.dropped, before.through, before.through_ns
            if len(self._finished) > REMEMBERED_FILES:
                first = self._finished.pop(0)
                self._encoded.popleft()
                dropped, through, through_ns = dropped + 1, first.name, first.mtime_ns
        self._cursor = JoinedCursor(
            ordinal=ordinal,
            current=current,
            mtime_ns=mtime_ns,
            finished=tuple(self._finished),
            dropped=dropped,
            through=through,
            through_ns=through_ns,
        )

    def cursor(self, current: FileCursor, *, is_complete: bool = False, is_log: bool = False) -> str:
        """Return the text of the cursor whose current file stands at ``current``."""
        assert self._cursor is not None
        self._cursor = replace_fields(self._cursor, current=current, is_complete=is_complete, is_log=is_log)
        return encode_joined(self._cursor, self._encoded)


def forgotten_error(partition: str, n_files: int) -> SourceError:
    """Return the error that reading would begin ``n_files`` before those that the cursor remembers."""
    return SourceError(
        f"{partition}: a sequence is open since {n_files} files before the oldest of the "
        f"{REMEMBERED_FILES} that the checkpoint remembers; lower sequences.max_duration, or begin anew"
    )


def too_late_error(path: Path, current: str) -> SourceError:
    """Return the error that the new file ``path`` comes before the one where reading stands."""
    return SourceError(
        f"{path}: is new, but comes before {current}, where reading stands; "
        "give it a later name, or read it with another checkpoint"
    )


def one_is_new_error(partition: str, known: JoinedCursor) -> SourceError:
    """Return the error that more files come before those that the cursor remembers than were read."""
    return SourceError(
        f"{partition}: more files than were read ({known.dropped}) come up to {known.through}, so one of them is new; "
        "give it a later name, or read it with another checkpoint"
    )


def gone_error(name: str) -> SourceError:
    """Return the error that a file is gone whose samples have no verdict yet."""
    return SourceError(f"{name}: is gone, but holds samples without a verdict; put it back until a run has judged them")


def grew_error(path: Path) -> SourceError:
    """Return the error that a file grew although a later one had begun."""
    return SourceError(
        f"{path}: grew after it was finished; put what was added into a new file that comes after all others"
    )


def _aged(file: FoundFile) -> tuple[FoundFile, int]:
    with _named(file.path):
        return file, file.mtime_ns


def is_same_remote(file: FoundFile, cursor: FileCursor, order: str) -> bool:
    """Return whether a remote file is the very one that ``cursor`` is of, so that no copy need be compared."""
    return bool(cursor.tag) and cursor.tag == file.tag and cursor.order == order


def _check_finished(file: FoundFile, old: FinishedFile) -> None:
    if old.tag and old.tag == file.tag:
        return
    with file.held(), _named(file.path):
        size = file.path.stat().st_size
        is_same = size >= old.size and sample_digest(file.path, old.size) == old.digest
    if is_same and size > old.size:
        raise grew_error(file.path)
    if not is_same:
        raise SourceError(
            f"{file.path}: no longer holds the records that were judged: it was replaced or cut; "
            "put the file back, or give the new one a later name"
        )


def placed(
    batch: RecordBatch,
    ordinal: int,
    path: Path,
    *,
    cursor: str | None = None,
    written: tuple[tuple[int, int], ...] = (),
    begins_at: int | None = None,
) -> RecordBatch:
    """Return ``batch``, whose offsets are those of the file ``path``, as one of the partition."""
    _check_end(batch.next_offset, path)
    base, records = ordinal * FILE_OFFSETS, batch.records
    if base:
        records = tuple(replace_fields(record, offset=base + record.offset) for record in records)
    return RecordBatch(
        batch.partition,
        records,
        base + batch.next_offset,
        begins_at=begins_at,
        cursor=cursor,
        written=tuple((base + offset, time_us) for offset, time_us in written),
    )


def _placed_columns(batch: ColumnBatch, ordinal: int, path: Path) -> ColumnBatch:
    """Return ``batch``, whose offsets are those of the file ``path``, as one of the partition."""
    _check_end(batch.next_offset, path)
    base = ordinal * FILE_OFFSETS

    def rows(first: int, last: int) -> tuple[Record, ...]:
        return tuple(replace_fields(record, offset=base + record.offset) for record in batch.rows(first, last))

    written = tuple((base + offset, time_us) for offset, time_us in batch.written)
    return replace(batch, offset=base + batch.offset, rows=rows, written=written)


def _check_end(next_offset: int, path: Path) -> None:
    if next_offset >= FILE_OFFSETS:
        raise SourceError(f"{path}: has offsets of 2^40 and above, too many for one file of several; split it")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn failures of reading into errors that name ``path``."""
    try:
        yield
    except READ_FAILURES as error:
        raise read_error(path, error) from error
