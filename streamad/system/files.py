"""Files that survive a crash: atomic writes, whole appended lines, fsync of folders, and one-line errors."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamad.errors import OutputError
from streamad.system.locks import lock_open_file
from streamad.system.opening import STATE_FILE, NotRegularError, open_regular
from streamad.system.rights import is_refusal, missing_right

_ADVICE = {
    errno.ENOSPC: "free disk space and try again",
    errno.EDQUOT: "free disk space or raise the quota and try again",
    errno.EFBIG: "raise the file size limit (ulimit -f) and try again",
    errno.EISDIR: "it is a folder: name a file in it",
    errno.EROFS: "the file system is read-only: mount it writable or choose another folder",
    errno.ENOTDIR: "a file is in the way where a folder is needed: move it or choose another folder",
    errno.EEXIST: "a file is in the way where a folder is needed: move it or choose another folder",
    errno.ENOENT: "its folder is not there or cannot be made here: make it, or choose another folder",
    errno.ELOOP: "streamad reaches its own state through no link: remove the link",
}
_LOCK_S = 10.0
_LOCK_POLL_S = 0.01
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")
_ABANDONED_AFTER_S = 3600
_FOLDERS_KNOWN = 256
_LOOKED_AT_BYTES = 1 << 16
_cleared_s: dict[Path, float] = {}  # when this process last looked for leftovers in a folder


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn every OSError of the block into an OutputError with ``path`` and advice."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and try again")
        if is_refusal(error):
            advice = missing_right(path, "write")
        if isinstance(error, NotRegularError):
            advice = "name a regular file"
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
    path: Path,
    content: bytes,
    *,
    is_state: bool = False,
    temporary: Path | None = None,
) -> None:
    """Replace ``path`` by ``content``, as ``replacing`` does. If it raises OutputError, ``path`` is unchanged."""
    with replacing(path, is_state=is_state, temporary=temporary) as descriptor:
        append_whole(descriptor, content, 0)


@contextmanager
def replacing(
    path: Path,
    *,
    is_state: bool = False,
    temporary: Path | None = None,
) -> Iterator[int]:
    """Yield a descriptor to write to; the block's end replaces ``path`` by it, an error leaves ``path`` as it was.

    After a crash at any moment ``path`` holds the old bytes or the new, never a mixture. ``is_state``: only this user
    may read the file; others have the umask's mode. A link at ``path`` is replaced, never followed. The content
    is written to ``temporary`` first (default ``.NAME.RANDOM.tmp`` beside it; on the same file system), which must not
    exist. The next writer in the folder removes files of such names that killed writers left, after an hour. Raises
    OutputError.
    """
    named, temporary = temporary, temporary or path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with writing(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = open_regular(temporary, flags, mode=STATE_FILE if is_state else 0o666, follows_links=False)
        try:
            try:
                if named is None:
                    _clear_abandoned(path.parent, os.fstat(descriptor).st_mtime)
                yield descriptor
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def clear_leftovers(folder: Path, name: str | None = None, *, before_s: float | None = None) -> None:
    """Remove the temporary files that killed writers of ``folder/name`` (None: of any name) left.

    Only if no writer is busy: the caller holds the lock of what they write, or the files were last changed before
    ``before_s``, in Unix seconds by the clock of the file system.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match is None or name not in (None, match[1]):
                continue
            with suppress(OSError):
                if before_s is None or entry.stat(follow_symlinks=False).st_mtime < before_s:
                    Path(entry.path).unlink()


def _clear_abandoned(folder: Path, now_s: float) -> None:
    """Remove leftovers of any name, once an hour: a folder may hold many files, and a listing costs time."""
    if now_s - _cleared_s.get(folder, 0.0) < _ABANDONED_AFTER_S:
        return
    if len(_cleared_s) >= _FOLDERS_KNOWN:
        _cleared_s.clear()
    _cleared_s[folder] = now_s
    clear_leftovers(folder, before_s=now_s - _ABANDONED_AFTER_S)


def append_lines(path: Path, lines: bytes, *, busy: str) -> None:
    """Append whole lines to a file that other programs append to as well; returns when they are on the disk.

    Makes missing folders. Raises OutputError, also for what is no regular file, and with the text ``busy`` if another
    program keeps the file locked for ten seconds.
    """
    with appending(path, busy=busy) as descriptor:
        length = os.fstat(descriptor).st_size
        append_whole(descriptor, missing_line_end(descriptor, length) + lines, length)


@contextmanager
def appending(path: Path, *, busy: str) -> Iterator[int]:
    """Yield a descriptor to read and to append to, locked; what was written is on the disk at the block's end.

    Makes missing folders and raises as ``append_lines``.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            deadline = time.monotonic() + _LOCK_S
            while not lock_open_file(descriptor):
                if time.monotonic() >= deadline:
                    raise OutputError(f"{path}: another program has kept it locked for {_LOCK_S:.0f} s: {busy}")
                time.sleep(_LOCK_POLL_S)
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)


def missing_line_end(descriptor: int, length: int) -> bytes:
    """Return the line end that the last line of an open file of ``length`` bytes lacks: a foreign or cut one."""
    return b"\n" if length and os.pread(descriptor, 1, length - 1) != b"\n" else b""


def cut_torn_line(path: Path) -> None:
    """Cut the end of a file of lines back to its last whole line; only for a file that nobody else writes now.

    Nothing is done to a file that is not there, or is no regular one. Raises OutputError.
    """
    with writing(path), suppress(FileNotFoundError, NotRegularError):
        descriptor = open_regular(path, os.O_RDWR)
        try:
            cut_torn_end(descriptor)
        finally:
            os.close(descriptor)


def cut_torn_end(descriptor: int) -> None:
    """Cut an open file of lines back to its last whole line; nobody else may write to it now. Raises OSError."""
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _LOOKED_AT_BYTES)
        if (found := os.pread(descriptor, end - start, start).rfind(b"\n")) >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)


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
