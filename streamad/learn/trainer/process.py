"""A child process: one piece of input, and the last bytes of its output.

It is started by ``subprocess`` (through asyncio), not by ``multiprocessing``: "spawn" would import the caller's
``__main__`` in the child before the child can lower its priority and redirect its output, and would leave a resource
tracker process beside the learner.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, cast

_KEPT_BYTES = {1: 1_000_000, 2: 20_000}
_LAST_OUTPUT_S = 1.0
_PR_SET_PDEATHSIG = 1
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def environment_of(threads: int) -> dict[str, str]:
    """Return this process's environment with ``threads`` for all numeric libraries."""
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}


def end_with_parent() -> None:
    """Let the kernel end this process when the one that started it ends, also by SIGKILL. Linux alone has that.

    PR_SET_PDEATHSIG of prctl(2).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Ended(NamedTuple):
    """How a process ended: exit code (negative: the signal), and the last bytes of its stdout and its stderr."""

    code: int
    output: bytes
    errors: str


class Process:
    """A running process; its stdin stays open until its end, so that it sees the death of this process as EOF."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: _Output) -> None:
        self._transport = transport
        self._output = output

    @classmethod
    async def start(cls, command: Sequence[str], content: bytes, threads: int) -> Process:
        """Start ``command`` with ``content`` on its stdin and ``threads`` for its numeric libraries. Raises OSError."""
        environment = environment_of(threads)
        transport, output = await asyncio.get_running_loop().subprocess_exec(_Output, *command, env=environment)
        cast("asyncio.WriteTransport", transport.get_pipe_transport(0)).write(content)
        return cls(transport, output)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._transport.get_pid()

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process still runs."""
        if not self._output.exited.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)  # the transport's own method may reap the process before asyncio does

    async def ended(self) -> Ended:
        """Return once the process has ended; kill it if the caller is cancelled."""
        try:
            await self._output.exited.wait()
            with suppress(TimeoutError):  # a process that it started may keep its output open
                await asyncio.wait_for(self._output.closed.wait(), _LAST_OUTPUT_S)
        finally:
            self.send(signal.SIGKILL)
            await self._output.exited.wait()
            self._transport.close()
        code = self._transport.get_returncode()
        assert code is not None
        return Ended(code, self._output.kept[1], self._output.kept[2].decode(errors="replace"))


class _Output(asyncio.SubprocessProtocol):
    """Keeps the last bytes of stdout and stderr, and notes the end of the process and of both."""

    def __init__(self) -> None:
        self.kept = dict.fromkeys(_KEPT_BYTES, b"")
        self.exited, self.closed = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.kept[fd] = (self.kept[fd] + data)[-_KEPT_BYTES[fd] :]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
