"""Reads Parquet: each row is one record, a msgpack map from column to value; the offset counts rows from 0."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.types import Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_process import LENGTH, Answer
from streamad_connectors.files.formats.reading import ReadRecord, read_error, shrunk_error, too_large_error

_MODULE = "streamad_connectors.files.formats.parquet_process"
_DECODER = msgspec.msgpack.Decoder(Answer)
_BASE_BYTES = 1 << 28
"""Memory of the reading process besides ``max_decompressed_bytes``: Python, pyarrow, and the rows at hand."""
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Other allocators reserve more than they need, and each thread takes room for its stack."""


def read_parquet(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the rows from number ``offset`` on; row groups before it are not read.

    Timestamps become RFC 3339 text (without a zone: UTC, or local ones for the decoder), durations seconds, decimals
    numbers, booleans 0 and 1. Another process reads them, so that no file can fill this one's memory or end it.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise SourceError("reading Parquet needs pyarrow: pip install pyarrow")
    path.open("rb").close()  # raises what keeps it from being opened
    limit = options.max_decompressed_bytes
    process = _waiting(limit) or _Process(limit)
    try:
        process.ask(path, offset, "" if context.local_times else "UTC")
        number = offset
        for row in process.rows(path, offset):
            yield Record(number, row), number + 1
            number += 1
    except BaseException:
        process.close()
        raise
    if _idle:
        process.close()
    else:
        _idle.append(process)


def _waiting(limit: int) -> _Process | None:
    """Return a process with this limit that waits for a file, and end one that cannot be used."""
    try:
        process = _idle.pop()
    except IndexError:
        return None
    if process.limit == limit and process.is_running:
        return process
    process.close()
    return None


class _Process:
    """A process that reads one file after another."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        command = [sys.executable, "-P", "-m", _MODULE, str(_BASE_BYTES + limit)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,  # Ctrl-C is for this process
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, path: Path, offset: int, zone: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(path), offset, self.limit, zone]).encode() + b"\n")
        self._process.stdin.flush()

    def rows(self, path: Path, offset: int) -> Iterator[bytes]:
        """Yield the rows, each as msgpack. Raises SourceError."""
        assert self._process.stdout is not None
        while True:
            header = self._process.stdout.read(LENGTH.size)
            content = self._process.stdout.read(*LENGTH.unpack(header)) if len(header) == LENGTH.size else b""
            try:
                kind, found = _DECODER.decode(content)
            except msgspec.DecodeError:
                raise self._ended(path) from None
            if kind == "done":
                return
            if isinstance(found, str):
                raise _failure(path, kind, found, offset, self.limit)
            yield from found

    def _ended(self, path: Path) -> SourceError:
        """Return the error that the process ended before its answer."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()  # if it has answered nonsense, it ends now
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return read_error(path, MemoryError())
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return _damaged(path, f"the process that read it {how}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with self._process:  # closes the pipes and waits
            pass


def _failure(path: Path, kind: str, text: str, offset: int, limit: int) -> SourceError:
    if kind == "too large":
        return too_large_error(path, text, limit)
    if kind == "shrunk":
        return shrunk_error(path, offset, int(text), "rows")
    return SourceError(f"{path}: {text}") if kind == "refused" else _damaged(path, text)


def _damaged(path: Path, detail: str) -> SourceError:
    return SourceError(f"{path}: cannot be read as Parquet ({detail}); write it anew")


_idle: list[_Process] = []
"""A process that has read its file waits for the next one: starting another takes longer than reading a small file."""


@atexit.register
def _end() -> None:
    while _idle:
        _idle.pop().close()
