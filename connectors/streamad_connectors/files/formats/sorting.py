"""Sorts the records of a file by time in bounded memory: sorted runs in temporary files, then one merge.

The sort is stable; a record without a readable time stays behind the one before it. The offset is the rank, so that it
depends on the file alone.
"""

from __future__ import annotations

import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import blake2b
from heapq import merge
from pathlib import Path
from typing import IO, NamedTuple

from streamad.errors import SourceError
from streamad.plugins import RecordTimes
from streamad.types import Record
from streamad_connectors.files.formats.reading import ReadRecord, shrunk_error

RUN_BYTES = 64 * 1024 * 1024
MOST_RUNS = 128
_RECORD_BYTES = 250  # of Python's objects for a record in memory
_BUFFER_BYTES = 1 << 16
_HEAD = struct.Struct("<qqI")
_BEFORE_ALL = -1


class _Keyed(NamedTuple):
    """A record's value with what it is sorted by; ``number`` counts the records of the file."""

    time_us: int
    number: int
    value: bytes


def sorted_records(
    path: Path,
    offset: int,
    records: Iterator[ReadRecord],
    times: RecordTimes,
    interrupted: threading.Event,
    *,
    run_bytes: int = RUN_BYTES,
) -> Iterator[ReadRecord]:
    """Yield ``records``, all of ``path``, sorted by time, from rank ``offset`` on.

    Raises SourceError, also once ``interrupted`` is set, and OSError.
    """
    with ExitStack() as opened:
        runs = _Runs(opened, path, run_bytes)
        newest_us = _BEFORE_ALL
        for number, (record, _) in enumerate(records):
            if interrupted.is_set():
                raise SourceError(f"{path}: sorting it was interrupted; the next run begins anew")
            time_us = times.of(record)
            newest_us = newest_us if time_us is None else time_us
            runs.add(_Keyed(newest_us, number, record.value))
        rank = 0
        for rank, keyed in enumerate(runs.merged(), 1):
            if rank > offset:
                yield Record(rank - 1, keyed.value), rank
        if rank < offset:
            raise shrunk_error(path, offset, rank, "records")


def sorting_of(times: RecordTimes) -> str:
    """Return a short text that differs where files may be sorted otherwise."""
    return blake2b(times.identity.encode(), digest_size=8).hexdigest()


class _Runs:
    """Sorted runs: the newest in memory, the others in files that vanish with the process."""

    def __init__(self, opened: ExitStack, path: Path, run_bytes: int) -> None:
        self._opened = opened
        self._path = path
        self._run_bytes = run_bytes
        self._held: list[_Keyed] = []
        self._held_bytes = 0
        self._files: list[IO[bytes]] = []

    def add(self, keyed: _Keyed) -> None:
        self._held.append(keyed)
        self._held_bytes += len(keyed.value) + _RECORD_BYTES
        if self._held_bytes >= self._run_bytes:
            self._spill()

    def merged(self) -> Iterator[_Keyed]:
        """Yield all in order; nothing may be added any more."""
        self._held.sort()
        return merge(*map(_read_run, self._files), self._held)

    def _spill(self) -> None:
        """Write what is in memory as a run; many runs become one."""
        run = self.merged() if len(self._files) >= MOST_RUNS - 1 else iter(sorted(self._held))
        old = self._files if len(self._files) >= MOST_RUNS - 1 else []
        file = self._write(run)
        for each in old:
            each.close()
        self._files = [file] if old else [*self._files, file]
        self._held, self._held_bytes = [], 0

    def _write(self, run: Iterator[_Keyed]) -> IO[bytes]:
        try:
            file = tempfile.TemporaryFile(buffering=_BUFFER_BYTES)  # noqa: SIM115 - closed by the stack
            self._opened.enter_context(file)
            for keyed in run:
                file.write(_HEAD.pack(keyed.time_us, keyed.number, len(keyed.value)))
                file.write(keyed.value)
            file.flush()
        except OSError as error:
            raise SourceError(
                f"{self._path}: cannot be sorted in {tempfile.gettempdir()} ({error.strerror or error}); set TMPDIR to "
                "a folder with room for the file"
            ) from error
        return file


def _read_run(file: IO[bytes]) -> Iterator[_Keyed]:
    file.seek(0)
    while head := file.read(_HEAD.size):
        time_us, number, length = _HEAD.unpack(head)
        yield _Keyed(time_us, number, file.read(length))
