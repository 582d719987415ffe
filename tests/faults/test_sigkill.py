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


@pytest.fixture(scope="module")
def fork_server() -> ForkServerContext:
    return fork_server_context()


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    return write_plant(tmp_path / "plant")


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
    context: ForkServerContext, children: list[ForkServerProcess], folder: Path, step_s: float = 0.002
) -> ForkServerProcess:
    process = context.Process(target=child.monitor, args=(folder, step_s))
    process.start()
    children.append(process)
    return process


def expected_outputs(
    context: ForkServerContext, children: list[ForkServerProcess], folder: Path
) -> dict[str, list[str]]:
    process = start(context, children, folder, step_s=0.0)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    return outputs(folder)


def test_killed_at_random_moments_and_started_again_nothing_is_lost_or_repeated(
    plant: Path, tmp_path: Path, fork_server: ForkServerContext, children: list[ForkServerProcess]
) -> None:
    expected = expected_outputs(fork_server, children, write_plant(tmp_path / "crash-free"))
    assert len(set(expected["verdicts"])) == len(expected["verdicts"]) == 6 * 14
    assert all(len(expected[role]) > 5 for role in ("alerts", "attributions", "dead_letters", "late"))
    rng = random.Random(20)
    killed_after: list[int] = []
    for _ in range(KILLS):
        process = start(fork_server, children, plant)
        wait_for_commits(process, plant, child.commits(plant) + rng.randrange(1, 7))
        time.sleep(rng.random() * 0.008)  # anywhere between two commits
        process.kill()
        process.join(10)
        assert process.exitcode == -signal.SIGKILL, "it was through before it could be killed"
        killed_after.append(child.commits(plant))
    assert len(set(killed_after)) == KILLS, "every life made some progress"
    process = start(fork_server, children, plant, step_s=0.0)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    assert child.commits(plant) > killed_after[-1] + 3, "the last kill landed in the middle of the work, too"
    assert outputs(plant) == expected


def wait_for_commits(process: ForkServerProcess, folder: Path, number: int) -> None:
    deadline = time.monotonic() + 30
    while process.is_alive() and child.commits(folder) < number:
        assert time.monotonic() < deadline, "no commit for 30 s"
        time.sleep(0.0005)


def test_sigterm_ends_in_bounded_time_with_exit_code_0_and_the_next_run_goes_on(
    plant: Path, tmp_path: Path, fork_server: ForkServerContext, children: list[ForkServerProcess]
) -> None:
    expected = expected_outputs(fork_server, children, write_plant(tmp_path / "crash-free"))
    stopped_after: list[int] = []
    for more in (3, 6, 9):  # of some forty: a busy machine commits more at a time
        process = start(fork_server, children, plant)
        wait_for_commits(process, plant, child.commits(plant) + more)
        process.terminate()
        process.join(10)
        assert process.exitcode == 0
        stopped_after.append(child.commits(plant))
    assert len(outputs(plant)["verdicts"]) < len(expected["verdicts"])
    process = start(fork_server, children, plant, step_s=0.0)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    assert outputs(plant) == expected
