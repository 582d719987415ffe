"""A promotion is told where the plant says so, and any message there wakes a worker, whatever it says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamad.learn.feedback.control import Announcer, ControlReader, announce
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.testing import ManualClock
from tests.support.learning.plant import settings_of

WAIT_S = 20
PLANT = settings_of(learning={"control": "file:control.jsonl?poll=1ms"})
MODEL = ModelRef("default", "0007")


class Worker:
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.n_woken = 0
        self.told: list[tuple[str, str]] = []

    def wake(self) -> None:
        self.n_woken += 1

    def emit(self, kind: str, message: str) -> None:
        self.told.append((kind, message))


@asynccontextmanager
async def reading(worker: Worker, plant: Plant) -> AsyncIterator[None]:
    reader = ControlReader(plant, worker.wake, worker.emit)
    task = asyncio.create_task(reader.run())
    try:
        yield
    finally:
        await reader.close()
        await reader.close()
        await task


@pytest.mark.parametrize("settings", [settings_of(), settings_of(learning={})])
async def test_without_a_control_url_nothing_is_sent_or_read(tmp_path: Path, settings: Settings) -> None:
    plant = Plant(settings, tmp_path, ManualClock())
    assert await announce(plant, MODEL) is False
    async with asyncio.timeout(WAIT_S):
        await ControlReader(plant, Worker().wake, Worker().emit).run()


async def test_the_message_names_model_and_version(tmp_path: Path) -> None:
    plant = Plant(PLANT, tmp_path, ManualClock())
    assert await announce(plant, MODEL) is True
    (line,) = (tmp_path / "control.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "type": "promotion",
        "model": "default",
        "version": "0007",
        "created_at": "2026-01-01T00:00:00Z",
        "schema_version": 2,
    }


async def test_a_worker_announces_while_it_works_and_survives_an_unreachable_control_url(tmp_path: Path) -> None:
    plant = Plant(PLANT, tmp_path, ManualClock())
    worker = Worker()
    announcer = Announcer(plant, worker.emit)
    for version in ("0001", "0002"):
        announcer.announce(ModelRef("default", version))
    await announcer.close()
    lines = (tmp_path / "control.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["version"] for line in lines) == ["0001", "0002"]
    assert not worker.told
    (tmp_path / "control.jsonl").unlink()
    (tmp_path / "control.jsonl").mkdir()
    announcer.announce(MODEL)
    await announcer.close()
    ((kind, text),) = worker.told
    assert kind == "control_unwritable"
    assert "default 0007 could not be announced, other workers find it by polling" in text


async def test_each_worker_is_woken_by_what_comes_from_now_on_even_if_it_is_forged(tmp_path: Path) -> None:
    plant = Plant(PLANT, tmp_path, ManualClock())
    path = tmp_path / "control.jsonl"
    path.write_bytes(b"{}\n" * 100)
    workers = [Worker(), Worker()]
    n_sent = 0
    async with reading(workers[0], plant), reading(workers[1], plant), asyncio.timeout(WAIT_S):
        while not all(worker.n_woken for worker in workers):
            with path.open("ab") as file:
                file.write(b'{"model": "../..", "version": \xff\n')
            n_sent += 1
            await asyncio.sleep(0.001)  # files are read in threads, which a busy loop would starve
    assert all(0 < worker.n_woken <= n_sent for worker in workers)
    assert not any(worker.told for worker in workers)
