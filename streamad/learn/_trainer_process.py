"""The trainer seen from the worker: a child process with one line in, one line out, and its last words on stderr."""

from __future__ import annotations

__all__ = ["Ended", "TrainerProcess", "trainer_environment"]

import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

_OUTPUT_BYTES = 1_000_000
_LAST_WORDS_BYTES = 20_000
_LOOK_S = 0.2
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class Ended(NamedTuple):
    """How it ended: exit code (negative: the signal), the ends of what it wrote to stdout and to stderr."""

    code: int
    output: bytes
    last_words: str


def trainer_environment(threads: int) -> dict[str, str]:
    """Return this process's environment with the number of threads that numeric libraries may start."""
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}


class TrainerProcess:
    """A child process; ``run`` blocks one thread until it has ended, ``send`` may be called from any other."""

    def __init__(self, command: Sequence[str], line: bytes, environment: Mapping[str, str]) -> None:
        self._command = command
        self._line = line
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Return its process id, None before it was started."""
        return None if self._process is None else self._process.pid

    def run(self) -> Ended:
        """Start it, pass the line, and return once it has ended. Raises OSError where it cannot be started.

        Its standard input stays open until then: the end of that tells it that this process has died.
        """
        with self._lock:
            if self._stopped:
                return Ended(-signal.SIGTERM, b"", "")
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,  # else what a dead child did not read would be written again at closing
                env=dict(self._environment),
            )
        with self._process as process:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(self._line)
            output, last_words = _read_until_end(process)
            code = process.wait()
        return Ended(code, output, last_words.decode(errors="replace"))

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs; where it was not started yet, it will not be."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.send_signal(number)


def _read_until_end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return the ends of stdout and stderr, read while it runs; that others still hold them does not count."""
    assert process.stdout is not None
    assert process.stderr is not None
    limits: dict[IO[bytes], int] = {process.stdout: _OUTPUT_BYTES, process.stderr: _LAST_WORDS_BYTES}
    read = dict.fromkeys(limits, b"")
    with selectors.DefaultSelector() as selector:
        for file in limits:
            selector.register(file, selectors.EVENT_READ)
        while selector.get_map():
            has_ended = process.poll() is not None
            ready = selector.select(_LOOK_S)
            if has_ended and not ready:
                break
            for key, _ in ready:
                file = next(file for file in limits if file is key.fileobj)
                chunk = os.read(key.fd, 65_536)
                if not chunk:
                    selector.unregister(file)
                read[file] = (read[file] + chunk)[-limits[file] :]
    return read[process.stdout], read[process.stderr]
