"""Several workers: started anew when they die, stopped together, ended with their supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streamad.commands.run.processes import Supervisor, WorkerError
from streamad.errors import UsageError
from tests.support.waiting import LIMIT_S

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
from streamad.commands.shared.console import stop_with_parent
async def main():
    ended = asyncio.Event()
    stop_with_parent(ended.set)
    print("ready", flush=True)
    await asyncio.wait_for(ended.wait(), 300)
    print("told", flush=True)
asyncio.run(main())
"""

# A worker that is told to stop, and takes until it is let go: argv: folder, number, seconds that signals are the same.
SLOW_TO_STOP = """
import asyncio, pathlib, sys, time
from streamad.commands.shared.console import stop_on_signals
from streamad.commands.shared.console import stop_with_parent
folder, number, seconds = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
async def main():
    told = asyncio.Event()
    repeats_s = stop_with_parent(told.set) if seconds == "supervised" else float(seconds)
    with stop_on_signals(told.set, repeats_s=repeats_s):
        (folder / f"ready-{number}").touch()
        await told.wait()
        (folder / f"told-{number}").touch()
        while not (folder / "go").exists():
            await asyncio.sleep(0.01)
    (folder / f"loop-over-{number}").touch()
asyncio.run(main())
while not (folder / "end").exists():
    time.sleep(0.01)
(folder / f"finished-{number}").touch()
"""


def supervisor(folder: Path, codes: Sequence[int]) -> Supervisor:
    def command(number: int) -> list[str]:
        return [sys.executable, "-c", LIVES, str(folder), str(number), str(codes[number - 1])]

    return Supervisor(command, len(codes), stop_timeout_s=5, first_pause_s=0.05)


def lives(folder: Path, number: int) -> int:
    path = folder / str(number)
    return len(path.read_text()) if path.exists() else 0


async def until(is_so: object, timeout_s: float = LIMIT_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():  # type: ignore[operator]  # noqa: ASYNC110 - processes, not tasks, make it so
            await asyncio.sleep(0.02)


async def test_a_worker_that_is_killed_is_started_again_and_all_are_stopped_together(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [-1, -1])
    task = asyncio.create_task(watched.run())
    await until(lambda: lives(tmp_path, 1) == 1 and lives(tmp_path, 2) == 1 and len(watched.pids) == 2)
    os.kill(watched.pids[0], signal.SIGKILL)
    await until(lambda: lives(tmp_path, 1) == 2 and len(watched.pids) == 2)
    pids = watched.pids
    watched.request_stop()
    await asyncio.wait_for(task, LIMIT_S)
    assert (lives(tmp_path, 1), lives(tmp_path, 2), watched.restarts) == (2, 1, 1)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_worker_that_dies_again_and_again_ends_all(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [-1, 1])
    with pytest.raises(WorkerError, match="worker 2 died 5 times in a row") as raised:
        await asyncio.wait_for(watched.run(), LIMIT_S)
    assert (lives(tmp_path, 1), lives(tmp_path, 2), raised.value.exit_code) == (1, 5, 1)
    assert watched.pids == []


async def test_a_wrong_config_is_not_tried_again(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [2, -1])
    with pytest.raises(WorkerError, match="worker 1 refused its config") as raised:
        await asyncio.wait_for(watched.run(), LIMIT_S)
    assert (lives(tmp_path, 1), raised.value.exit_code) == (1, UsageError.exit_code)


async def test_a_stop_while_workers_are_being_started_reaches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.create_subprocess_exec

    async def start_slowly(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*arguments, **options)
        watched.request_stop()  # the process runs, and the supervisor does not know of it yet
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
    watched = supervisor(tmp_path, [-1, -1])
    await asyncio.wait_for(watched.run(), LIMIT_S)
    assert watched.pids == []


async def test_workers_that_end_well_are_not_started_again(tmp_path: Path) -> None:
    watched = supervisor(tmp_path, [0, 0])
    await asyncio.wait_for(watched.run(), LIMIT_S)
    assert (lives(tmp_path, 1), lives(tmp_path, 2), watched.restarts) == (1, 1, 0)


async def test_a_worker_that_does_not_end_is_killed() -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    watched = Supervisor(lambda _: [sys.executable, "-c", deaf], 1, stop_timeout_s=0.2, grace_s=0.3)
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


def slow_to_stop(folder: Path, number: int = 1, seconds: str = "supervised") -> list[str]:
    return [sys.executable, "-c", SLOW_TO_STOP, str(folder), str(number), seconds]


async def until_there(folder: Path, *names: str) -> None:
    await until(lambda: all((folder / name).exists() for name in names))


async def test_workers_signalled_from_outside_and_by_their_supervisor_stop_in_order(tmp_path: Path) -> None:
    watched = Supervisor(lambda number: slow_to_stop(tmp_path, number), 2, stop_timeout_s=5)
    task = asyncio.create_task(watched.run())
    await until_there(tmp_path, "ready-1", "ready-2")
    await until(lambda: len(watched.pids) == 2)
    pids = watched.pids
    for pid in pids:  # as systemd does with the whole control group
        os.kill(pid, signal.SIGTERM)
    await until_there(tmp_path, "told-1", "told-2")
    watched.request_stop()
    (tmp_path / "go").touch()
    await until_there(tmp_path, "loop-over-1", "loop-over-2")
    for pid in pids:
        os.kill(pid, signal.SIGTERM)  # and amid the end of the interpreter
    (tmp_path / "end").touch()
    await asyncio.wait_for(task, LIMIT_S)
    assert all((tmp_path / name).exists() for name in ("finished-1", "finished-2"))
    assert watched.restarts == 0


async def test_a_second_interrupt_of_the_supervisor_ends_its_workers_at_once(tmp_path: Path) -> None:
    watched = Supervisor(lambda number: slow_to_stop(tmp_path, number), 2, stop_timeout_s=60)
    task = asyncio.create_task(watched.run())
    await until_there(tmp_path, "ready-1", "ready-2")
    watched.request_stop()
    await until_there(tmp_path, "told-1", "told-2")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, LIMIT_S)
    assert watched.pids == []
    assert not (tmp_path / "loop-over-1").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_for_a_person_a_second_signal_stops_at_once(tmp_path: Path, number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(*slow_to_stop(tmp_path, seconds="0"), stderr=asyncio.subprocess.PIPE)
    await until_there(tmp_path, "ready-1")
    process.send_signal(number)
    await until_there(tmp_path, "told-1")
    process.send_signal(number)
    await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode == -number
    assert not (tmp_path / "loop-over-1").exists()


async def test_a_supervised_worker_that_is_signalled_again_later_stops_at_once(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(*slow_to_stop(tmp_path, seconds="0.2"))
    await until_there(tmp_path, "ready-1")
    began_s = time.monotonic()
    async with asyncio.timeout(LIMIT_S):
        while process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(process.pid, signal.SIGTERM)  # send_signal would take the exit code away from asyncio
            await asyncio.sleep(0.01)
    assert process.returncode == -signal.SIGTERM
    assert (tmp_path / "told-1").exists()
    assert time.monotonic() - began_s >= 0.2, "what comes at once is the supervisor's, and no second wish"
