"""Learning that fails in a way that nobody foresaw begins anew, later each time; time is moved by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamad.learn.live.keeper import Keeper
from tests.support.runtime.pipeline import until
from tests.unit.learn.live.test_learner import Followed, followed


async def fails(at: Followed, times: int) -> str:
    """Return what is told of the failure that comes when more is judged."""
    await at.turn()
    at.judge(5)
    await at.turn()
    await until(lambda: at.kinds().count("learning_failed") == times)
    return [message for kind, message, _ in at.told if kind == "learning_failed"][-1]


async def test_it_begins_anew_after_ten_seconds_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with followed(tmp_path, flush_interval="1s") as at:
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "work", broken)
            assert "for 10 s, then tries again: ZeroDivisionError('a bug'); scoring goes on" in await fails(at, 1)
        at.judge(20)
        await at.turn(9.0)
        assert at.plant.stored("accepted") == set()
        await at.turn(1.5)
        await at.turn()
        await until(lambda: at.counters["default"].accepted + at.counters["default"].reserved == 20)
        await at.turn(2.0)
        await at.turn(2.0)
        assert len(at.plant.stored("accepted") | at.plant.stored("reserve")) == 20
        assert at.kinds().count("learning_failed") == 1


async def test_each_failure_in_a_row_waits_twice_as_long_and_a_late_one_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with followed(tmp_path) as at:
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "work", broken)
            assert "for 10 s" in await fails(at, 1)
            at.clock.advance(10)
            assert "for 20 s" in await fails(at, 2)
        at.clock.advance(20)
        await at.turn(601)
        monkeypatch.setattr(Keeper, "work", broken)
        assert "for 10 s" in await fails(at, 3)


def broken(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("a bug")
