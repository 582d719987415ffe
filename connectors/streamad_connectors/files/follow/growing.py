"""One file that may grow: its whole lines as they come, and proof that what was read still stands in it."""

from __future__ import annotations

import io
import os
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from streamad.system.opening import open_regular
from streamad_connectors.files.cursors import digest_of
from streamad_connectors.files.follow.lines import Cutter
from streamad_connectors.files.formats.reading import ReadRecord

if TYPE_CHECKING:
    from typing_extensions import Buffer

_WINDOW_BYTES = 1 << 18
_BLOCK_BYTES = 1 << 16


class Identity(NamedTuple):
    """Device and inode: two files of one machine that exist at the same time differ in them."""

    device: int
    inode: int


class OtherBytesError(Exception):
    """Raised when a file no longer holds what was read of it."""


class GrowingFile:
    """The file at ``path``, held open, so that it can be read to its end after it was renamed or deleted.

    A line counts once its line feed is there. ``whole``: whole lines lie before this byte, whose digest is ``digest``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.whole, self.digest = 0, ""
        self.is_through = False
        self._kept_bytes, self._kept = 0, ""
        self._has_records = False
        self._searched = 0
        self._stamp = (-1, -1)
        self._file = FileIO(open_regular(path))
        status = os.fstat(self._file.fileno())
        self.identity = Identity(status.st_dev, status.st_ino)
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
        self.look()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()

    def look(self) -> None:
        """Notice what was appended. Raises OtherBytesError if what was there before is not there any more, OSError."""
        before, self._stamp = self._stamp, self._stat()
        if self._stamp == before:
            return
        if self.size < self._kept_bytes:
            raise OtherBytesError
        whole = self._last_line_end()
        digest = digest_of(self._file, whole) if whole > self.whole or not self.digest else self.digest
        self._check()  # afterwards: what stands there now stood there while it was read
        self.whole, self.digest = whole, digest
        # Before its first record, the beginning of a line may be all that tells a file from its successor.
        self._kept_bytes = whole if self._has_records else self.size
        self._kept = digest if self._has_records else digest_of(self._file, self.size)

    def take(self, cutter: Cutter) -> list[ReadRecord] | None:
        """Return the records of some further whole lines, None if no whole line is left. Raises as ``look``."""
        if cutter.seen >= self.whole:
            return None
        return self._cut(cutter, self._window_end(cutter.seen + _WINDOW_BYTES), is_end=False)

    def take_rest(self, cutter: Cutter) -> list[ReadRecord]:
        """Return what lies behind the last whole line: the file does not grow any more. Raises as ``look``."""
        found = self._cut(cutter, self.size, is_end=True) if cutter.done < self.size else []
        self.whole = self._kept_bytes = self.size
        self.digest = self._kept = digest_of(self._file, self.size)
        self.is_through = True
        return found

    @property
    def stamp(self) -> tuple[int, int]:
        """Return size and time of change at the last look."""
        return self._stamp

    def has_grown(self) -> bool:
        """Return whether the file holds more than when it was looked at."""
        return os.fstat(self._file.fileno()).st_size > self.size

    def is_line_start(self, offset: int) -> bool:
        """Return whether a line begins at ``offset``."""
        return offset == 0 or self._read(offset - 1, offset) == b"\n"

    def _cut(self, cutter: Cutter, end: int, *, is_end: bool) -> list[ReadRecord]:
        found = cutter.cut(self._span, end, max(self.whole, end), is_end=is_end)
        size, stamp = self.size, self._stat()
        if stamp != self._stamp:
            self._check()
        self.size = size
        self._has_records |= bool(found)
        return found

    def _stat(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
        return self.size, self.mtime_ns

    def _check(self) -> None:
        if self._kept_bytes and digest_of(self._file, self._kept_bytes) != self._kept:
            raise OtherBytesError

    def _span(self, begin: int, end: int) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(_Span(self._file, begin, end), _BLOCK_BYTES))

    def _last_line_end(self) -> int:
        """Return the offset after the last line feed; bytes below ``_searched`` are not looked at again."""
        stop, begin = self._searched, self.size
        while begin > stop:
            end, begin = begin, max(stop, begin - _BLOCK_BYTES)
            found = self._read(begin, end).rfind(b"\n")
            if found >= 0:
                self._searched = self.size
                return begin + found + 1
        self._searched = self.size
        return self.whole

    def _window_end(self, begin: int) -> int:
        """Return the first end of a line at or after ``begin``, at most that of the last whole one."""
        while begin < self.whole:
            found = self._read(begin, min(self.whole, begin + _BLOCK_BYTES)).find(b"\n")
            if found >= 0:
                return begin + found + 1
            begin += _BLOCK_BYTES
        return self.whole

    def _read(self, begin: int, end: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(end - begin)


class _Span(io.RawIOBase):
    """Some bytes of an open file."""

    def __init__(self, file: FileIO, begin: int, end: int) -> None:
        self._file, self._at, self._end = file, begin, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer)
        self._file.seek(self._at)
        data = self._file.read(min(len(into), self._end - self._at))
        if not data and self._at < self._end:
            raise OtherBytesError
        into[: len(data)] = data
        self._at += len(data)
        return len(data)
