"""Follows a sink's file of JSON lines: present lines, then new ones, none twice after a cut."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from pydantic import BaseModel, Field

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.ports import StoredMessage
from streamad.settings.fields import ConfigSection, Duration
from streamad.system.files import write_atomically
from streamad.system.locks import try_lock
from streamad.system.tasks import finished
from streamad.telemetry.logs import get_logger

_CHUNK_BYTES = 1 << 20
_SAVE_S = 1.0
_REMEMBERED = 4_096
_T = TypeVar("_T")


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


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """A line that was read: its place in the file, its hash, and the hash of the part that a rewrite keeps."""

    start: int
    length: int
    digest: str
    identity: str


class _SavedPosition(msgspec.Struct):
    """How far a group has read: the next byte, the latest lines, and lines cut off that may come again."""

    position: int = 0
    lines: list[_Line] = []
    again: dict[str, int] = {}


class FileSubscription:
    """Yields the lines of a file that ``JsonlSink`` writes; waits for a file that is not there yet.

    A restarted streamad cuts its file back to its checkpoint and writes later messages once more: none of the latest
    4,096 yielded lines is yielded again. A group's position is kept in the file ``NAME.GROUP.position`` beside it,
    saved once a second and by ``close``: at least once.
    """

    options_model: type[BaseModel] = FileSubscriptionOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        if not rest:
            raise SourceError("a file to follow needs a path, for example file:out/alerts.jsonl")
        given = cast("FileSubscriptionOptions", options)
        self._path = Path(context.base_dir, rest)
        self._poll_s = given.poll / 1e6
        self._warns_missing = given.warn_missing
        self._start = given.start or ("latest" if given.group is None else "earliest")
        self._memory = (
            None if given.group is None else self._path.with_name(f"{self._path.name}.{given.group}.position")
        )
        self._lock: int | None = None
        self._lines: deque[_Line] = deque(maxlen=_REMEMBERED)  # yielded, the oldest first
        self._again: Counter[str] = Counter()
        self._position = 0
        self._file: FileIO | None = None
        self._yielded: _Line | None = None
        self._saved_at = 0.0
        self._is_changed = False
        self._is_closed = False

    async def messages(self) -> AsyncIterator[StoredMessage]:
        """Yield lines as they come. Raises SourceError if the file or the group's position cannot be read."""
        await finished(asyncio.to_thread(self._begin))
        while not self._is_closed:
            lines = await finished(asyncio.to_thread(self._read))
            for start, line in lines:
                found = _line(start, line)
                if self._again[found.identity]:
                    self._again[found.identity] -= 1
                    self._take(found)
                    continue
                self._yielded = found
                yield StoredMessage(line, f"{self._path}, byte {start}")
                self.done()
                await self._save_if_due()
            if not lines:
                await self._save_if_due()
                await asyncio.sleep(self._poll_s)

    def done(self) -> None:
        """Mark the line yielded last as done."""
        yielded, self._yielded = self._yielded, None
        if yielded is not None:
            self._take(yielded)

    async def close(self) -> None:
        """Save the position and release the file; safe to call twice. Raises OutputError."""
        self._is_closed = True
        try:
            if self._is_changed and self._lock is not None:
                await finished(asyncio.to_thread(self._save))
        finally:
            file, self._file = self._file, None
            lock, self._lock = self._lock, None
            if file is not None:
                file.close()
            if lock is not None:
                os.close(lock)

    def _begin(self) -> None:
        if self._memory is not None:
            self._take_lock(self._memory)
            if self._memory.exists():
                self._restore(self._memory)
                return
        if not self._path.exists():
            if self._warns_missing:
                get_logger().warning("the file to follow is not there yet: waiting", path=str(self._path))
        elif self._start == "latest":
            self._skip_what_is_there()
        self._is_changed = True

    def _take_lock(self, memory: Path) -> None:
        try:
            memory.parent.mkdir(parents=True, exist_ok=True)
            self._lock = try_lock(memory.with_name(f".{memory.name}.lock"))
        except OSError as error:
            raise SourceError(f"cannot keep the position in {memory}: {error.strerror or error}") from error
        if self._lock is None:
            raise SourceError(f"{memory}: another program reads with this group; choose another group")

    def _restore(self, memory: Path) -> None:
        try:
            place = msgspec.json.decode(memory.read_bytes(), type=_SavedPosition)
        except (OSError, msgspec.MsgspecError) as error:
            raise SourceError(f"{memory} is damaged ({error}): delete it to begin anew") from error
        self._position = place.position
        self._lines.extend(place.lines)
        self._again.update(place.again)

    def _skip_what_is_there(self) -> None:
        """Begin after the last whole line; the latest lines count as yielded."""
        with self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - _CHUNK_BYTES))
            chunk = file.read(size - start)
        if start:  # in the middle of a line
            cut = chunk.find(b"\n") + 1
            start, chunk = start + cut, chunk[cut:]
        self._position = start
        for place, line in _whole_lines(start, chunk):
            self._take(_line(place, line))

    def _read(self) -> list[tuple[int, bytes]]:
        """Return whole new lines with their places."""
        try:
            file = self._opened()
            if file is None:
                return []
            self._go_back_to_what_is_there(file)
            return self._next_lines(file)
        except OSError as error:
            raise SourceError(f"cannot read {self._path}: {error.strerror or error}") from error

    def _opened(self) -> FileIO | None:
        """Return the file that now has the name; another one than before is read from its beginning."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return self._file
        if self._file is not None:
            held = os.fstat(self._file.fileno())
            if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino):
                return self._file
            self._file.close()
            self._position = 0
            self._lines.clear()
            self._again.clear()
        self._file = self._path.open("rb", buffering=0)  # a buffer would show content from before a cut
        return self._file

    def _go_back_to_what_is_there(self, file: FileIO) -> None:
        """Go back to the last line that is still as it was read: later ones were cut off and may be written again."""
        while self._lines and not _is_there(file, self._lines[-1]):
            gone = self._lines.pop()
            self._again[gone.identity] += 1
            self._position = gone.start
        size = os.fstat(file.fileno()).st_size
        if not self._lines and self._position > size:
            self._position = size

    def _next_lines(self, file: FileIO) -> list[tuple[int, bytes]]:
        file.seek(self._position)
        chunk = file.read(_CHUNK_BYTES)
        while chunk and b"\n" not in chunk and (more := file.read(_CHUNK_BYTES)):
            chunk += more
        return _whole_lines(self._position, chunk)

    def _take(self, line: _Line) -> None:
        self._lines.append(line)
        self._position = line.start + line.length
        self._is_changed = True

    async def _save_if_due(self) -> None:
        if self._lock is not None and self._is_changed and time.monotonic() - self._saved_at >= _SAVE_S:
            await finished(asyncio.to_thread(self._save))

    def _save(self) -> None:
        assert self._memory is not None
        place = _SavedPosition(self._position, list(self._lines), {name: n for name, n in self._again.items() if n})
        write_atomically(self._memory, msgspec.json.encode(place))
        self._saved_at = time.monotonic()
        self._is_changed = False


def _whole_lines(start: int, chunk: bytes) -> list[tuple[int, bytes]]:
    """Return each complete line of ``chunk`` with its place; ``chunk`` begins at ``start``."""
    lines = []
    for line in chunk[: chunk.rfind(b"\n") + 1].split(b"\n")[:-1]:
        lines.append((start, line + b"\n"))
        start += len(line) + 1
    return lines


def _line(start: int, line: bytes) -> _Line:
    return _Line(start, len(line), _digest(line), _digest(_lasting(line)))


def _lasting(line: bytes) -> bytes:
    """Return the part of a message that is the same when it is written again: all but ``created_at``."""
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return line
    if isinstance(fields, dict):
        fields.pop("created_at", None)
    return msgspec.json.encode(fields)


def _is_there(file: FileIO, line: _Line) -> bool:
    file.seek(line.start)
    return _digest(file.read(line.length)) == line.digest


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
