"""Real processes killed at random moments and started again: the outputs hold every message once."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from tests.support.forks import fork_server_context, forked
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


Start = Callable[..., ForkServerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts children, which are ended at the end."""
    with forked(fork_server_context()) as start:
        yield start


def run_to_the_end(start: Start, folder: Path) -> Path:
    process = start(child.monitor, folder, 0.0)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    return folder


def test_killed_at_random_moments_and_started_again_nothing_is_lost_or_repeated(tmp_path: Path, start: Start) -> None:
    plant = write_plant(tmp_path / "plant")
    expected = outputs(run_to_the_end(start, write_plant(tmp_path / "crash-free")))
    assert len(set(expected["verdicts"])) == len(expected["verdicts"]) == 6 * 14
    assert all(len(expected[role]) > 5 for role in ("alerts", "attributions", "dead_letters", "late"))
    rng = random.Random(20)
    killed_after: list[int] = []
    for _ in range(KILLS):
        process = start(child.monitor, plant)
        wait_for_commits(process, plant, child.commits(plant) + rng.randrange(1, 7))
        time.sleep(rng.random() * 0.008)  # anywhere between two commits
        process.kill()
        process.join(10)
        assert process.exitcode == -signal.SIGKILL, "it was through before it could be killed"
        killed_after.append(child.commits(plant))
    assert len(set(killed_after)) == KILLS, "every life made some progress"
    run_to_the_end(start, plant)
    assert child.commits(plant) > killed_after[-1] + 3, "the last kill landed in the middle of the work, too"
    assert outputs(plant) == expected


def wait_for_commits(process: ForkServerProcess, folder: Path, number: int) -> None:
    deadline = time.monotonic() + 30
    while process.is_alive() and child.commits(folder) < number:
        assert time.monotonic() < deadline, "no commit for 30 s"
        time.sleep(0.0005)
