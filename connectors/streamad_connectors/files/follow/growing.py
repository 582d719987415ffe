"""One file that may grow: its whole lines as they come, and proof that what was read still stands in it."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from streamad.system.opening import open_regular
from streamad_connectors.files.cursors import digest_of
from streamad_connectors.files.follow.lines import Cutter
from streamad_connectors.files.formats.reading import ReadRecord
from streamad_connectors.files.whole_lines import end_of_hole

if TYPE_CHECKING:
    from typing_extensions import Buffer

WINDOW_BYTES = 1 << 18
BLOCK_BYTES = 1 << 16
LOOK_BYTES = 1 << 26
"""Bytes that one look, or one take, searches for line ends at most."""
_MOST_EXTENTS = 4_096
_MOST_BYTES_OF_A_CHARACTER = 4


class Identity(NamedTuple):
    """Device and inode: two files of one machine that exist at the same time differ in them."""

    device: int
    inode: int


class OtherBytesError(Exception):
    """Raised when a file no longer holds what was read of it."""


class GrowingFile:
    """The file at ``path``, held open, so that it can be read to its end after it was renamed or deleted.

    A line counts once its line feed is there. ``whole``: whole lines lie before this byte, whose digest is ``digest``.
    ``limit``: longer lines are cut. Holes of a sparse file are skipped. One call reads ``LOOK_BYTES`` and the records
    of a window at most, but all that is left of a file that is over, and a whole line with carriage returns (rows).
    """

    def __init__(self, path: Path, limit: int) -> None:
        # Above 15 attributes: marks in one file, each a byte up to which something is known; every read moves several.
        self.path = path
        self._limit = limit
        self.whole, self.digest = 0, ""
        self.is_through = False
        self._kept_bytes, self._kept = 0, ""
        self._has_records = False
        self._searched = 0
        self._unsearched: list[tuple[int, int]] = []  # below ``_searched``: where a line end may be, the last one last
        self._scan: tuple[int, int] | None = None  # from where the end of a window is looked for, and how far
        self._has_returns = False  # of that: CSV takes a carriage return for the end of a row
        self._unbroken = (0, 0)  # no line end and no carriage return lies between them
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
        if self._stamp == before and not self._unsearched:
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
        """Return the records of some further whole lines, None if no whole line is left. Raises as ``look``.

        An empty list while the end of a long line is still looked for (``is_searching``).
        """
        if cutter.seen >= self.whole:
            return None
        begin = cutter.seen + WINDOW_BYTES
        end = self._window_end(begin)
        if end is None:
            return []
        self._unbroken = (0, 0) if self._has_returns else (begin, end - 1)
        return self._cut(cutter, end, is_end=False)

    def take_rest(self, cutter: Cutter) -> list[ReadRecord]:
        """Return what lies behind the last whole line: the file does not grow any more. Raises as ``look``."""
        self._unbroken = self._largest_hole(self.whole, self.size)
        found = self._cut(cutter, self.size, is_end=True) if cutter.done < self.size else []
        self.whole = self._kept_bytes = self.size
        self.digest = self._kept = digest_of(self._file, self.size)
        self.is_through = True
        return found

    @property
    def is_searching(self) -> bool:
        """Return whether line ends are still looked for in what is there."""
        return bool(self._unsearched) or self._scan is not None

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
        """Open the bytes from ``begin`` to ``end``, without the middle of a line so long that it is cut anyway."""
        first, last = self._unbroken
        first += _MOST_BYTES_OF_A_CHARACTER * (self._limit + 1)
        left_out = (first, last) if begin <= self._unbroken[0] and first < last <= end else (end, end)
        return cast("BinaryIO", io.BufferedReader(_Span(self._file, begin, end, left_out), BLOCK_BYTES))

    def _last_line_end(self) -> int:
        """Return the offset after the last line feed found so far; no byte is searched twice."""
        if self.size < self._searched:  # it was cut; ``_check`` says whether what was read is still there
            self._unsearched = [(begin, min(end, self.size)) for begin, end in self._unsearched if begin < self.size]
        elif self.size > self._searched:
            self._unsearched += _extents(self._file.fileno(), self._searched, self.size)
        self._searched = self.size
        left = LOOK_BYTES
        while self._unsearched and left > 0:
            first, end = self._unsearched.pop()
            begin = max(first, end - BLOCK_BYTES)
            found = self._read(begin, end).rfind(b"\n")
            if found >= 0:
                self._unsearched.clear()
                return begin + found + 1
            if begin > first:
                self._unsearched.append((first, begin))
            left -= end - begin
        return self.whole

    def _window_end(self, begin: int) -> int | None:
        """Return the first end of a line at or after ``begin``, at most that of the last whole one.

        None: it was not found yet, and the next call goes on.
        """
        goes_on = self._scan is not None and self._scan[0] == begin
        at = self._scan[1] if self._scan is not None and goes_on else begin
        self._has_returns &= goes_on
        left = LOOK_BYTES
        while at < self.whole and left > 0:
            block = self._read(at, min(self.whole, at + BLOCK_BYTES))
            found = block.find(b"\n")
            self._has_returns |= b"\r" in (block if found < 0 else block[: max(found - 1, 0)])
            if found >= 0:
                self._scan = None
                return at + found + 1
            at, left = end_of_hole(self._file.fileno(), at + BLOCK_BYTES), left - BLOCK_BYTES
        self._scan = (begin, at) if at < self.whole else None
        return None if self._scan is not None else self.whole

    def _largest_hole(self, begin: int, end: int) -> tuple[int, int]:
        pieces = [(begin, begin), *_extents(self._file.fileno(), begin, end), (end, end)]
        return max(((one[1], other[0]) for one, other in pairwise(pieces)), key=lambda hole: hole[1] - hole[0])

    def _read(self, begin: int, end: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(end - begin)


def _extents(file: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Return where data lie between ``begin`` and ``end``, in order; after 4,096 pieces the rest is one."""
    found: list[tuple[int, int]] = []
    while begin < end:
        begin = end_of_hole(file, begin)
        after = end
        if len(found) < _MOST_EXTENTS:
            with suppress(OSError):  # a file system that knows of no holes
                after = min(end, os.lseek(file, begin, os.SEEK_HOLE))
        if begin < after:
            found.append((begin, after))
        begin = max(after, begin + 1)
    return found


class _Span(io.RawIOBase):
    """Some bytes of an open file; those of ``left_out`` are passed over."""

    def __init__(self, file: FileIO, begin: int, end: int, left_out: tuple[int, int]) -> None:
        self._file, self._at, self._end = file, begin, end
        self._left_out = left_out

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer)
        first, last = self._left_out
        if first <= self._at < last:
            self._at = last
        end = first if self._at < first else self._end
        self._file.seek(self._at)
        data = self._file.read(min(len(into), end - self._at))
        if not data and self._at < self._end:
            raise OtherBytesError
        into[: len(data)] = data
        self._at += len(data)
        return len(data)
