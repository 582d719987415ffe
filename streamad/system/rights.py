"""Which right a user lacks, and at which path: the remedy of an error of permissions."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import Literal

Right = Literal["read", "write"]


def user_name() -> str:
    """Return the name of this process's user, or its number if the system does not know it (in a container)."""
    number = os.geteuid()
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def is_refusal(error: BaseException | None) -> bool:
    """Return whether ``error`` says that a right is missing."""
    return isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM)


def missing_right(path: str | Path, right: Right) -> str:
    """Return ``user x needs the right to write in /data``: which right ``right`` to ``path`` lacks, and where.

    That is the first folder on the way that may not be entered, the folder in which nothing may be made, or the path.
    """
    path = Path(path).absolute()
    for folder in reversed(path.parents):
        if os.path.lexists(folder) and not _may(folder, os.X_OK):
            return f"{user_name()} needs the right to enter {folder}"
    if right == "write":
        place = next((each for each in (path, *path.parents) if os.path.lexists(each)), path)
        inside = place != path or place.is_dir()
        # A file is replaced by another one in its folder.
        where = place if inside or not _may(place, os.W_OK) else place.parent
        return f"{user_name()} needs the right to write {'in ' if inside or where != place else 'to '}{where}"
    return f"{user_name()} needs the right to {'list' if path.is_dir() else 'read'} {path}"


def reason(error: OSError, path: str | Path, right: Right) -> str:
    """Return the text of ``error`` about ``path``, for a refusal with the right that is missing."""
    text = error.strerror or str(error)
    return f"{text}: {missing_right(path, right)}" if is_refusal(error) else text


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
