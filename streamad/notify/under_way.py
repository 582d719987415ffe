"""The digest that is under way, kept in a file: a process that is killed sends the same one again, under the same id.

Without it a digest would hold other alerts after a restart, and who drops the ids that were seen would see most of them
twice. Once it has been delivered, its alerts are not told again at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamad.errors import OutputError
from streamad.notify.policy import Arrival, Batch, Told, key_of
from streamad.system.files import write_atomically
from streamad.system.opening import read_state
from streamad.telemetry.logs import get_logger

_MOST_BYTES = 1 << 22


class _Kept(msgspec.Struct):
    """The keys of its alerts and warnings, and whether the receiver has taken it or it was given up."""

    keys: tuple[bytes, ...] = ()
    is_done: bool = True


class UnderWay:
    """What a killed process had under way, ``batch``, as its messages are read again; then what this one has.

    A file that is missing or damaged costs the promise, never a notice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        kept = _read(path)
        self._missing = {*kept.keys}
        self._told: set[bytes] = {*kept.keys} if kept.is_done else set()
        self._is_awaited = not kept.is_done
        self._has_failed = False
        self.batch = Batch()

    @property
    def is_whole(self) -> bool:
        """Return whether all of it was read again, or none is awaited any more."""
        return not self._is_awaited or not self._missing

    def was_told(self, message: Told) -> bool:
        """Return whether a notice that was taken had ``message``; True once for each."""
        key = key_of(message)
        if key not in self._told:
            return False
        self._told.remove(key)
        return True

    def takes(self, message: Told, number: int, now_s: float) -> bool:
        """Return whether ``message``, of this number, belongs to it; then it is in ``batch``."""
        key = key_of(message)
        if not self._is_awaited or key not in self._missing:
            return False
        self._missing.remove(key)
        self.batch.add(Arrival(message, now_s), number)
        return True

    def end(self) -> Batch:
        """Return what has come of it; nothing is taken from now on."""
        self._is_awaited = False
        return self.batch

    async def begin(self, batch: Batch) -> None:
        """Keep ``batch``, before its notice is sent."""
        await self._keep(batch.keys, is_done=False)

    async def done(self, batch: Batch) -> None:
        """Keep that the notice of ``batch`` was taken or given up, before its messages are released."""
        await self._keep(batch.keys, is_done=True)

    async def _keep(self, keys: Sequence[bytes], *, is_done: bool) -> None:
        content = msgspec.msgpack.encode(_Kept(tuple(keys), is_done))
        try:
            await asyncio.to_thread(write_atomically, self._path, content, is_state=True)
        except OutputError as error:
            if not self._has_failed:
                get_logger().warning("a kill may repeat alerts under other ids (logged once)", why=str(error))
            self._has_failed = True


def _read(path: Path) -> _Kept:
    try:
        return msgspec.msgpack.decode(read_state(path, most_bytes=_MOST_BYTES), type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return _Kept()
