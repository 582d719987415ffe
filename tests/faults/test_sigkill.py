"""Real processes killed at random moments and started again: the outputs hold every message once."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from tests.support.forks import fork_server_context
from tests.support.runtime import child
from tests.support.runtime.pipeline import messy_recordings, outputs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")

LIMIT_S = 60.0
KILLS = 24


def write_plant(folder: Path) -> Path:
    (folder / "recordings").mkdir(parents=True)
    for number, streams in enumerate([["a", "b", "c"], ["d"], ["e", "f"]]):
        messages = messy_recordings(number, streams=streams, sequences=14)
        (folder / "recordings" / f"{number}.jsonl").write_bytes(b"".join(message + b"\n" for message in messages))
    return folder


@pytest.fixture
def children() -> Iterator[list[ForkServerProcess]]:
    """Children that a failing test leaves behind are ended, each by its id."""
    started: list[ForkServerProcess] = []
    yield started
    for process in started:
        if process.is_alive():
            process.kill()
        process.join(10)
        process.close()


def start(
    context: ForkServerContext, children: list[ForkServerProcess], folder: Path, step_s: float
) -> ForkServerProcess:
    process = context.Process(target=child.monitor, args=(folder, step_s))
    process.start()
    children.append(process)
    return process


def run_to_the_end(context: ForkServerContext, children: list[ForkServerProcess], folder: Path) -> Path:
    process = start(context, children, folder, step_s=0.0)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    return folder


def test_killed_at_random_moments_and_started_again_nothing_is_lost_or_repeated(
    tmp_path: Path, children: list[ForkServerProcess]
) -> None:
    fork_server, plant = fork_server_context(), write_plant(tmp_path / "plant")
    expected = outputs(run_to_the_end(fork_server, children, write_plant(tmp_path / "crash-free")))
    assert len(set(expected["verdicts"])) == len(expected["verdicts"]) == 6 * 14
    assert all(len(expected[role]) > 5 for role in ("alerts", "attributions", "dead_letters", "late"))
    rng = random.Random(20)
    killed_after: list[int] = []
    for _ in range(KILLS):
        process = start(fork_server, children, plant, step_s=0.002)
        wait_for_commits(process, plant, child.commits(plant) + rng.randrange(1, 7))
        time.sleep(rng.random() * 0.008)  # anywhere between two commits
        process.kill()
        process.join(10)
        assert process.exitcode == -signal.SIGKILL, "it was through before it could be killed"
        killed_after.append(child.commits(plant))
    assert len(set(killed_after)) == KILLS, "every life made some progress"
    run_to_the_end(fork_server, children, plant)
    assert child.commits(plant) > killed_after[-1] + 3, "the last kill landed in the middle of the work, too"
    assert outputs(plant) == expected


def wait_for_commits(process: ForkServerProcess, folder: Path, number: int) -> None:
    deadline = time.monotonic() + 30
    while process.is_alive() and child.commits(folder) < number:
        assert time.monotonic() < deadline, "no commit for 30 s"
        time.sleep(0.0005)
