"""The learner beside a run (``learning.process: here``): a process of its own, which cannot outlive the run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from streamad.errors import StreamadError
from streamad.learn.serving.serving import Learning
from streamad.plant import Plant
from streamad.ports import Clock
from streamad.system.clock import pause
from streamad.system.tasks import Backoff, wait_for_either
from streamad.telemetry.events import Emit, EventLog

_END_S = 10.0
_FIRST_PAUSE_US = 1_000_000
_LONGEST_PAUSE_US = 600_000_000
_FINISH = b"finish\n"  # whatever is written to its standard input: learn what is there, then end


class LearnerError(StreamadError):
    """Raised if the learner of a finished run has not learned all that the run committed."""


def learner_command(plant: Plant, config: Path, verbosity: int) -> list[str] | None:
    """Return the command of a learner that ends with its parent, None if the config asks for none here."""
    if plant.settings.learning is None or plant.settings.learning.process != "here":
        return None
    return [sys.executable, "-m", "streamad", *["-v"] * verbosity, "learn", "--config", str(config), "--supervised"]


class LearnerBeside(Learning):
    """The process of a learner, started again, later each time, if it ends while the run goes on.

    It runs in a session of its own, so that Ctrl-C reaches the run alone; its standard input ends with the run, however
    that ends, and then it stops.
    """

    def __init__(self, command: list[str], clock: Clock, emit: Emit) -> None:
        self._command = command
        self._clock = clock
        self._emit = emit
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._stopping = asyncio.Event()
        self._starting = asyncio.Lock()

    async def begin(self) -> None:
        """Start it. Raises LearnerError if it cannot be started."""
        await self._start()
        self._watching = asyncio.create_task(self._watch())

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise LearnerError(f"the learner cannot be started: {error.strerror or error}") from error
        return self._process

    async def _watch(self) -> None:
        """Start it again whenever it ends."""
        assert self._process is not None
        backoff = Backoff(_FIRST_PAUSE_US, _LONGEST_PAUSE_US)
        while True:
            how = _how(await self._process.wait())
            if self._ending.is_set():
                return
            wait_s = backoff.pause_us / 1e6
            text = f"the learner has ended ({how}), it is started again in {wait_s:g} s; nothing committed is lost"
            self._emit("learning_failed", f"{text}, scoring goes on", level="error")
            await pause(wait_s, self._clock, self._ending)
            if self._ending.is_set():
                return
            backoff.failed()
            async with self._starting:
                if self._ending.is_set():  # ``finish`` starts what it needs
                    return
                with suppress(LearnerError):  # such as no memory for a process: tried again
                    await self._start()

    async def finish(self) -> None:
        """Let it learn all that is committed; returns once it has ended. Raises LearnerError if it has failed."""
        self._ending.set()
        async with self._starting:
            if (process := self._process) is None or process.returncode is not None:
                process = await self._start()
        assert process.stdin is not None
        if not self._stopping.is_set():
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(_FINISH)
                await process.stdin.drain()
        ended = asyncio.ensure_future(process.wait())
        await wait_for_either(self._stopping, ended)
        if not ended.done():  # a stop was requested: ``close`` ends a learner that does not listen
            ended.cancel()
            return
        if code := ended.result():
            raise LearnerError(
                f"the learner has ended ({_how(code)}) before it had learned all of this run: look at its lines above, "
                "and start `streamad learn --present`"
            )

    def request_stop(self) -> None:
        """Let it end soon, by the end of its standard input: a training that runs is continued at the next start."""
        self._ending.set()
        self._stopping.set()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def close(self) -> None:
        """End it: by the end of its standard input, and after 10 s by SIGKILL."""
        self.request_stop()
        process = self._process
        if process is not None and process.returncode is None:
            try:
                await asyncio.wait_for(process.wait(), _END_S)
            except (TimeoutError, asyncio.CancelledError):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._watching is not None:
            await asyncio.wait({self._watching})


@asynccontextmanager
async def learner_beside(command: list[str] | None, plant: Plant) -> AsyncIterator[LearnerBeside | None]:
    """Run the learner of ``command`` during the block; None: there is none."""
    if command is None:
        yield None
        return
    learner = LearnerBeside(command, plant.clock, EventLog(plant.settings.name, plant.clock).emit)
    try:
        await learner.begin()
        yield learner
    finally:
        await learner.close()


def _how(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
