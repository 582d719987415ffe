"""Asks the process that reads Parquet, and starts it: one waits for the next file when it has read one."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from streamad.errors import SourceError
from streamad_connectors.files.formats.parquet_files.arrays import ColumnsAnswer
from streamad_connectors.files.formats.parquet_files.process import LENGTH, Answer
from streamad_connectors.files.formats.reading import read_error, shrunk_error, too_large_error

_MODULE = "streamad_connectors.files.formats.parquet_files.process"
_DECODER: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_BASE_BYTES = 1 << 28
"""Memory of the reading process besides ``max_decompressed_bytes``: Python, pyarrow, and the rows at hand."""
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Other allocators reserve more than they need, and each thread takes room for its stack."""


@contextmanager
def reading_process(path: Path, limit: int) -> Iterator[ReadingProcess]:
    """Give a process that can read ``path``, with ``limit`` bytes for a row group. Raises SourceError, OSError."""
    if importlib.util.find_spec("pyarrow") is None:
        raise SourceError("reading Parquet needs pyarrow: pip install pyarrow")
    path.open("rb").close()  # raises what keeps it from being opened
    process = _waiting(limit) or ReadingProcess(limit)
    try:
        yield process
    except BaseException:
        process.close()
        raise
    if _idle:
        process.close()
    else:
        _idle.append(process)


def _waiting(limit: int) -> ReadingProcess | None:
    """Return a process with this limit that waits for a file, and end one that cannot be used."""
    try:
        process = _idle.pop()
    except IndexError:
        return None
    if process.limit == limit and process.is_running:
        return process
    process.close()
    return None


class ReadingProcess:
    """A process that reads one file after another."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._path, self._offset = Path(), 0
        self._ahead: deque[Answer] = deque()
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
        """Return whether it has not ended."""
        return self._process.poll() is None

    def ask(self, path: Path, offset: int, zone: str, wanted: Collection[str] | None = None) -> None:
        """Ask for the rows of ``path`` from number ``offset`` on, or for their columns ``wanted``."""
        self._path, self._offset = path, offset
        self._ahead.clear()
        self._send([str(path), offset, self.limit, zone, *([] if wanted is None else [sorted(wanted)])])

    def rows(self) -> Iterator[bytes]:
        """Yield the rows that were asked for, each as msgpack. Raises SourceError."""
        while (found := self._found(self._answer())) is not None:
            assert isinstance(found, list)
            yield from found

    def columns(self) -> ColumnsAnswer | None:
        """Return the next columns that were asked for, None if there are no more; prepare those behind them.

        Raises SourceError.
        """
        found = self._found(self._ahead.popleft() if self._ahead else self._answer())
        assert not isinstance(found, list)
        self._send(None)
        return found

    def rows_of(self, first: int, last: int) -> list[bytes]:
        """Return the rows from one number to another of the columns that came last, fewer of long ones.

        Raises SourceError.
        """
        self._send([first, last])
        rows: list[bytes] = []
        while True:
            kind, found = self._answer()
            if kind == "rows" and isinstance(found, list):
                rows += found
                if not found:
                    return rows
            elif self._ahead:
                raise _failure(self._path, kind, str(found), self._offset, self.limit)
            else:  # what was prepared meanwhile
                self._ahead.append((kind, found))

    def _send(self, request: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _found(self, answer: Answer) -> ColumnsAnswer | list[bytes] | None:
        kind, found = answer
        if kind == "done":
            return None
        if isinstance(found, str):
            raise _failure(self._path, kind, found, self._offset, self.limit)
        return found

    def _answer(self) -> Answer:
        assert self._process.stdout is not None
        header = self._process.stdout.read(LENGTH.size)
        content = self._process.stdout.read(*LENGTH.unpack(header)) if len(header) == LENGTH.size else b""
        try:
            return _DECODER.decode(content)
        except msgspec.DecodeError:
            raise self._ended(self._path) from None

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


_idle: list[ReadingProcess] = []
"""A process that has read its file waits for the next one: starting another takes longer than reading a small file."""


@atexit.register
def end_waiting() -> None:
    """End the process that waits for a file, if one does."""
    while _idle:
        _idle.pop().close()
