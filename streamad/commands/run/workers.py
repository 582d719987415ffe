"""Several workers on one machine: processes of one consumer group, restarted when they die, stopped together."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamad.commands.shared.console import err
from streamad.errors import StreamadError
from streamad.system.tasks import wait_for_either

_LONGEST_PAUSE_S = 30.0
_STEADY_S = 60.0
_MAX_EARLY_DEATHS = 5
_USAGE = 2


class WorkerError(StreamadError):
    """Raised when a worker cannot be kept running."""


@dataclass(slots=True)
class _Worker:
    number: int
    process: asyncio.subprocess.Process | None = None
    early_deaths: int = 0
    restarts: int = 0
    ended: bool = False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if one runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)


class Supervisor:
    """Keeps ``n`` processes of ``command`` (given a worker's number) running until ``request_stop``.

    A worker that fails is restarted after 1 s to 30 s; five failures in a row, each within 60 s of the start,
    or exit code 2 (config or usage), end all workers. Workers run in sessions of their own, so that Ctrl-C reaches only
    the supervisor; if the supervisor dies, their standard input ends and they stop. Cancelled after ``request_stop`` (a
    second Ctrl-C), ``run`` kills them.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        n: int,
        *,
        stop_timeout_s: float,
        first_pause_s: float = 1.0,
        grace_s: float = 30.0,
    ) -> None:
        self._command = command
        self._workers = [_Worker(number) for number in range(1, n + 1)]
        self._end_timeout_s = stop_timeout_s + grace_s
        self._first_pause_s = first_pause_s
        self._stopping = asyncio.Event()
        self._failure: WorkerError | None = None
        self._exit_code = 0

    @property
    def restarts(self) -> int:
        """Return the number of restarts of all workers."""
        return sum(worker.restarts for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the running workers."""
        processes = [worker.process for worker in self._workers]
        return [process.pid for process in processes if process is not None and process.returncode is None]

    @property
    def is_stopping(self) -> bool:
        """Return whether a stop was requested."""
        return self._stopping.is_set()

    def request_stop(self) -> None:
        """Ask every worker to finish what it is scoring and to exit."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    async def run(self) -> None:
        """Run until all workers have ended. Raises WorkerError if one cannot be kept running."""
        tasks = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            if self._stopping.is_set():  # they ignore a second SIGTERM
                self._signal(signal.SIGKILL)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end_all()
        if self._failure is not None:
            raise self._failure

    async def _keep(self, worker: _Worker) -> None:
        """Run one worker's processes, one after the other, until exit code 0 or a requested stop."""
        while not self._stopping.is_set():
            started = time.monotonic()
            worker.process = await self._start(worker)
            if self._stopping.is_set():  # requested during the start, before it had a process
                worker.signal(signal.SIGTERM)
            code = await worker.process.wait()
            if code == 0 or self._stopping.is_set():
                break
            if code == _USAGE:
                self._fail(worker, f"worker {worker.number} refused its config or options (see above)", code)
                break
            worker.early_deaths = worker.early_deaths + 1 if time.monotonic() - started < _STEADY_S else 0
            if worker.early_deaths >= _MAX_EARLY_DEATHS:
                self._fail(worker, f"worker {worker.number} died {worker.early_deaths} times in a row (see above)", 1)
                break
            pause_s = min(_LONGEST_PAUSE_S, self._first_pause_s * 2.0 ** max(0, worker.early_deaths - 1))
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            early = f" ({worker.early_deaths} of {_MAX_EARLY_DEATHS})" if worker.early_deaths else ""
            who = f"worker {worker.number} (pid {worker.process.pid})"
            err.print(f"{who} {how}: started again in {pause_s:g} s{early}")
            await wait_for_either(self._stopping, timeout_s=pause_s)
            worker.restarts += 1
        worker.ended = True

    async def _start(self, worker: _Worker) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command(worker.number), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )

    def _fail(self, worker: _Worker, why: str, code: int) -> None:
        worker.ended = True
        if self._failure is None:
            self._failure = WorkerError(f"{why}: all workers are stopped")
            self._failure.exit_code = code
        self.request_stop()

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.signal(number)

    async def _end_all(self) -> None:
        """End running workers by SIGTERM, after the stop timeout by SIGKILL."""
        self._signal(signal.SIGTERM)
        waits = [worker.process.wait() for worker in self._workers if worker.process is not None]
        try:
            await asyncio.wait_for(asyncio.gather(*waits), self._end_timeout_s)
        except TimeoutError:
            err.print("workers do not end: killed")
            self._signal(signal.SIGKILL)
            await asyncio.gather(*(worker.process.wait() for worker in self._workers if worker.process is not None))
