"""Followed files as a source without an end: looks again and again for what was appended, begun or rotated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeVar

from streamad.errors import ConfigError, Problem, SourceError
from streamad.plugins import ConnectorContext
from streamad.system.tasks import finished, wait_for_either
from streamad.telemetry.logs import get_logger
from streamad.types import PartitionAssigned, RecordBatch, SourceEvent
from streamad_connectors.files.cursors import Cursor, JoinedCursor, other_kind_error, sample_digest
from streamad_connectors.files.finding import FoundFile, check_ids, joined_name
from streamad_connectors.files.follow.chain import Chain
from streamad_connectors.files.follow.listing import ListedFile, Listing, check_growing
from streamad_connectors.files.formats.known import format_by_ending, format_of
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import READ_FAILURES, read_error

_LOOKING_SHARE = 9  # pauses are at least so many times as long as the looks between them, up to
_LONGEST_PAUSE_S = 5.0
_TAKEN_AT_ONCE = 16
_MAX_OPEN_FILES = 256
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition; ``version`` counts its seeks, ``grew`` is the number of the look that last found something."""

    chain: Chain
    version: int = 0
    grew: int = 0


class Following:
    """Reads the files of a URL as they grow, until closed: every log a partition, or all of them together one.

    A log is a path with the files that were rotated out of it. Empty batches with ``caught_up`` come with every look
    that finds nothing.
    """

    def __init__(self, rest: str, options: FileOptions, context: ConnectorContext) -> None:
        path = Path(rest)
        if path.suffix.lower() == ".gz" or format_by_ending(path) is not None:
            try:
                check_growing(path, options)
            except SourceError as error:
                raise ConfigError([Problem("source.options.follow", str(error))]) from error
        self._rest, self._options, self._context = rest, options, context
        self._listing = Listing(rest, options, context.base_dir)
        self._listed: list[ListedFile] = []
        self._followed: dict[str, _Followed] = {}
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._looked_s = 0.0
        self._n_looks = 0
        self._is_waiting = False
        self._closed = False

    # --- the laws of Source ---

    async def batches(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield partitions and their records until closed. Raises SourceError."""
        while not self._closed:
            self._changed.clear()
            looked_s = time.monotonic()
            found = await self._in_thread(self._look)
            self._looked_s = time.monotonic() - looked_s
            for partition, is_whole in found:
                yield PartitionAssigned(partition, seen_from_start=is_whole)
            async with aclosing(self._further()) as batches:
                async for batch in batches:
                    yield batch
            for followed in self._begun():
                if followed.chain.is_caught_up:
                    yield followed.chain.beat()
            await self._in_thread(self._rest_some)
            await self._pause()

    async def _pause(self) -> None:
        """Wait until it is time for the next look: at once if files were renamed during this one."""
        pause_s = min(_LOOKING_SHARE * self._looked_s, _LONGEST_PAUSE_S)
        if all(followed.chain.is_caught_up for followed in self._begun()):
            pause_s = max(pause_s, self._options.follow_interval / 1e6)
        await wait_for_either(self._changed, timeout_s=pause_s)

    def _begun(self) -> list[_Followed]:
        return [followed for followed in self._followed.values() if followed.version]

    async def begin(self, partition: str, offset: int, known: Cursor | None) -> int:
        """Begin ``partition`` at ``offset``, after reading went as far as ``known``. Raises SourceError."""
        followed = self._followed[partition]
        cursor = None if known is None else self._as_joined(known)
        followed.version += 1
        await self._in_thread(lambda: followed.chain.begin(offset, cursor, self._listed))
        self._changed.set()
        return offset

    async def close(self) -> None:
        """End the iterator and close all files; safe to call twice."""
        self._closed = True
        self._changed.set()
        async with self._lock:
            for followed in self._followed.values():
                followed.chain.close()

    # --- checkpoints ---

    def names(self) -> set[str]:
        """Return the names of the present files, of rotated ones those that they were written under."""
        return {self._listing.name(file.log) for file in self._listing.files()}

    def check_renamed(self, known: Mapping[str, Cursor]) -> None:
        """Raise SourceError if a file would be a new partition, but holds what was read under the name of another."""
        for file in self._listing.files():
            name = self._listing.name(file.log)
            for other, cursor in known.items():
                if name not in known and _was_read(file, cursor):
                    raise renamed_error(file.path, other)

    def _as_joined(self, cursor: Cursor) -> JoinedCursor | None:
        is_joined = self._options.files == "joined"
        if isinstance(cursor, JoinedCursor):
            if cursor.is_log is is_joined:
                raise other_kind_error(self._rest, cursor)
            return cursor
        if is_joined:
            raise other_kind_error(self._rest, cursor)
        return None if cursor.is_unread else JoinedCursor(ordinal=0, current=cursor, mtime_ns=0, is_log=True)

    # --- in a thread ---

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        async with self._lock:
            return await finished(asyncio.to_thread(work))

    def _look(self) -> list[tuple[str, bool]]:
        """Look for files; return the new partitions, each with whether it is seen from its beginning."""
        self._listed = self._listing.files()
        if not self._listed and not self._is_waiting:
            get_logger().warning("no file to follow is there yet: waiting", url=self._rest)
        self._is_waiting = not self._listed
        self._n_looks += 1
        by_name: dict[str, list[ListedFile]] = {}
        for file in self._listed:
            by_name.setdefault(self._name(file), []).append(file)
        for name, followed in self._followed.items():
            if followed.version:
                with _reading(followed.chain):
                    followed.chain.poll(by_name.get(name, ()))
        logs = {file.log for file in self._listed} if self._context.sequence_from != "message" else ()
        found = [FoundFile(log, self._listing.name(log), format_of(log, self._options)) for log in sorted(logs)]
        check_ids(found, self._context.sequence_from)
        new = {name: files for name, files in by_name.items() if name not in self._followed}
        for file in (file for files in new.values() for file in files):
            for name, followed in self._followed.items():
                if followed.chain.holds(file):
                    raise renamed_error(file.path, name)
        return [(name, self._add(name, files)) for name, files in new.items()]

    def _name(self, file: ListedFile) -> str:
        if self._options.files == "joined":
            return joined_name(self._rest, self._context.base_dir)
        return self._listing.name(file.log)

    def _add(self, name: str, files: list[ListedFile]) -> bool:
        log = None if self._options.files == "joined" else files[0].log
        chain = Chain(name, log, self._listing, self._options, self._context)
        self._followed[name] = _Followed(chain)
        return not chain.has_older(files)

    async def _further(self) -> AsyncGenerator[RecordBatch, None]:
        """Yield what can be read of all partitions in turn, until nothing is left."""
        waiting = self._begun()
        while waiting and not self._closed:
            left = []
            for begin in range(0, len(waiting), _TAKEN_AT_ONCE):
                some = waiting[begin : begin + _TAKEN_AT_ONCE]
                versions = [followed.version for followed in some]
                for followed, version, batches in zip(some, versions, await self._take(some), strict=True):
                    for batch in batches:
                        if self._closed or followed.version != version:
                            break
                        yield batch
                    if batches:
                        followed.grew = self._n_looks
                        left.append(followed)
            waiting = left

    async def _take(self, some: Iterable[_Followed]) -> list[list[RecordBatch]]:
        def take() -> Iterator[list[RecordBatch]]:
            for followed in some:
                with _reading(followed.chain):
                    yield followed.chain.take()

        return await self._in_thread(lambda: list(take()))

    def _rest_some(self) -> None:
        """Close files if many are open, first those that grew longest ago."""
        is_open = [followed for followed in self._followed.values() if followed.chain.is_open]
        for followed in sorted(is_open, key=lambda followed: followed.grew)[: max(0, len(is_open) - _MAX_OPEN_FILES)]:
            followed.chain.rest()


def renamed_error(path: Path, before: str) -> SourceError:
    """Return the error that ``path`` was read under the name ``before`` and would be read again."""
    return SourceError(
        f"{path}: was {before} before, so it would be judged again; let rotated files be named "
        f"{PurePath(before).name}.1 or {PurePath(before).name}-20261124, or choose a pattern that does not match them"
    )


def _was_read(file: ListedFile, cursor: Cursor) -> bool:
    """Return whether ``file`` holds all that was read of the current file of ``cursor``, or of a finished one."""
    current = cursor.current if isinstance(cursor, JoinedCursor) else cursor
    if file.identity.inode == current.inode and 0 < current.size <= file.size:
        return sample_digest(file.path, current.size) == current.digest
    finished = cursor.finished if isinstance(cursor, JoinedCursor) else ()
    return any(0 < old.size == file.size and sample_digest(file.path, old.size) == old.digest for old in finished)


@contextmanager
def _reading(chain: Chain) -> Iterator[None]:
    """Turn failures of reading into errors that name the file."""
    try:
        yield
    except READ_FAILURES as error:
        raise read_error(chain.path, error) from error
