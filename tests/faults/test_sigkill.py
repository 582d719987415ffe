"""Real processes killed at random moments and started again: the outputs hold every message once."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from streamad.types import from_us
from tests.support.forks import fork_server_context, forked
from tests.support.runtime import child
from tests.support.runtime.pipeline import START_US, messy_recordings, outputs
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")

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
    process = start(child.monitor, folder)
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
        process = start(child.monitor, plant, to_be_killed=True)
        wait_for_commits(process, plant, child.commits(plant) + rng.randrange(1, 7))
        time.sleep(rng.random() * 0.008)  # anywhere between two commits
        process.kill()
        process.join(LIMIT_S)
        assert process.exitcode == -signal.SIGKILL
        killed_after.append(child.commits(plant))
    assert len(set(killed_after)) == KILLS, "every life made some progress"
    assert len(outputs(plant)["verdicts"]) < 6 * 14, "the last kill landed in the middle of the work, too"
    run_to_the_end(start, plant)
    assert outputs(plant) == expected


def messages(folder: Path, role: str, kind: str) -> list[dict[str, Any]]:
    """The messages of a kind, without what depends on the wall clock."""
    return [found for found in map(json.loads, outputs(folder)[role]) if found["type"] == kind]


def test_killed_while_it_looks_no_warning_is_lost_or_repeated(tmp_path: Path, start: Start) -> None:
    plant, undisturbed = write_plant(tmp_path / "plant"), write_plant(tmp_path / "crash-free")
    process = start(child.monitor_looking, undisturbed)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    expected = {each["warning_id"]: each for each in messages(undisturbed, "alerts", "warning")}
    assert len(expected) > 5
    rng, n_early = random.Random(22), 0
    for _ in range(KILLS):
        process = start(child.monitor_looking, plant, to_be_killed=True)
        wait_for_commits(process, plant, child.commits(plant) + rng.randrange(1, 7))
        time.sleep(rng.random() * 0.008)
        process.kill()
        process.join(10)
        assert process.exitcode == -signal.SIGKILL
        judged = {(each["stream"], each["sequence"]) for each in messages(plant, "verdicts", "verdict")}
        warned = [(each["stream"], each["sequence"]) for each in messages(plant, "alerts", "warning")]
        n_early += any(each not in judged for each in warned)
    process = start(child.monitor_looking, plant)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    warnings = messages(plant, "alerts", "warning")
    assert n_early > 0, "some sequences ran when their warning was committed"
    assert len(warnings) == len(expected), "none came twice"
    assert {each["warning_id"]: each for each in warnings} == expected
    assert outputs(plant)["verdicts"] == outputs(undisturbed)["verdicts"]


def write_table(folder: Path, n_rows: int) -> None:
    """Write a table with the first ``n_rows`` batches of each stream: 4 of every 5 seconds."""
    starts_us = [START_US + 5_000_000 * number for number in range(n_rows)]
    rows = [
        f"{stream},{stream}-{number},{from_us(start_us).isoformat()},{from_us(start_us + 4_000_000).isoformat()}"
        for number, start_us in enumerate(starts_us)
        for stream in "abcdef"
    ]
    (folder / "batches.csv").write_text("\n".join(["stream,id,begin,end", *rows]) + "\n")


def test_killed_while_a_table_grows_nothing_is_lost_or_repeated(tmp_path: Path, start: Start) -> None:
    plant, undisturbed = write_plant(tmp_path / "plant"), write_plant(tmp_path / "crash-free")
    write_table(undisturbed, 40)
    process = start(child.monitor_by_table, undisturbed)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    expected = outputs(undisturbed)
    assert len(set(expected["verdicts"])) == len(expected["verdicts"]) > 100
    assert all(len(expected[role]) > 5 for role in ("alerts", "attributions", "late"))
    rng = random.Random(21)
    for n_rows in (0, 1, 3, 5, 8, 10, 13, 16, 40, 40, 40):
        write_table(plant, n_rows)
        process = start(child.monitor_by_table, plant, to_be_killed=True)
        wait_for_commits(process, plant, child.commits(plant) + rng.randrange(1, 7))
        time.sleep(rng.random() * 0.008)
        process.kill()
        process.join(LIMIT_S)
    process = start(child.monitor_by_table, plant)
    process.join(LIMIT_S)
    assert process.exitcode == 0
    found = outputs(plant)
    assert {role: sorted(lines) for role, lines in found.items()} == {
        role: sorted(lines) for role, lines in expected.items()
    }


def wait_for_commits(process: ForkServerProcess, folder: Path, number: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while process.is_alive() and child.commits(folder) < number:
        assert time.monotonic() < deadline, "no commit for 30 s"
        time.sleep(0.0005)
