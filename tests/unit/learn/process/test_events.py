"""The learner's events reach their place whole and at least once, whatever fails or is killed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamad.learn.process.events import LearnerEvents
from streamad.plant import Plant
from streamad.system.clock import SystemClock
from tests.support.learning.store import LearningPlant
from tests.support.waiting import LIMIT_S

ENDLESS = """
import asyncio, sys
from pathlib import Path
from tests.unit.learn.process.test_events import plant_in
from streamad.learn.process.events import LearnerEvents

async def main():
    async with LearnerEvents(plant_in(Path(sys.argv[1])), lambda event: None) as events:
        number = int(sys.argv[2])
        while True:
            for number in range(number, number + 40):
                events.emit("drift", f"{number} " + "x" * 9_000)
            await events._write()
            number += 1
            print(number, flush=True)

asyncio.run(main())
"""


def plant_in(folder: Path, events: str = "out/events.jsonl") -> Plant:
    return LearningPlant(folder, learning={"process": "elsewhere", "store": "inliers"}, sinks={"events": events}).plant


def written(folder: Path) -> list[str]:
    return [json.loads(line)["message"] for line in (folder / "inliers.events.jsonl").read_bytes().splitlines()]


async def test_events_are_in_the_file_beside_the_store_and_none_goes_to_the_workers(tmp_path: Path) -> None:
    async with LearnerEvents(plant_in(tmp_path), lambda _: None) as events:
        events.emit("drift", "one")
        events.emit("drift", "two")
    assert written(tmp_path) == ["one", "two"]
    assert not (tmp_path / "out").exists()


async def test_a_torn_line_is_cut_off_at_the_next_start(tmp_path: Path) -> None:
    async with LearnerEvents(plant_in(tmp_path), lambda _: None) as events:
        events.emit("drift", "one")
    with (tmp_path / "inliers.events.jsonl").open("ab") as file:
        file.write(b'{"type":"event","mess')
    async with LearnerEvents(plant_in(tmp_path), lambda _: None) as events:
        events.emit("drift", "two")
    assert written(tmp_path) == ["one", "two"]


class Steps(SystemClock):
    """Each sleep ends with the next ``step``."""

    def __init__(self) -> None:
        self._steps = asyncio.Semaphore(0)
        self._begun = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self._begun.release()
        await self._steps.acquire()

    async def step(self) -> None:
        """Return once a write has followed on a sleep."""
        await self._begun.acquire()
        self._steps.release()
        await self._begun.acquire()
        self._begun.release()


async def test_what_could_not_be_written_is_written_later_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Steps()
    plant = dataclasses.replace(plant_in(tmp_path), clock=clock)
    place = tmp_path / "inliers.events.jsonl"
    async with LearnerEvents(plant, lambda _: None) as events:
        place.mkdir()
        events.emit("drift", "one")
        await clock.step()
        events.emit("drift", "two")
        await clock.step()
        place.rmdir()
        await clock.step()
        assert written(tmp_path) == ["one", "two"]
        place.unlink()
        events.emit("drift", "three")
        await clock.step()
        await clock.step()
        assert written(tmp_path) == ["three"]
    assert "".join(capsys.readouterr()).count("not written yet") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
def test_killed_amid_writes_every_line_is_whole_and_nothing_that_was_flushed_is_lost(tmp_path: Path) -> None:
    rng, number, n_dead = random.Random(3), 0, 0
    for _ in range(5):
        command = [sys.executable, "-c", ENDLESS, str(tmp_path), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as life:
            assert life.stdout is not None
            flushed = int(life.stdout.readline())
            time.sleep(rng.random() * 0.2)  # whatever it writes then
            life.kill()
            rest = life.stdout.read().split(b"\n")[:-1]
            flushed = int(rest[-1]) if rest else flushed
            n_dead += life.wait(LIMIT_S) == -signal.SIGKILL
        number = flushed
        asyncio.run(opened_and_closed(tmp_path))
        found = [int(message.partition(" ")[0]) for message in written(tmp_path)]
        assert set(range(flushed)) <= set(found)
        assert len(found) == len((tmp_path / "inliers.events.jsonl").read_bytes().split(b"\n")) - 1
    assert n_dead == 5


async def opened_and_closed(folder: Path) -> None:
    """Start and end a learner's events, which leaves whole lines only."""
    async with LearnerEvents(plant_in(folder), lambda _: None):
        pass
