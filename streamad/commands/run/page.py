"""The page beside a run: a process of its own, which can neither hurt the run nor outlive it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from streamad.commands.shared.console import err, stop_on_signals

_END_S = 5.0


def page_command(config: Path, port: int | None, verbosity: int) -> list[str]:
    """Return the command of a page that ends with its parent."""
    program = [sys.executable, "-m", "streamad", *["-v"] * verbosity, "web", "--config", str(config), "--supervised"]
    return program if port is None else [*program, "--port", str(port)]


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
        code = await process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        err.print(f"the page {how}; the run is not concerned: streamad web opens it again")

    async def stay(self) -> None:
        """Return on Ctrl-C or SIGTERM, or if the page has ended by itself."""
        if self._watching is None or self._watching.done():
            return
        stopping = asyncio.Event()
        with stop_on_signals(stopping.set, ""):
            err.print("the run has ended; the page stays until Ctrl-C")
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait({stopped, self._watching}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()

    async def end(self) -> None:
        """End it: by SIGTERM, and after 5 s by SIGKILL, also if it is stopped or hangs."""
        if self._process is None or self._watching is None:
            return
        self._watching.cancel()
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _END_S)
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
