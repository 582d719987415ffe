"""Several workers: started anew when they die, stopped together, ended with their supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamad.commands import _workers
from streamad.commands._workers import Supervisor, WorkerError
from streamad.errors import UsageError

# A worker that notes each life and ends by SIGTERM with exit code 0.
LIVES = """
import pathlib, signal, sys, time
folder, number, code = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with (folder / number).open("a") as file:
    file.write("x")
if code >= 0:
    sys.exit(code)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    time.sleep(0.05)
"""

# A worker as the command starts it: it ends when its standard input does.
WITH_PARENT = """
import asyncio, sys
from streamad.commands._workers import stop_with_parent
async def main():
    ended = asyncio.Event()
    stop_with_parent(ended.set)
    print("ready", flush=True)
    await asyncio.wait_for(ended.wait(), 20)
    print("told", flush=True)
asyncio.run(main())
"""


def supervisor(folder: Path, codes: Sequence[int]) -> Supervisor:
    def command(number: int) -> list[str]:
        return [sys.executable, "-c", LIVES, str(folder), str(number), str(codes[number - 1])]

    return Supervisor(command, len(codes), stop_timeout_s=5)


def lives(folder: Path, number: int) -> int:
    path = folder / str(number)
    return len(path.read_text()) if path.exists() else 0


async def until(is_so: object, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():  # type: ignore[operator]  # noqa: ASYNC110 - processes, not tasks, make it so
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers, "_FIRST_PAUSE_S", 0.05)


async def test_a_worker_that_is_killed_is_started_again_and_all_are_stopped_together(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [-1, -1])
    task = asyncio.create_task(watched.run())
    await until(lambda: lives(tmp_path, 1) == 1 and lives(tmp_path, 2) == 1)
    os.kill(watched.pids[0], signal.SIGKILL)
    await until(lambda: lives(tmp_path, 1) == 2)
    pids = watched.pids
    assert len(pids) == 2
    watched.request_stop()
    await asyncio.wait_for(task, 20)
    assert (lives(tmp_path, 1), lives(tmp_path, 2), watched.restarts) == (2, 1, 1)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_worker_that_dies_again_and_again_ends_all(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [-1, 1])
    with pytest.raises(WorkerError, match="worker 2 died 5 times in a row") as raised:
        await asyncio.wait_for(watched.run(), 30)
    assert (lives(tmp_path, 1), lives(tmp_path, 2), raised.value.exit_code) == (1, 5, 1)
    assert watched.pids == []


async def test_a_wrong_config_is_not_tried_again(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [2, -1])
    with pytest.raises(WorkerError, match="worker 1 refused its config") as raised:
        await asyncio.wait_for(watched.run(), 30)
    assert (lives(tmp_path, 1), raised.value.exit_code) == (1, UsageError.exit_code)


async def test_workers_that_end_well_are_not_started_again(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [0, 0])
    await asyncio.wait_for(watched.run(), 30)
    assert (lives(tmp_path, 1), lives(tmp_path, 2), watched.restarts) == (1, 1, 0)


async def test_a_worker_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers, "_GRACE_S", 0.3)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    watched = Supervisor(lambda _: [sys.executable, "-c", deaf], 1, stop_timeout_s=0.2)
    task = asyncio.create_task(watched.run())
    await until(lambda: watched.pids)
    await asyncio.sleep(0.5)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert watched.pids == []
    assert time.monotonic() - started < 10


async def test_a_worker_stops_when_its_supervisor_has_died() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WITH_PARENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert await process.stdout.readline() == b"ready\n"
    process.stdin.close()  # what the end of the supervisor does
    assert await process.stdout.readline() == b"told\n"
    assert await process.wait() == 0
