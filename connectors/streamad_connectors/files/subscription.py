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
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from pydantic import BaseModel, Field

from streamad.errors import CheckpointError, OutputError, SourceError
from streamad.plugins import ConnectorContext
from streamad.ports import StoredMessage
from streamad.settings.fields import ConfigSection, Duration, Size
from streamad.system.opening import NotRegularError, open_regular
from streamad.system.rights import reason
from streamad.system.saved_progress import CommittedLength
from streamad.system.tasks import finished
from streamad.telemetry.logs import get_logger
from streamad_connectors.files.group_position import GroupPosition, Position, TakenLine
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


@dataclass(slots=True)
class _HeldLine:
    """A line that is not released (None: one without an end yet), and where a group must begin to get it again.

    ``is_gone``: it was cut off the file since, and may be written again.
    """

    line: TakenLine | None
    resume: int
    is_gone: bool = False


class FileSubscription:
    """Yields the lines of a file that ``JsonlSink`` writes; waits for a file that is not there yet.

    A restarted streamad cuts its file back to its checkpoint and writes later messages once more: none of the latest
    4,096 yielded lines is yielded again. A group's position is kept in the file ``NAME.GROUP.position`` beside it,
    saved once a second and by ``close``: at least once. With ``checkpoint`` no line is yielded before its commit, so
    none that may be cut off. After ``hold`` it is that of the first line not released, and
    one that cannot be saved (a full disk) is one warning until ``close``. A line above ``max_record_bytes`` is yielded
    as a problem.
    """

    options_model: type[BaseModel] = FileSubscriptionOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        if not rest:
            raise SourceError("a file to follow needs a path, for example file:out/alerts.jsonl")
        given = cast("FileSubscriptionOptions", options)
        self._path = Path(context.base_dir, rest)
        self._poll_s = given.poll / 1e6
        self._limit = given.max_record_bytes
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
        self._file: int | None = None
        self._yielded: TakenLine | None = None
        self._saved_at = 0.0
        self._is_changed = False
        self._is_unsaved = False
        self._is_closed = False
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
            if (start := self._found.too_long) is not None and start != self._too_long_at:
                self._too_long_at = start
                if self._held is not None:
                    self._held.append(_HeldLine(None, start))
                yield self._message(start, None)
            await self._save_if_due()
            if self._end is not None and (self._found.searched >= self._end or not self._found.has_more):
                return
            if self._found.has_more:
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._poll_s)

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
                await finished(asyncio.to_thread(self._save))
        finally:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)
            if self._group is not None:
                self._group.release()

    def _begin(self) -> None:
        if self._group is not None and (saved := self._group.take()) is not None:
            self._position = saved.position
            self._lines.extend(saved.lines)
            self._again.update(dict(list(saved.again.items())[-_REMEMBERED:]))
            return
        if not self._path.exists():
            if self._warns_missing:
                get_logger().warning("the file to follow is not there yet: waiting", path=str(self._path))
        elif self._start == "latest":
            self._skip_what_is_there()
        self._is_changed = True

    def _skip_what_is_there(self) -> None:
        """Begin after the last whole line; the latest lines count as yielded."""
        try:
            self._file = open_regular(self._path)
            end = last_line_end(self._file, self._limit)
            for line in lines_before(self._file, end, self._limit):
                self._take(_taken(line))
        except OSError as error:
            raise self._unreadable(error) from error
        self._position = end

    def _unreadable(self, error: OSError) -> SourceError:
        advice = ""
        if isinstance(error, IsADirectoryError):
            advice = "; it is a folder: name a file in it"
        elif isinstance(error, NotRegularError):
            advice = "; name a regular file"
        return SourceError(f"cannot read {self._path}: {reason(error, self._path, 'read')}{advice}")

    def _read(self) -> list[tuple[TakenLine, bytes | None]]:
        """Return some whole new lines, without the content of those that are too long."""
        is_ending = self._ending.is_set()
        try:
            file = self._opened()
            if is_ending and self._end is None:
                self._end = 0 if file is None else os.fstat(file).st_size
            if file is None:
                return []
            self._go_back_to_what_is_there(file)
            end = math.inf if self._committed is None else self._committed.now()
            if self._position >= end:
                self._found.has_more = False
                return []
            lines = self._found.after(file, self._position)
            within = [(_taken(line), line.content) for line in lines if line.start + line.length <= end]
            self._found.has_more = self._found.has_more and len(within) == len(lines)
            return within
        except OSError as error:
            raise self._unreadable(error) from error
        except CheckpointError as error:
            raise SourceError(str(error)) from error

    def _opened(self) -> int | None:
        """Return the file that now has the name; another one than before is read from its beginning."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return self._file
        if self._file is not None:
            held = os.fstat(self._file)
            if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino):
                return self._file
            os.close(self._file)
            self._file = None
            self._go_to(0)
            self._found = WholeLines(self._limit)
            self._too_long_at = None
            self._lines.clear()
            self._again.clear()
        self._file = open_regular(self._path)  # unbuffered: a buffer would show content from before a cut
        return self._file

    def _go_back_to_what_is_there(self, file: int) -> None:
        """Go back to the last line that is still as it was read: later ones were cut off and may be written again."""
        while self._lines and not _is_there(file, self._lines[-1]):
            gone = self._lines.pop()
            self._again[gone.identity] += 1
            self._go_to(gone.start)
            for held in self._held or ():
                held.is_gone = held.is_gone or held.line is gone
            if len(self._again) > _REMEMBERED:  # who cuts the file again and again must not fill the memory
                del self._again[next(iter(self._again))]
        size = os.fstat(file).st_size
        if not self._lines and self._position > size:
            self._go_to(size)

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
        if self._file is None:
            return None if self._path.exists() else 0
        end, position, found, n = os.fstat(self._file).st_size, self._position, WholeLines(self._limit), 0
        end = end if self._end is None else min(end, self._end)
        deadline = time.monotonic() + _COUNT_S
        while position < end:
            if time.monotonic() >= deadline:  # a thread hears of no time-out
                return None
            lines = found.after(self._file, position)
            n += sum(line.start < end for line in lines)
            position = lines[-1].start + lines[-1].length if lines else position
            if not lines and not found.has_more:
                break
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
                await finished(asyncio.to_thread(self._save))
            except OutputError as error:
                if self._held is None:
                    raise
                self._saved_at = time.monotonic()
                if not self._is_unsaved:
                    get_logger().warning("the position is not saved yet", path=str(self._path), why=str(error))
                self._is_unsaved = True

    def _save(self) -> None:
        assert self._group is not None
        self._group.save(self._done_until())
        self._saved_at = time.monotonic()
        self._is_changed = self._is_unsaved = False

    def _done_until(self) -> Position:
        """Return the position before the first line held; none of the lines held counts as one that may come again."""
        position, lines, again = self._position, list(self._lines), Counter(self._again)
        if self._held:
            position = min(position, self._held[0].resume)
            lines = [line for line in lines if line.start < position]
            again -= Counter(held.line.identity for held in self._held if held.is_gone and held.line is not None)
        return Position(position, lines[-_REMEMBERED:], {name: n for name, n in again.items() if n})


def _taken(line: FoundLine) -> TakenLine:
    identity = line.digest if line.content is None else blake2b(_lasting(line.content), digest_size=8).hexdigest()
    return TakenLine(line.start, line.length, line.digest, identity)


def _lasting(line: bytes) -> bytes:
    """Return the part of a message that is the same when a restarted streamad writes it again: all but ``created_at``.

    Operators' marks are written once: one of another time is another one.
    """
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return line
    if isinstance(fields, dict) and "judgement" not in fields:
        fields.pop("created_at", None)
    return msgspec.json.encode(fields)


def _is_there(file: int, line: TakenLine) -> bool:
    return digest_at(file, line.start, line.length) == line.digest
