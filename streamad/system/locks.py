"""Locks between processes that die with their holder, so that a killed one leaves none behind (POSIX flock)."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamad.errors import RegistryError
from streamad.system.opening import STATE_FILE, open_regular

_POLL_S = 0.01


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock ``path`` (close it to release), or None if another process holds it.

    A holder may remove the file before it releases: a lock on a removed file protects nothing and is taken anew.
    Only this user may open a file that it makes: whoever can read a lock can hold it. Raises OSError if the file system
    cannot lock, or if ``path`` is a link or no regular file.
    """
    while True:
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, mode=STATE_FILE, follows_links=False)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock ``path``; it takes and makes nothing. Raises OSError."""
    try:
        descriptor = open_regular(path, follows_links=False)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def lock_open_file(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another holds it. True also if the file system has no locks."""
    with suppress(OSError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    held = os.fstat(descriptor)
    try:
        named = path.lstat()
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


@contextmanager
def locked(path: Path, *, busy: str, timeout_s: float = 0.0) -> Iterator[None]:
    """Hold the lock ``path`` for the block. Raises RegistryError with the text ``busy`` if it is not free in time."""
    deadline = time.monotonic() + timeout_s
    while (descriptor := try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise RegistryError(busy)
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)
