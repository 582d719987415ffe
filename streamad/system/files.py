"""Files that survive a crash: atomic writes, whole appended lines, fsync of folders, and one-line errors."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamad.errors import OutputError
from streamad.system.locks import lock_open_file

_ADVICE = {
    errno.ENOSPC: "free disk space and try again",
    errno.EDQUOT: "free disk space or raise the quota and try again",
    errno.EFBIG: "raise the file size limit (ulimit -f) and try again",
    errno.EACCES: "give this user write permission",
    errno.EPERM: "give this user write permission",
    errno.EROFS: "the file system is read-only: mount it writable or choose another folder",
    errno.ENOTDIR: "a file is in the way where a folder is needed: move it or choose another folder",
    errno.EEXIST: "a file is in the way where a folder is needed: move it or choose another folder",
    errno.ENOENT: "its folder is not there or cannot be made here: make it, or choose another folder",
}
_LOCK_S = 10.0
_LOCK_POLL_S = 0.01


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn every OSError of the block into an OutputError with ``path`` and advice."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and try again")
        raise OutputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def sync_file(path: Path) -> None:
    """Return once the content of ``path`` is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return once the entries of ``folder`` (creations, renames) are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(
    path: Path, content: bytes, *, temporary: Path | None = None, only_if: Callable[[], bool] = lambda: True
) -> None:
    """Replace ``path`` by ``content``: after a crash at any moment it holds the old bytes or the new, never a mixture.

    One writer of ``path`` at a time: ``temporary`` (default ``.NAME.tmp`` beside it; on the same file system) has a
    fixed name, so killed writers leave at most one, which the next overwrites. If it raises OutputError, ``path`` is
    unchanged. ``only_if`` is asked after the content is on the disk; without its consent ``path`` is unchanged.
    """
    temporary = temporary or path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if only_if():
                temporary.replace(path)
            else:
                temporary.unlink()
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def append_lines(path: Path, lines: bytes, *, busy: str) -> None:
    """Append whole lines to a file that other programs append to as well; returns when they are on the disk.

    Makes missing folders. Raises OutputError, also with the text ``busy`` if another program keeps the file locked for
    ten seconds.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            deadline = time.monotonic() + _LOCK_S
            while not lock_open_file(descriptor):
                if time.monotonic() >= deadline:
                    raise OutputError(f"{path}: another program has kept it locked for {_LOCK_S:.0f} s: {busy}")
                time.sleep(_LOCK_POLL_S)
            length = os.fstat(descriptor).st_size
            append_whole(descriptor, missing_line_end(descriptor, length) + lines, length)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)


def missing_line_end(descriptor: int, length: int) -> bytes:
    """Return the line end that the last line of an open file of ``length`` bytes lacks: a foreign or cut one."""
    return b"\n" if length and os.pread(descriptor, 1, length - 1) != b"\n" else b""


def append_whole(descriptor: int, content: bytes | bytearray, length: int) -> None:
    """Append ``content`` to an open file of ``length`` bytes; a write that fails cuts it back and raises OSError."""
    pending = memoryview(content)
    try:
        while pending:
            pending = pending[os.write(descriptor, pending) :]
    except OSError:
        with suppress(OSError):  # a device cannot be cut; the first error is the one to report
            os.ftruncate(descriptor, length)
        raise


def sha256_of(path: Path) -> str:
    """Return the hexadecimal sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
