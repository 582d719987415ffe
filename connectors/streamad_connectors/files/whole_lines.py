"""Cuts an open file that grows, or is cut back, into whole lines: in linear time, and in bounded memory."""

from __future__ import annotations

import errno
import os
from hashlib import blake2b
from typing import NamedTuple

CHUNK_BYTES = 1 << 16
"""Read at once; of nothing but line ends, its lines take 45 MB of memory."""
_BEFORE_BYTES = 1 << 20
_BEFORE_LINES = 4_096
_DIGEST_BYTES = 1 << 16
_CHECKED_BYTES = 1 << 12


class FoundLine(NamedTuple):
    """A line with its line end: ``content`` is None if it is longer than the limit and was not kept."""

    start: int
    length: int
    content: bytes | None
    digest: str


class WholeLines:
    """Finds the whole lines of a file; a line above ``limit`` bytes is found, but not kept.

    Law: in one pass over a file each byte is read four times at most, and ``limit`` + 64 KiB are in memory at most,
    however long its lines are and however often it is looked at meanwhile.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begin = self._searched = 0  # no line end lies between them
        self._before = b""  # the last bytes of those
        self.has_more = False
        """Whether more was there than the last call looked at."""

    @property
    def searched(self) -> int:
        """Return the offset up to which line ends were looked for."""
        return self._searched

    @property
    def too_long(self) -> int | None:
        """Return the offset of a line above the limit whose end was not found yet, None without one."""
        return self._begin if self._searched - self._begin > self._limit else None

    def after(self, file: int, position: int) -> list[FoundLine]:
        """Return some whole lines of the open file ``file`` from ``position`` on, where a line begins. Raises OSError.

        An empty list: no whole line follows, or, if ``has_more``, none was found yet.
        """
        if position != self._begin or not self._is_as_searched(file):
            self._begin = self._searched = position
        chunk = os.pread(file, CHUNK_BYTES, self._searched)
        self.has_more = len(chunk) == CHUNK_BYTES
        if b"\n" not in chunk:
            self._search_on(file, len(chunk))
            return []
        if self._searched == position:
            return _cut(position, chunk, self._limit)
        length = self._searched + chunk.index(b"\n") + 1 - position
        self.has_more = True
        if length > self._limit + 1:
            return [FoundLine(position, length, None, digest_at(file, position, length))]
        return _cut(position, os.pread(file, length, position), self._limit)

    def _search_on(self, file: int, n_bytes: int) -> None:
        """Note that the next ``n_bytes`` have no line end, nor has a hole behind them."""
        self._searched += n_bytes
        if self.has_more:
            self._searched = end_of_hole(file, self._searched)
        n_checked = min(_CHECKED_BYTES, self._searched - self._begin)
        self._before = os.pread(file, n_checked, self._searched - n_checked)

    def _is_as_searched(self, file: int) -> bool:
        """Return whether the bytes before ``_searched`` still are what they were: a restarted writer may cut them."""
        n_checked = min(_CHECKED_BYTES, self._searched - self._begin)
        return os.pread(file, n_checked, self._searched - n_checked) == self._before[:n_checked]


def _cut(start: int, chunk: bytes, limit: int) -> list[FoundLine]:
    found = []
    for line in chunk[: chunk.rfind(b"\n") + 1].split(b"\n")[:-1]:
        text = line + b"\n"
        found.append(FoundLine(start, len(text), text if len(line) <= limit else None, digest_of(text)))
        start += len(text)
    return found


def end_of_hole(file: int, offset: int) -> int:
    """Return where a hole of a sparse file ends that ``offset`` lies in: zeros without a line end.

    ``offset`` itself outside of a hole, and where the file system knows of none.
    """
    try:
        return os.lseek(file, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data follows
            return max(offset, os.fstat(file).st_size)
        return offset


def digest_of(line: bytes) -> str:
    """Return the digest that tells a line from another one in its place: of its last 64 KiB."""
    return blake2b(line[-_DIGEST_BYTES:], digest_size=8).hexdigest()


def digest_at(file: int, start: int, length: int) -> str:
    """Return ``digest_of`` the line of ``length`` bytes at ``start``. Raises OSError."""
    n_bytes = min(_DIGEST_BYTES, length)
    return digest_of(os.pread(file, n_bytes, start + length - n_bytes))


def lines_before(file: int, end: int, limit: int) -> list[FoundLine]:
    """Return the latest 4,096 whole lines in the last MiB before ``end``, where a line begins. Raises OSError."""
    begin = max(0, end - _BEFORE_BYTES)
    chunk = os.pread(file, end - begin, begin)
    n_cut = chunk.find(b"\n") + 1 if begin else 0
    at = len(chunk) - 1
    for _ in range(_BEFORE_LINES):
        at = chunk.rfind(b"\n", n_cut, at)
        if at < 0:
            break
    else:
        n_cut = at + 1
    return _cut(begin + n_cut, chunk[n_cut:], limit)


def last_line_end(file: int, limit: int) -> int:
    """Return the offset after the last line end, looked for in the last ``limit`` bytes and some more.

    If there is none, the last line is longer than ``limit``: an offset inside it, so that more than ``limit`` bytes of
    it follow (0 in a shorter file). Raises OSError.
    """
    begin = size = os.fstat(file).st_size
    while begin > 0 and size - begin <= limit + 1:
        end, begin = begin, max(0, begin - CHUNK_BYTES)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
    return begin
