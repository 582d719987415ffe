"""How far a group has read a followed file: kept in a file beside it, for one program at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec

from streamad.errors import SourceError
from streamad.system.files import clear_leftovers, write_atomically
from streamad.system.locks import try_lock
from streamad.system.opening import read_state
from streamad.system.rights import is_refusal, reason

_MOST_BYTES = 1 << 22
_Offset = Annotated[int, msgspec.Meta(ge=0, le=1 << 61)]


class TakenLine(msgspec.Struct, frozen=True, array_like=True):
    """A line that was read: its place in the file, its hash, and the hash of the part that a rewrite keeps."""

    start: _Offset
    length: _Offset
    digest: str
    identity: str


class Position(msgspec.Struct):
    """How far a group has read: the next byte, the latest lines, and lines cut off that may come again."""

    position: _Offset = 0
    lines: list[TakenLine] = []
    again: dict[str, int] = {}


class GroupPosition:
    """The file ``NAME.GROUP.position`` beside ``followed``; it and its lock are reached through no link."""

    def __init__(self, followed: Path, group: str) -> None:
        self._path = followed.with_name(f"{followed.name}.{group}.position")
        self._lock: int | None = None

    @property
    def is_locked(self) -> bool:
        """Return whether this program reads with the group."""
        return self._lock is not None

    def take(self) -> Position | None:
        """Take the group for this program and return its position, None at first. Raises SourceError."""
        path = self._path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = try_lock(path.with_name(f".{path.name}.lock"))
        except OSError as error:
            raise SourceError(f"cannot keep the position in {path}: {reason(error, path, 'write')}") from error
        if self._lock is None:
            raise SourceError(f"{path}: another program reads with this group; choose another group")
        clear_leftovers(path.parent, path.name)
        try:
            return msgspec.json.decode(read_state(path, most_bytes=_MOST_BYTES), type=Position)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if isinstance(error, OSError) and is_refusal(error):
                raise SourceError(f"cannot read {path}: {reason(error, path, 'read')}") from error
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise SourceError(f"{path} is damaged ({why}): delete it to begin anew") from error

    def save(self, position: Position) -> None:
        """Store ``position``. Raises OutputError."""
        write_atomically(self._path, msgspec.json.encode(position), is_state=True)

    def release(self) -> None:
        """Give the group up; safe to call twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
