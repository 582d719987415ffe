"""Writes JSON lines to a file that can be cut back, so that a local checkpoint gives exactly-once output."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import msgspec
from pydantic import BaseModel, Field

from streamad.errors import CheckpointError, OutputError
from streamad.messages import OutputRecord
from streamad.plugins import ConnectorContext
from streamad.ports import Owner
from streamad.settings.fields import ConfigSection, Size
from streamad.system.files import append_whole, missing_line_end, sync_folder, write_atomically, writing
from streamad.system.locks import lock_open_file
from streamad.system.opening import read_state
from streamad.system.output_files import OutputFile, file_from, file_with, foreign_file, gap_from, output_files
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
    """Options of a JSON lines file; the URL names it."""

    rotate: Size | None = Field(
        default=None,
        ge=1,
        description="once a file has so many bytes after a commit, begin another one, NAME.OFFSET; default: one file",
    )


class JsonlSink:
    """Appends each message as one JSON line to the URL's file; makes missing folders.

    ``flush`` returns when the lines are on the disk (fsync). A failed write leaves no half line. The file is locked
    while open, so that no other sink or process writes to it. ``.NAME.owner`` beside it names the checkpoint that wrote
    to it last. With ``rotate`` a flush may begin another file: positions count the bytes of all of them, and only the
    last one is written to.
    """

    options_model: type[BaseModel] = JsonlSinkOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        if not rest:
            raise OutputError("a file sink needs a path, for example file:alerts.jsonl")
        self.path = Path(context.base_dir, rest)
        self._rotate = cast("JsonlSinkOptions", options).rotate
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()
        self._descriptor: int | None = None
        self._file = OutputFile(0, self.path)  # the last one, which is written to
        self._length = 0  # bytes of whole lines in it
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
        """Return the offset after the last line, without the buffer."""
        await self._in_thread(self._open)
        return self._file.start + self._length

    async def truncate(self, position: int) -> None:
        """Cut the output back to ``position`` and drop the buffer; raises CheckpointError if it ends before."""
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
            self._let_go()

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        async with self._lock:
            return await finished(asyncio.to_thread(self._guarded, work))

    def _guarded(self, work: Callable[[], _T]) -> _T:
        if self.path.is_dir():
            raise OutputError(f"cannot write {self.path}: it is a folder; name a file in it")
        with writing(self.path):
            return work()

    def _open(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._take(self._last())
            if (last := self._last()) != self._file:  # another sink has begun it before this one had the lock
                self._let_go()
                raise OutputError(f"{last.path}: another sink or process is writing to it")
            if (problem := foreign_file(output_files(self.path))) is not None:
                self._let_go()
                raise OutputError(problem)
        assert self._descriptor is not None
        return self._descriptor

    def _last(self) -> OutputFile:
        files = output_files(self.path)
        return files[-1] if files else file_from(self.path, 0)

    def _take(self, file: OutputFile, *, mode: int | None = None) -> None:
        """Open and lock ``file`` in the place of the one that is open now; with ``mode`` it must not be there yet."""
        is_new = not file.path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if mode is None else os.O_EXCL)
        descriptor = os.open(file.path, flags, 0o666 if mode is None else mode)
        try:
            if not lock_open_file(descriptor):
                raise OutputError(
                    f"{file.path}: another sink or process is writing to it; give every sink its own file"
                )
            if mode is not None:
                _set_mode(descriptor, mode, file.path)
            status = os.fstat(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._let_go()
        self._regular = stat.S_ISREG(status.st_mode)
        self._new = is_new
        self._file, self._length, self._descriptor = file, status.st_size, descriptor

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

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
        if status.st_size != self._length or not self._is_in_place(status):
            raise OutputError(
                f"{self._file.path}: was deleted, moved or changed by somebody else while streamad wrote to it; "
                "stop the other program, put a moved file back and start again"
            )
        if self._new:
            sync_folder(self.path.parent)
            self._new = False
        if self._rotate is not None and self._length >= self._rotate:
            self._begin_another(status)

    def _is_in_place(self, status: os.stat_result) -> bool:
        """Return whether readers of the output still find the open file, which has the ``status``."""
        try:
            return os.path.samestat(self._file.path.stat(), status)
        except FileNotFoundError:
            return False

    def _begin_another(self, full: os.stat_result) -> None:
        """Begin another file after the one with the status ``full``; if it cannot be made, that one goes on.

        A cut to before its beginning deletes it. Until its lines are synced nobody needs it to be there.
        """
        claim = self._read_claim()
        try:
            self._take(file_from(self.path, self._file.start + self._length), mode=stat.S_IMODE(full.st_mode))
        except OSError as error:
            get_logger().warning("no other file can be begun: it grows", path=str(self._file.path), why=str(error))
            self._rotate = None
            return
        if claim is not None and claim.inode == full.st_ino:  # the full file may be deleted one day
            self._write_owner(claim.owner)

    def _present_owner(self) -> Owner | None:
        """Return the owner; None of an empty file, for one that was moved away takes its owner along."""
        files = [file.path.stat() for file in output_files(self.path)]
        claim = self._read_claim() if files else None
        if claim is None or not any(status.st_size for status in files):
            return None
        return claim.owner if any(status.st_ino == claim.inode for status in files) else None

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
        self._open()
        if position > (end := self._file.start + self._length):
            raise CheckpointError(
                f"{self.path}: has {end} bytes, the checkpoint says {position}: it was cut or replaced; "
                "put the file back, or move it and its checkpoint away to begin anew"
            )
        self._buffer.clear()
        files = output_files(self.path)
        if (problem := gap_from(files, position)) is not None:
            raise CheckpointError(problem)
        holder = file_with(files, position)
        if holder is None:
            raise CheckpointError(
                f"{self.path}: the checkpoint says {position} bytes, but all before {files[0].start} were deleted; put "
                "the files back, or move them and the checkpoint away to begin anew"
            )
        if holder != self._file:
            self._take(holder)
            for file in reversed(files[files.index(holder) + 1 :]):  # what a crash leaves of them has no gap
                file.path.unlink()
            sync_folder(self.path.parent)
        if position < holder.start + self._length:
            assert self._descriptor is not None
            os.ftruncate(self._descriptor, position - holder.start)
            os.fsync(self._descriptor)
        self._length = position - holder.start


def _set_mode(descriptor: int, mode: int, path: Path) -> None:
    """Set the rights of a new file, or delete it: one that stays would hide what the one before it grows by."""
    try:
        os.fchmod(descriptor, mode)
    except OSError:
        path.unlink()
        raise
