"""The processes of a run: workers of one consumer group, and the page beside them."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from streamad.commands.shared.console import err, stop_on_signals
from streamad.errors import StreamadError
from streamad.system.tasks import wait_for_either

_LONGEST_PAUSE_S = 30.0
_STEADY_S = 60.0
_MAX_EARLY_DEATHS = 5
_USAGE = 2
_END_PAGE_S = 5.0


def supervised_command(command: str, config: Path, verbosity: int, *options: str) -> list[str]:
    """Return the words that run ``command`` of streamad in a process that ends with this one."""
    program = [sys.executable, "-m", "streamad", *["-v"] * verbosity]
    return [*program, command, "--config", str(config), "--supervised", *options]


class WorkerError(StreamadError):
    """Raised when a worker cannot be kept running."""


@dataclass(slots=True)
class _Worker:
    number: int
    process: asyncio.subprocess.Process | None = None
    early_deaths: int = 0
    restarts: int = 0

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
            worker.process = await asyncio.create_subprocess_exec(
                *self._command(worker.number), stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            if self._stopping.is_set():  # requested during the start, before it had a process
                worker.signal(signal.SIGTERM)
            code = await worker.process.wait()
            if code == 0 or self._stopping.is_set():
                break
            if code == _USAGE:
                self._fail(f"worker {worker.number} refused its config or options (see above)", code)
                break
            worker.early_deaths = worker.early_deaths + 1 if time.monotonic() - started < _STEADY_S else 0
            if worker.early_deaths >= _MAX_EARLY_DEATHS:
                self._fail(f"worker {worker.number} died {worker.early_deaths} times in a row (see above)", 1)
                break
            pause_s = min(_LONGEST_PAUSE_S, self._first_pause_s * 2.0 ** max(0, worker.early_deaths - 1))
            early = f" ({worker.early_deaths} of {_MAX_EARLY_DEATHS})" if worker.early_deaths else ""
            who = f"worker {worker.number} (pid {worker.process.pid})"
            err.print(f"{who} {_how(code)}: started again in {pause_s:g} s{early}")
            await wait_for_either(self._stopping, timeout_s=pause_s)
            worker.restarts += 1

    def _fail(self, why: str, code: int) -> None:
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


class PageBeside:
    """The process of a page. Whatever happens to it, the run goes on; ``stay`` keeps it after a run that has ended.

    It runs in a session of its own, so that Ctrl-C reaches the run alone; its standard input ends with the run, however
    that ends, and then it stops.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it; that it cannot be started is said, and no error."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            err.print(f"the page was not started ({error.strerror or error}): the run goes on without it")
            return
        self._watching = asyncio.create_task(self._watch(self._process))

    @staticmethod
    async def _watch(process: asyncio.subprocess.Process) -> None:
        how = _how(await process.wait())
        err.print(f"the page {how}; the run goes on (to open the page again: streamad web)")

    async def stay(self) -> None:
        """Return on Ctrl-C or SIGTERM, or if the page has ended by itself."""
        if self._watching is None or self._watching.done():
            return
        stopping = asyncio.Event()
        with stop_on_signals(stopping.set, ""):
            err.print("the run has ended; the page stays until Ctrl-C")
            await wait_for_either(stopping, self._watching)

    async def end(self) -> None:
        """End it: by SIGTERM, and after 5 s by SIGKILL, also if it is stopped or hangs."""
        if self._process is None or self._watching is None:
            return
        self._watching.cancel()
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _END_PAGE_S)
        except (TimeoutError, asyncio.CancelledError):
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def page_beside(command: Sequence[str] | None) -> AsyncIterator[PageBeside | None]:
    """Run the page of ``command`` during the block; None: there is no page."""
    if command is None:
        yield None
        return
    page = PageBeside(command)
    try:
        await page.start()
        yield page
    finally:
        await page.end()


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
