"""Files that survive a crash: atomic writes, fsync of folders, checksums, and one-line errors for a full disk."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamad.errors import OutputError

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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn every OSError of the block into an OutputError that names ``path`` and says what to do."""
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


def write_atomically(path: Path, content: bytes, *, temporary: Path | None = None) -> None:
    """Replace ``path`` by ``content``: after a crash at any moment it holds the old bytes or the new, never a mixture.

    One writer of ``path`` at a time: ``temporary`` (default ``.NAME.tmp`` beside it; must be on the same file system)
    has a fixed name, so killed writers leave at most one, which the next overwrites.
    Raises OutputError; then ``path`` is unchanged.
    """
    temporary = temporary or path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def sha256_of(path: Path) -> str:
    """Return the hexadecimal sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
