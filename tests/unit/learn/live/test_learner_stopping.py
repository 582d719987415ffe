"""A stop ends in time though the store hangs, and says what was not kept; time is moved by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamad.learn.store import storage as _storage
from tests.support.runtime.pipeline import steps, until
from tests.unit.learn.live.test_learner import Followed, followed

STOP_S = 10  # the default of run.stop_timeout


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is not set, the storage does not answer whoever writes."""
    gate = threading.Event()
    gate.set()
    write = _storage._Folder.write

    def hanging(folder: _storage._Folder, name: str, content: bytes) -> None:
        assert gate.wait(60)
        write(folder, name, content)

    monkeypatch.setattr(_storage._Folder, "write", hanging)
    yield gate
    gate.set()


def told(at: Followed) -> list[str]:
    return [message for kind, message, _ in at.told if kind == "store_failed"]


async def test_what_a_hanging_store_has_not_kept_is_counted_and_told(tmp_path: Path, gate: threading.Event) -> None:
    async with followed(tmp_path, flush_interval="1s") as at:
        at.judge(10)
        await at.turn(2.0)
        await until(lambda: not at.learner._keeper.has_unflushed)
        await at.rest()
        gate.clear()
        at.judge(20)
        at.clock.advance(2.0)
        await until(lambda: not at.learner._inbox)
        at.judge(5)
        at.learners.request_stop()
        at.clock.advance(4.0)
        closing = asyncio.create_task(at.learners.close(wait=True))
        await steps()
        at.clock.advance(STOP_S - 4.1)
        await steps()
        assert not closing.done()
        at.clock.advance(0.2)
        await until(closing.done)
        assert told(at) == [
            "the inlier store has not answered within run.stop_timeout (10 s): 25 sequences are not kept"
        ]
        assert at.counters["default"].unkept == 25
        gate.set()


async def test_the_store_has_a_second_where_the_last_verdicts_took_all_the_time(
    tmp_path: Path, gate: threading.Event
) -> None:
    async with followed(tmp_path, flush_interval="1h") as at:
        at.judge(3)
        await at.turn()
        gate.clear()
        at.learners.request_stop()
        at.clock.advance(STOP_S + 5)
        closing = asyncio.create_task(at.learners.close(wait=True))
        await steps()
        at.clock.advance(0.9)
        await steps()
        assert not closing.done()
        gate.set()
        await until(closing.done)
        assert told(at) == []
        assert len(at.plant.stored("accepted") | at.plant.stored("reserve")) == 3
