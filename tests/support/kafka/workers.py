"""Workers as processes: ``streamad run`` started anew, or forked from a server that has everything imported.

A life of the second kind begins in milliseconds, so that a test can afford many of them; it runs the same command line.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Protocol

from tests.support.forks import fork_server_context
from tests.support.kafka import child as kafka_child
from tests.support.waiting import LIMIT_S


class Process(Protocol):
    """What a worker needs to know of its process; ``subprocess.Popen`` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...


class Worker:
    """A process of ``streamad``; what it says goes to a file of its own."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.started_s = time.time()
        self.ended_s = float("inf")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Raises AssertionError where it had ended by itself: that is no kill."""
        assert self.is_running, f"{self.name} had ended by itself:\n{self.said()[-3000:]}"
        self.end()

    def end(self) -> None:
        """End it for good, if it still runs."""
        self.send(signal.SIGKILL)
        self.process.wait(LIMIT_S)
        self.ended_s = min(self.ended_s, time.time())

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return the log's entries of this kind; a last line that a kill cut off is none."""
        entries = []
        for text in self.said().splitlines():
            if f'"{event}"' not in text:
                continue
            try:
                entry = json.loads(text)
            except ValueError:
                continue
            if entry.get("event") == event:
                entries.append(entry)
        return entries

    def owned(self) -> set[str]:
        """Return the partitions that it holds, as far as it has logged."""
        owned: set[str] = set()
        for text in self.said().splitlines():
            if '"partition assigned"' in text or '"partition dropped"' in text:
                entry = json.loads(text)
                (owned.add if entry["event"] == "partition assigned" else owned.discard)(entry["partition"])
        return owned

    @property
    def n_commits(self) -> int:
        return len(self.logged("committed"))

    async def wait(self, timeout_s: float) -> int:
        """Return the exit code; raises TimeoutError with what it said last."""
        await self.until(lambda: not self.is_running, timeout_s)
        code = self.process.poll()
        assert code is not None
        return code

    async def until(self, is_so: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
        """Return once ``is_so``; raises TimeoutError with what it said last."""
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so():  # noqa: ASYNC110 - a process, not a task
                    await asyncio.sleep(0.005)
        except TimeoutError as error:
            raise TimeoutError(f"{self.name} after {timeout_s} s:\n{self.said()[-3000:]}") from error

    async def until_logged(self, event: str, n: int = 1, timeout_s: float = LIMIT_S) -> None:
        """Return once it has logged ``n`` entries of this kind, or has ended."""
        await self.until(lambda: len(self.logged(event)) >= n or not self.is_running, timeout_s)


def spawn(
    name: str, arguments: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str], **options: Any
) -> Worker:
    """Start ``streamad`` with ``arguments`` as a user does; ``options`` are those of ``subprocess.Popen``."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamad", *arguments],
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            **{"stdin": subprocess.DEVNULL, **options},
        )
    return Worker(name, process, log)


class ForkServer:
    """Forks workers; those that a failing test leaves behind are its plant's to end."""

    def __init__(self, *preload: str) -> None:
        self._context = fork_server_context(*preload)

    def start(self, name: str, arguments: Sequence[str], folder: Path, log: Path, **environment: str) -> Worker:
        """Start ``streamad`` with ``arguments`` in a fork of a process that has it imported."""
        log.touch()
        given = (list(arguments), folder, log, {**os.environ, **environment})
        process = self._context.Process(target=kafka_child.streamad, args=given)
        process.start()
        return Worker(name, _Forked(process), log)


class _Forked:
    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process.name), timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)
