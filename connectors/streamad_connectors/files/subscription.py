"""Follows a sink's file of JSON lines: present lines, then new ones, none twice after a cut."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BaseModel, Field

from streamad.errors import CheckpointError, OutputError, SourceError
from streamad.plugins import ConnectorContext
from streamad.ports import StoredMessage
from streamad.settings.fields import ConfigSection, Duration, Size
from streamad.system.opening import NotRegularError, open_regular
from streamad.system.output_files import OutputFile, file_with, foreign_file, output_files
from streamad.system.rights import reason
from streamad.system.saved_progress import CommittedLength
from streamad.system.tasks import finished
from streamad.telemetry.logs import get_logger
from streamad_connectors.files.group_position import GroupPosition, Position, TakenLine, taken_line
from streamad_connectors.files.whole_lines import FoundLine, WholeLines, digest_at, last_line_end, lines_before

_SAVE_S = 1.0
_REMEMBERED = 4_096
_COUNT_S = 1.0
_AT_ONCE = 256
"""So many lines at most are yielded before other tasks get a turn."""


class FileSubscriptionOptions(ConfigSection):
    """Options for following a file."""

    group: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")] | None = Field(
        default=None, description="stores how far it was read, in a file beside it; default: not stored"
    )
    start: Literal["earliest", "latest"] | None = Field(
        default=None,
        description="where to begin the first time; default: a group earliest, a reader without one latest",
    )
    poll: Duration = Field(default=200_000, ge=1_000, description="how often to look for new lines")
    warn_missing: bool = Field(default=True, description="log a warning if the file is not there yet")
    max_record_bytes: Size = Field(
        default=64 << 20, ge=1_000, description="a longer line is skipped, and never held in memory"
    )
    checkpoint: str | None = Field(
        default=None, description="folder of the checkpoint that writes the file: only what it has committed is read"
    )
    sink: str = Field(default="", description="the file's name in that checkpoint, as the config has it")
    keep: Duration | None = Field(
        default=None,
        description="with a group, for an output in several files: delete those that were read and not written to for "
        "so long; default: none",
    )


@dataclass(slots=True)
class _HeldLine:
    """A line that is not released (None: one without an end yet), and where a group must begin to get it again.

    ``is_gone``: it was cut off the file since, and may be written again.
    """

    line: TakenLine | None
    resume: int
    is_gone: bool = False


class FileSubscription:
    """Yields the lines of an output that ``JsonlSink`` writes, of all its files; waits for one that is not there yet.

    A restarted streamad cuts its file back to its checkpoint and writes later messages once more: none of the latest
    4,096 yielded lines is yielded again. A group's position is kept in the file ``NAME.GROUP.position`` beside it,
    saved once a second and by ``close``: at least once. With ``checkpoint`` no line is yielded before its commit, so
    none that may be cut off. After ``hold`` it is that of the first line not released, and
    one that cannot be saved (a full disk) is one warning until ``close``. A line above ``max_record_bytes`` is yielded
    as a problem, and so are files that were deleted before they were read.
    """

    options_model: type[BaseModel] = FileSubscriptionOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        if not rest:
            raise SourceError("a file to follow needs a path, for example file:out/alerts.jsonl")
        given = cast("FileSubscriptionOptions", options)
        # Above 15 attributes: eight options; the others are one position, and a line moves most of them.
        self._path = Path(context.base_dir, rest)
        self._poll_s = given.poll / 1e6
        self._limit = given.max_record_bytes
        self._keep_us = given.keep
        self._clock = context.clock
        self._warns_missing = given.warn_missing
        self._start = given.start or ("latest" if given.group is None else "earliest")
        self._group = None if given.group is None else GroupPosition(self._path, given.group)
        self._committed: CommittedLength | None = None
        if given.checkpoint is not None:
            self._committed = CommittedLength(Path(context.base_dir, given.checkpoint), given.sink)
        self._found = WholeLines(self._limit)
        self._lines: deque[TakenLine] = deque()  # yielded, the oldest first
        self._held: deque[_HeldLine] | None = None
        self._again: Counter[str] = Counter()
        self._position = 0
        self._too_long_at: int | None = None  # a line without an end, reported already
        self._first: tuple[int, int, int] | None = None  # of the oldest file: start, device and inode
        self._is_first_saved = False  # it is that of an earlier life
        self._file: int | None = None  # the one that is read, and the offset of its first byte
        self._base = 0
        self._lost: tuple[int, str] | None = None  # where deleted lines began, and what to say of them
        self._yielded: TakenLine | None = None
        self._saved_at = 0.0
        self._is_changed = self._is_unsaved = self._is_closed = False
        self._ending = asyncio.Event()
        self._end: int | None = None

    async def messages(self) -> AsyncIterator[StoredMessage]:
        """Yield lines as they come. Raises SourceError if the file or the group's position cannot be read."""
        await finished(asyncio.to_thread(self._begin))
        while not self._is_closed:
            lines = await finished(asyncio.to_thread(self._read))
            for number, (line, content) in enumerate(lines):
                if self._end is not None and line.start >= self._end:
                    return
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
                if self._comes_again(line) or (content is None and self._too_long_at == line.start):
                    self._take(line)
                else:
                    self._yielded = line
                    if self._held is not None:
                        self._held.append(_HeldLine(line, line.start))
                        self.done()
                    yield self._message(line.start, content)
                    self.done()
                    await self._save_if_due()
            if lines:
                continue
            if (unread := self._unread()) is not None:
                yield unread
            await self._save_if_due()
            is_through = self._end is not None and self._base + self._found.searched >= self._end
            if self._end is not None and (is_through or not self._found.has_more):
                return
            if self._found.has_more:
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._poll_s)

    def _unread(self) -> StoredMessage | None:
        """Return a message, once, for what cannot be read here: files that were deleted, a line above the limit."""
        start = self._too_long()
        if self._lost is not None:
            (start, problem), self._lost = self._lost, None
            found = StoredMessage(b"", f"{self._path}, byte {start}", problem=problem)
        elif start is not None and start != self._too_long_at:
            self._too_long_at = start
            found = self._message(start, None)
        else:
            return None
        if self._held is not None:
            self._held.append(_HeldLine(None, start))
        return found

    def _message(self, start: int, content: bytes | None) -> StoredMessage:
        place = f"{self._path}, byte {start}"
        if content is None:
            return StoredMessage(b"", place, problem=f"a line longer than max_record_bytes ({self._limit} bytes)")
        return StoredMessage(content, place)

    def done(self) -> None:
        """Mark the line yielded last as done."""
        yielded, self._yielded = self._yielded, None
        if yielded is not None:
            self._take(yielded)

    def hold(self) -> None:
        """Hold every line from now on until ``release``."""
        self._held = deque()

    def release(self, n: int) -> None:
        """Mark the ``n`` oldest of the lines held as done."""
        assert self._held is not None
        for _ in range(n):
            self._held.popleft()
        self._is_changed = True
        self._forget_old_lines()

    def end_with_present(self) -> None:
        """Let ``messages`` end after the lines that are there now."""
        self._ending.set()

    async def n_present(self) -> int | None:
        """Return how many whole lines, of those there now or at ``end_with_present``, are not done; None: unknown.

        Unknown after a second of counting, too.
        """
        try:
            return await finished(asyncio.to_thread(self._count))
        except OSError:
            return None

    async def close(self) -> None:
        """Save the position and release the file; safe to call twice. Raises OutputError."""
        self._is_closed = True
        try:
            if self._is_changed and self._group is not None and self._group.is_locked:
                await self._save()
        finally:
            self._close_file()
            if self._group is not None:
                self._group.release()

    def _begin(self) -> None:
        if self._group is not None and (saved := self._group.take()) is not None:
            self._position = saved.position
            self._lines.extend(saved.lines)
            self._again.update(dict(list(saved.again.items())[-_REMEMBERED:]))
            self._first, self._is_first_saved = saved.first, True
            return
        files = output_files(self._path)
        if not files:
            if self._warns_missing:
                get_logger().warning("the file to follow is not there yet: waiting", path=str(self._path))
        elif self._start == "latest":
            self._skip_what_is_there(files[-1])
        else:
            self._position = files[0].start
        self._is_changed = True

    def _skip_what_is_there(self, last: OutputFile) -> None:
        """Begin after the last whole line; the latest lines of its file count as yielded."""
        try:
            self._open(last)
            assert self._file is not None
            end = last_line_end(self._file, self._limit)
            for line in lines_before(self._file, end, self._limit):
                self._take(taken_line(_shifted(line, last.start)))
        except OSError as error:
            raise self._unreadable(error) from error
        self._position = last.start + end

    def _unreadable(self, error: OSError) -> SourceError:
        advice = ""
        if isinstance(error, IsADirectoryError):
            advice = "; it is a folder: name a file in it"
        elif isinstance(error, NotRegularError):
            advice = "; name a regular file"
        return SourceError(f"cannot read {self._path}: {reason(error, self._path, 'read')}{advice}")

    def _read(self) -> list[tuple[TakenLine, bytes | None]]:
        """Return some whole new lines, without the content of those that are too long."""
        try:
            files = output_files(self._path)
            if self._ending.is_set() and self._end is None:
                self._end = self._present_end(files)
            self._begin_anew_if_replaced(files)
            self._refuse_a_foreign_file(files)
            self._go_back_to_what_is_there(files)
            if not self._is_open(files):
                return []
            end = math.inf if self._committed is None else self._committed.now()
            return self._lines_until(end, files)
        except FileNotFoundError:  # deleted at this moment
            self._found.has_more = False
            return []
        except OSError as error:
            raise self._unreadable(error) from error
        except CheckpointError as error:
            raise SourceError(str(error)) from error

    def _lines_until(self, end: float, files: list[OutputFile]) -> list[tuple[TakenLine, bytes | None]]:
        """Return some lines of the open file that end at the offset ``end`` or before."""
        assert self._file is not None
        if self._position >= end:
            self._found.has_more = False
            return []
        lines = [_shifted(line, self._base) for line in self._found.after(self._file, self._position - self._base)]
        within = [(taken_line(line), line.content) for line in lines if line.start + line.length <= end]
        self._found.has_more = self._found.has_more and len(within) == len(lines)
        later = next((file for file in files if file.start > self._base), None)
        is_at_its_end = not lines and not self._found.has_more
        if is_at_its_end and later is not None and later.start <= end and later.path.exists():
            self._lose(later)  # something is missing between the two
        return within

    def _lose(self, later: OutputFile) -> None:
        n_bytes = later.start - self._position
        self._lost = self._position, f"{n_bytes} bytes before {later.path} were deleted before they were read"
        self._position = later.start
        self._found.has_more = True

    def _begin_anew_if_replaced(self, files: list[OutputFile]) -> None:
        """Go to the beginning if another output has the name now; old files that were deleted change nothing.

        While nobody read, the same output may have been copied or restored: then the last line read is in its place.
        """
        if not files:
            return
        status = files[0].path.stat()
        first, before = (files[0].start, status.st_dev, status.st_ino), self._first
        is_another = before is not None and first != before and first[0] <= before[0]
        if is_another and not (self._is_first_saved and self._is_where_it_was(files)):
            self._close_file()
            self._go_to(files[0].start)
            self._too_long_at = None
            self._lines.clear()
            self._again.clear()
        self._first, self._is_first_saved = first, False

    def _is_where_it_was(self, files: list[OutputFile]) -> bool:
        if self._lines:
            return self._is_there(files, self._lines[-1])
        return self._position <= self._present_end(files)

    def _refuse_a_foreign_file(self, files: list[OutputFile]) -> None:
        """Raise SourceError if it is not clear which file has the bytes around the position."""
        n_before = sum(file.start < self._position for file in files)
        n_begun = sum(file.start <= self._position for file in files)
        near = slice(max(0, n_before - 2), n_begun + 1)
        problem = foreign_file(files[near])
        # The writer may have cut its files back and begun others since ``files`` were listed.
        if problem is not None and foreign_file(output_files(self._path)[near]) == problem:
            raise SourceError(problem)

    def _is_open(self, files: list[OutputFile]) -> bool:
        """Return whether the file of the position is open; False if there is none, or if it is deleted."""
        file = file_with(files, self._position)
        if file is None:
            if files:
                self._lose(files[0])
            return self._file is not None and not files  # one that somebody deleted is read to its end
        status = file.path.stat()
        if self._file is None or not os.path.samestat(os.fstat(self._file), status):
            self._close_file()
            self._open(file)
        return True

    def _open(self, file: OutputFile) -> None:
        self._file = open_regular(file.path)  # unbuffered: a buffer would show content from before a cut
        self._base = file.start

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        self._found = WholeLines(self._limit)

    def _too_long(self) -> int | None:
        start = self._found.too_long
        return None if start is None else self._base + start

    def _go_back_to_what_is_there(self, files: list[OutputFile]) -> None:
        """Go back to the last line that is still as it was read: later ones were cut off and may be written again."""
        if not files:
            return
        while self._lines and not self._is_there(files, self._lines[-1]):
            gone = self._lines.pop()
            self._again[gone.identity] += 1
            self._go_to(gone.start)
            for held in self._held or ():
                held.is_gone = held.is_gone or held.line is gone
            if len(self._again) > _REMEMBERED:  # who cuts the file again and again must not fill the memory
                del self._again[next(iter(self._again))]
        if not self._lines and self._position > (end := self._present_end(files)):
            self._go_to(end)

    def _is_there(self, files: list[OutputFile], line: TakenLine) -> bool:
        """Return whether ``line`` is where it was read; so is one in an old file that was deleted as a whole."""
        holder = file_with(files, line.start)
        if holder is None:
            return True
        if self._file is not None and os.path.samestat(os.fstat(self._file), holder.path.stat()):
            return digest_at(self._file, line.start - holder.start, line.length) == line.digest
        file = open_regular(holder.path)
        try:
            return digest_at(file, line.start - holder.start, line.length) == line.digest
        finally:
            os.close(file)

    def _present_end(self, files: list[OutputFile]) -> int:
        """Return the offset after the last byte, of the file that is read if none has the name any more."""
        if files:
            return files[-1].start + files[-1].path.stat().st_size
        return 0 if self._file is None else self._base + os.fstat(self._file).st_size

    def _go_to(self, position: int) -> None:
        """Read on from an earlier ``position``, where a group then also begins unless all is released."""
        self._position = position
        for held in self._held or ():
            held.resume = min(held.resume, position)

    def _comes_again(self, line: TakenLine) -> bool:
        """Return whether ``line`` was yielded before it was cut off; then it may come once less."""
        if (n := self._again.get(line.identity, 0)) > 1:
            self._again[line.identity] = n - 1
        elif n:
            del self._again[line.identity]
        return n > 0

    def _count(self) -> int | None:
        files = output_files(self._path)
        if self._file is None:
            return None if files else 0
        end = self._present_end(files) if self._end is None else self._end
        position, n, deadline = self._position, 0, time.monotonic() + _COUNT_S
        for number, file in enumerate(files):
            until = min(end, files[number + 1].start if number + 1 < len(files) else end)
            if position >= until:
                continue
            descriptor, found = open_regular(file.path), WholeLines(self._limit)
            try:
                position = max(position, file.start)
                while position < until:
                    if time.monotonic() >= deadline:  # a thread hears of no time-out
                        return None
                    lines = [_shifted(line, file.start) for line in found.after(descriptor, position - file.start)]
                    n += sum(line.start < until for line in lines)
                    position = lines[-1].start + lines[-1].length if lines else position
                    if not lines and not found.has_more:
                        break
            finally:
                os.close(descriptor)
        return n

    def _take(self, line: TakenLine) -> None:
        self._lines.append(line)
        self._position = line.start + line.length
        self._is_changed = True
        self._forget_old_lines()

    def _forget_old_lines(self) -> None:
        """Keep the latest lines before those that are held, and these."""
        while len(self._lines) - len(self._held or ()) > _REMEMBERED:
            self._lines.popleft()

    async def _save_if_due(self) -> None:
        is_kept = self._group is not None and self._group.is_locked
        if is_kept and self._is_changed and time.monotonic() - self._saved_at >= _SAVE_S:
            try:
                await self._save()
            except OutputError as error:
                if self._held is None:
                    raise
                self._saved_at = time.monotonic()
                if not self._is_unsaved:
                    get_logger().warning("the position is not saved yet", path=str(self._path), why=str(error))
                self._is_unsaved = True

    async def _save(self) -> None:
        done = self._done_until()
        self._is_changed = False  # before the thread: what is released meanwhile is to be saved, too
        try:
            await finished(asyncio.to_thread(self._saved, done))
        except BaseException:
            self._is_changed = True
            raise

    def _saved(self, done: Position) -> None:
        assert self._group is not None
        self._group.save(done)
        if self._keep_us is not None:
            self._delete_old_files(done.position, self._clock.now_us() - self._keep_us)
        self._saved_at = time.monotonic()
        self._is_unsaved = False

    def _delete_old_files(self, position: int, until_us: int) -> None:
        """Delete, the oldest first, files that end before ``position`` and are older than ``until_us``."""
        files = output_files(self._path)
        try:
            for file, later in pairwise(files):
                status = file.path.stat()
                is_read = file.start + status.st_size <= later.start <= position
                if not is_read or status.st_mtime_ns // 1_000 >= until_us:
                    return
                file.path.unlink()
        except OSError as error:
            get_logger().warning("an old file is not deleted", path=str(self._path), why=str(error))
            self._keep_us = None

    def _done_until(self) -> Position:
        """Return the position before the first line held; none of the lines held counts as one that may come again."""
        position, lines, again = self._position, list(self._lines), Counter(self._again)
        if self._held:
            position = min(position, self._held[0].resume)
            lines = [line for line in lines if line.start < position]
            again -= Counter(held.line.identity for held in self._held if held.is_gone and held.line is not None)
        return Position(position, lines[-_REMEMBERED:], {name: n for name, n in again.items() if n}, self._first)


def _shifted(line: FoundLine, base: int) -> FoundLine:
    """Return ``line`` of a file whose first byte is at ``base``, at its offset in the output."""
    return line._replace(start=base + line.start)
