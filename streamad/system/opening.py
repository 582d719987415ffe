"""Opens regular files only and waits for nobody: no FIFO blocks the caller, and state is reached through no link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

STATE_FILE = 0o600
"""Mode of the files of streamad's own state: checkpoint, positions, locks, interrupted trainings."""
STATE_FOLDER = 0o700
_MOST_STATE_BYTES = 1 << 28


class NotRegularError(OSError):
    """Raised if a path is a FIFO, a socket or a device."""


def is_other_kind(path: Path) -> bool:
    """Return whether ``open_regular`` would refuse ``path`` as a FIFO, socket or device; opens nothing.

    False for a folder, and if nothing is there or it cannot be known.
    """
    try:
        kind = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


def open_regular(path: Path, flags: int = os.O_RDONLY, *, mode: int = 0o666, follows_links: bool = True) -> int:
    """Return a descriptor of the regular file ``path``, whose kind is asked of the open file.

    A FIFO without a partner does not block. ``follows_links``: a link as the last part of the path is followed; else it
    raises OSError. Raises OSError, IsADirectoryError, NotRegularError.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follows_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that nobody reads, a socket
            raise _not_regular(path) from error
        if error.errno == errno.ELOOP and not follows_links:
            raise OSError(errno.ELOOP, "a link is in its place", str(path)) from error
        raise
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise _not_regular(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _not_regular(path: Path) -> NotRegularError:
    return NotRegularError(errno.EINVAL, "not a regular file (a FIFO, socket or device)", str(path))


def read_state(path: Path, *, most_bytes: int = _MOST_STATE_BYTES) -> bytes:
    """Return the content of a file of streamad's own state, ``most_bytes`` at most.

    Raises OSError, for a link, too.
    """
    return read_regular(path, most_bytes=most_bytes, follows_links=False)


def read_regular(path: Path, *, most_bytes: int = _MOST_STATE_BYTES, follows_links: bool = True) -> bytes:
    """Return the content of the regular file ``path``. Raises OSError, also for more than ``most_bytes``."""
    descriptor = open_regular(path, follows_links=follows_links)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content
