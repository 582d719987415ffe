"""Writes JSON lines to a file that can be cut back, so that a local checkpoint gives exactly-once output."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from pydantic import BaseModel

from streamad.errors import CheckpointError, OutputError
from streamad.messages import OutputRecord
from streamad.plugins import ConnectorContext
from streamad.ports import Owner
from streamad.settings.fields import ConfigSection
from streamad.system.files import append_whole, missing_line_end, sync_folder, write_atomically, writing
from streamad.system.locks import lock_open_file
from streamad.system.opening import read_state
from streamad.system.rights import is_refusal
from streamad.system.tasks import finished
from streamad.system.untrusted_json import decode_json
from streamad.telemetry.logs import get_logger

_BUFFER_BYTES = 1 << 18
_T = TypeVar("_T")


class _Claim(msgspec.Struct, frozen=True):
    """The content of ``.NAME.owner``: whose the file is. A copy of both has another ``inode``, and is nobody's."""

    owner: Owner
    inode: int


class JsonlSinkOptions(ConfigSection):
    """A JSON lines file has no options; the URL names the file."""


class JsonlSink:
    """Appends each message as one JSON line to the URL's file; makes missing folders.

    ``flush`` returns when the lines are on the disk (fsync). A failed write leaves no half line. The file is locked
    while open, so that no other sink or process writes to it. ``.NAME.owner`` beside it names the checkpoint that wrote
    to it last.
    """

    options_model: type[BaseModel] = JsonlSinkOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        if not rest:
            raise OutputError("a file sink needs a path, for example file:alerts.jsonl")
        self.path = Path(context.base_dir, rest)
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()
        self._descriptor: int | None = None
        self._length = 0  # bytes of whole lines in the file
        self._regular = True
        self._new = False
        self._lock = asyncio.Lock()

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Take ``records`` in order; a large buffer is written at once. Raises OutputError."""
        for record in records:
            self._buffer += self._encoder.encode(record.message)
            self._buffer += b"\n"
        if len(self._buffer) >= _BUFFER_BYTES:
            await self._in_thread(self._drain)

    async def flush(self) -> None:
        """Return once all lines are on the disk. Raises OutputError."""
        await self._in_thread(self._sync)

    async def position(self) -> int:
        """Return the length of the file in bytes, without the buffer."""
        await self._in_thread(self._open)
        return self._length

    async def truncate(self, position: int) -> None:
        """Cut the file back to ``position`` and drop the buffer; raises CheckpointError if the file is shorter."""
        await self._in_thread(lambda: self._cut(position))

    async def owner(self) -> Owner | None:
        """Return who claimed the file last, None if nobody did. Raises OutputError if the claim cannot be read."""
        return await self._in_thread(self._present_owner)

    async def claim(self, owner: Owner) -> None:
        """Remember ``owner`` durably, beside the file. Raises OutputError."""
        await self._in_thread(lambda: self._write_owner(owner))

    async def close(self) -> None:
        """Write the buffer and release the file; safe to call twice."""
        try:
            if self._buffer:
                await self.flush()
        finally:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        async with self._lock:
            return await finished(asyncio.to_thread(self._guarded, work))

    def _guarded(self, work: Callable[[], _T]) -> _T:
        if self.path.is_dir():
            raise OutputError(f"cannot write {self.path}: it is a folder; name a file in it")
        with writing(self.path):
            return work()

    def _open(self) -> int:
        if self._descriptor is not None:
            return self._descriptor
        self._new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            if not lock_open_file(descriptor):
                raise OutputError(
                    f"{self.path}: another sink or process is writing to it; give every sink its own file"
                )
            status = os.fstat(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._regular = stat.S_ISREG(status.st_mode)
        self._length = status.st_size
        self._descriptor = descriptor
        return descriptor

    def _drain(self) -> int:
        descriptor = self._open()
        if not self._buffer:
            return descriptor
        taken = bytes(self._buffer)
        content = (missing_line_end(descriptor, self._length) if self._regular else b"") + taken
        append_whole(descriptor, content, self._length)
        self._length += len(content)
        del self._buffer[: len(taken)]  # a write meanwhile may have added to it
        return descriptor

    def _sync(self) -> None:
        descriptor = self._drain()
        if not self._regular:
            return
        os.fsync(descriptor)
        status = os.fstat(descriptor)
        if status.st_nlink == 0 or status.st_size != self._length:
            raise OutputError(
                f"{self.path}: was deleted or changed by somebody else while streamad wrote to it; "
                "stop the other program and start again"
            )
        if self._new:
            sync_folder(self.path.parent)
            self._new = False

    def _present_owner(self) -> Owner | None:
        """Return the owner; None of an empty file, for one that was moved away takes its owner along."""
        claim = self._read_claim() if self.path.exists() else None
        if claim is None:
            return None
        status = self.path.stat()
        return claim.owner if status.st_size and status.st_ino == claim.inode else None

    def _read_claim(self) -> _Claim | None:
        try:
            return decode_json(read_state(self._owner_path), _Claim)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise OutputError(
                f"{self._owner_path}: cannot be read ({error}), so it is not known which checkpoint writes to "
                f"{self.path.name}; delete it if no other plant does"
            ) from error

    def _write_owner(self, owner: Owner) -> None:
        claim = _Claim(owner, os.fstat(self._open()).st_ino)
        if not self._regular or self._read_claim() == claim:
            return
        try:
            write_atomically(self._owner_path, msgspec.json.encode(claim))
        except OutputError as error:
            if not is_refusal(error.__cause__):
                raise
            get_logger().warning(  # the file alone may be writable
                "nothing can be written beside the output: a start of another checkpoint that would cut it off is not "
                "refused; allow its folder to be written",
                path=str(self.path),
            )

    @property
    def _owner_path(self) -> Path:
        return self.path.with_name(f".{self.path.name}.owner")

    def _cut(self, position: int) -> None:
        descriptor = self._open()
        if position > self._length:
            raise CheckpointError(
                f"{self.path}: has {self._length} bytes, the checkpoint says {position}: it was cut or replaced; "
                "put the file back, or move it and its checkpoint away to begin anew"
            )
        self._buffer.clear()
        if position < self._length:
            os.ftruncate(descriptor, position)
            os.fsync(descriptor)
        self._length = position
