"""A followed log, written, rotated, read again and killed at any moment: every message once, as if read whole."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from streamad.runtime.pipeline import Pipeline
from streamad.types import FILE_OFFSETS
from tests.support.follow import append, rotate
from tests.support.forks import fork_server_context, forked
from tests.support.runtime import child
from tests.support.runtime.pipeline import line, messy_recordings, outputs, settings_of, until
from tests.support.runtime.recordings import committed, run_recordings, write_recording
from tests.support.waiting import LIMIT_S


class Log:
    """A log of some messages in some generations, written piece by piece."""

    def __init__(self, path: Path, generations: Sequence[Sequence[bytes]]) -> None:
        self.path = path
        self.generations = [b"".join(message + b"\n" for message in messages) for messages in generations]
        self._left = list(self.generations)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    @property
    def is_written(self) -> bool:
        return not any(self._left)

    @property
    def end(self) -> int:
        """The offset after all."""
        return (len(self.generations) - 1) * FILE_OFFSETS + len(self.generations[-1])

    def write(self, n_bytes: int) -> None:
        """Append so many bytes; where a generation ends, rotate."""
        while n_bytes > 0 and self._left:
            piece, self._left[0] = self._left[0][:n_bytes], self._left[0][n_bytes:]
            append(self.path, piece)
            n_bytes -= len(piece)
            if self._left[0] or len(self._left) == 1:
                return
            del self._left[0]
            rotate(self.path)


def generations(seed: int) -> list[list[bytes]]:
    """Messages of three streams with all kinds of trouble, cut into four files wherever it happens."""
    messages = messy_recordings(seed, streams=["a", "b", "c"], sequences=14)
    rng = random.Random(seed)
    cuts = [0, *sorted(rng.sample(range(1, len(messages)), 3)), len(messages)]
    return [messages[begin:end] for begin, end in pairwise(cuts)]


def same_names(folder: Path) -> dict[str, list[str]]:
    """The outputs without what differs: the partition's name, and the wall clock in a reason."""

    def same(line: str) -> str:
        return re.sub(r"is \S+ s ahead", "is ahead", line.replace("in/app.jsonl", "in/*.jsonl"))

    return {role: [same(line) for line in lines] for role, lines in outputs(folder).items()}


async def finished_at_once(folder: Path, messages: Sequence[Sequence[bytes]]) -> dict[str, list[str]]:
    """The outputs of the same generations, each finished before it is read."""
    for number, part in enumerate(messages):
        Log(folder / "in" / f"{number}.jsonl", [part]).write(10**9)
    await run_recordings(folder, settings=child.FOLLOWING, files="joined")
    return same_names(folder)


@pytest.mark.parametrize("seed", range(4))
async def test_restarts_at_any_moment_change_no_output(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    messages = generations(seed)
    expected = await finished_at_once(tmp_path / "at-once", messages)
    folder = tmp_path / "followed"
    log = Log(folder / "in" / "app.jsonl", messages)
    log.write(300)
    n_runs = 0

    async def act(_: Pipeline) -> None:
        before = committed(folder)
        for _ in range(rng.randrange(1, 4)):
            log.write(rng.randrange(1, 800))
            await asyncio.sleep(0)
        if log.is_written:
            await until(lambda: committed(folder) == log.end)
        elif rng.random() < 0.7:
            await until(lambda: committed(folder) > before)

    while committed(folder) < log.end:
        await run_recordings(
            folder, "in/app.jsonl", child.FOLLOWING, while_running=act, follow=True, follow_interval="1ms"
        )
        log.write(rng.randrange(600))  # also while nobody reads
        n_runs += 1
    assert n_runs > 5
    assert same_names(folder) == expected
    assert all(len(expected[role]) > 5 for role in ("verdicts", "alerts", "dead_letters"))


async def test_silence_ends_a_sequence_by_the_wall_clock_once(tmp_path: Path) -> None:
    """As with Kafka: on the clock of the pipeline, while its source says that nothing waits."""
    settings = settings_of(sequences={"end": ["gap"], "gap": "50ms"}, run={"commit_interval": "1ms"})
    log = tmp_path / "in" / "app.jsonl"
    write_recording(log, [line("a", None, [n / 100]) for n in range(3)])

    async def silent(_: Pipeline) -> None:
        await until(lambda: read_verdicts() == [("gap", 3)])

    async def broken(_: Pipeline) -> None:
        append(log, line("a", None, [10.0]) + b"\n")
        await until(lambda: read_verdicts() == [("gap", 3), ("gap", 1)])

    def read_verdicts() -> list[tuple[str, int]]:
        found = tmp_path / "out" / "verdicts.jsonl"
        messages = [json.loads(text) for text in found.read_text().splitlines()] if found.exists() else []
        return [(message["reason"], message["n_samples"]) for message in messages]

    for act in (silent, silent, broken):
        await run_recordings(tmp_path, "in/app.jsonl", settings, while_running=act, follow=True, follow_interval="1ms")
    assert read_verdicts() == [("gap", 3), ("gap", 1)]


# --- killed ----------------------------------------------------------------------------------------------------------

Start = Callable[..., ForkServerProcess]
KILLS = 16


@pytest.fixture
def start() -> Iterator[Start]:
    with forked(fork_server_context()) as start:
        yield start


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")
def test_killed_while_the_log_grows_and_rotates_nothing_is_lost_or_repeated(tmp_path: Path, start: Start) -> None:
    messages = generations(7)
    expected = asyncio.run(finished_at_once(tmp_path / "at-once", messages))
    folder, rng = tmp_path / "followed", random.Random(7)
    log = Log(folder / "in" / "app.jsonl", messages)
    per_kill = sum(map(len, log.generations)) // (KILLS + 1)
    log.write(50)
    killed_after: list[int] = []
    for _ in range(KILLS):
        process = start(child.follow, folder)
        wanted = child.commits(folder) + rng.randrange(1, 5)
        left = per_kill
        while child.commits(folder) < wanted and left > 0:
            piece = rng.randrange(1, 200)
            log.write(piece)
            left -= piece
            commits_or_little_time(process, folder, child.commits(folder) + 1)
        time.sleep(rng.random() * 0.008)  # anywhere between two commits
        process.kill()
        process.join(LIMIT_S)
        assert process.exitcode == -signal.SIGKILL
        killed_after.append(child.commits(folder))
        log.write(left)  # also while nobody reads
    assert len(set(killed_after)) > KILLS // 2, "most lives made some progress"
    process = start(child.follow, folder)
    log.write(10**9)
    deadline_s = time.monotonic() + LIMIT_S
    while committed(folder) < log.end and process.is_alive() and time.monotonic() < deadline_s:
        time.sleep(0.0005)
    process.terminate()
    process.join(LIMIT_S)
    assert process.exitcode == 0
    assert same_names(folder) == expected


def commits_or_little_time(process: ForkServerProcess, folder: Path, number: int) -> None:
    """Return at the next commit; what was written may also hold no whole line, so not much later either."""
    deadline_s = time.monotonic() + 0.3
    while process.is_alive() and child.commits(folder) < number and time.monotonic() < deadline_s:
        time.sleep(0.0005)
