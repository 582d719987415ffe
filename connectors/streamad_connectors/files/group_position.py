"""How far a group has read a followed file: kept in a file beside it, for one program at a time."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streamad.errors import SourceError
from streamad.system.files import clear_leftovers, write_atomically
from streamad.system.locks import try_lock
from streamad.system.opening import read_state
from streamad.system.rights import is_refusal, reason
from streamad_connectors.files.whole_lines import FoundLine

_MOST_BYTES = 1 << 22
_Offset = Annotated[int, msgspec.Meta(ge=0, le=1 << 61)]


class TakenLine(msgspec.Struct, frozen=True, array_like=True):
    """A line that was read: its place in the file, its hash, and the hash of the part that a rewrite keeps."""

    start: _Offset
    length: _Offset
    digest: str
    identity: str


def taken_line(line: FoundLine) -> TakenLine:
    """Return what is remembered of ``line``."""
    identity = line.digest if line.content is None else blake2b(_lasting(line.content), digest_size=8).hexdigest()
    return TakenLine(line.start, line.length, line.digest, identity)


def _lasting(line: bytes) -> bytes:
    """Return the part of a message that is the same when a restarted streamad writes it again: all but ``created_at``.

    Operators' marks are written once: one of another time is another one.
    """
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return line
    if isinstance(fields, dict) and "judgement" not in fields:
        fields.pop("created_at", None)
    return msgspec.json.encode(fields)


class Position(msgspec.Struct):
    """How far a group has read: the next byte, the latest lines, and lines cut off that may come again.

    ``first``: start, device and inode of the oldest file then.
    """

    position: _Offset = 0
    lines: list[TakenLine] = []
    again: dict[str, int] = {}
    first: tuple[int, int, int] | None = None


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
