"""The manual clock: sleepers wake at their times, in order, and only by ``advance``."""

from __future__ import annotations

import asyncio

import pytest

from streamad.testing import ManualClock


@pytest.mark.parametrize(("advanced_s", "wakes"), [(0.999999, False), (1.0, True), (1.000001, True)])
async def test_a_sleeper_wakes_exactly_at_its_time(advanced_s: float, wakes: bool) -> None:
    clock = ManualClock()
    sleeper = asyncio.ensure_future(clock.sleep(1.0))
    await asyncio.sleep(0)
    clock.advance(advanced_s)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sleeper.done() is wakes
    assert clock.n_sleepers == (not wakes)
    sleeper.cancel()


async def test_sleepers_wake_in_order_and_cancelled_ones_do_not_matter() -> None:
    clock, woken = ManualClock(), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.ensure_future(sleep(name, s)) for name, s in [("b", 2), ("a", 1), ("x", 1.5), ("b2", 2), ("c", 3)]]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.sleep(0)
    assert clock.n_sleepers == 4
    clock.advance(2.5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert woken == ["a", "b", "b2"]
    clock.advance(0.5)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert woken[-1] == "c"


async def test_both_clocks_advance_and_the_wall_clock_can_be_set_back() -> None:
    clock = ManualClock(start_us=10_000_000)
    clock.advance(1.5)
    assert (clock.now_us(), clock.monotonic_us()) == (11_500_000, 1_500_000)
    clock.set_wall(5)
    assert (clock.now_us(), clock.monotonic_us()) == (5, 1_500_000)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    await clock.sleep(0)
    await clock.sleep(-1)
