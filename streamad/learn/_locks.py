"""Locks between processes that die with their holder, so that a killed one leaves none behind (POSIX flock)."""

from __future__ import annotations

__all__ = ["locked", "try_lock"]

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamad.errors import RegistryError

_POLL_S = 0.01


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock ``path`` (close it to release), or None where somebody else holds it.

    Raises OSError where the file system cannot lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def locked(path: Path, *, busy: str, timeout_s: float = 0.0) -> Iterator[None]:
    """Hold the lock ``path`` for the block; raises RegistryError with the text ``busy`` when it is not free in time."""
    deadline = time.monotonic() + timeout_s
    while (descriptor := try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise RegistryError(busy)
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)
