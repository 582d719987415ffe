"""Detached tasks: a cancelled caller interrupts no work, and a wait for several things ends with the first."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from streamad.system.clock import pause
from streamad.system.tasks import finished, look_at, wait_for_either
from streamad.testing import ManualClock


async def failing() -> None:
    raise ValueError("it failed")


async def test_the_result_or_error_of_the_work_comes_through() -> None:
    assert await finished(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ValueError, match="it failed"):
        await finished(failing())


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_takes_effect_when_the_work_has_ended(fails: bool) -> None:
    may_end, ended = asyncio.Event(), []

    async def work() -> None:
        await may_end.wait()
        ended.append(True)
        if fails:
            raise ValueError

    waiting = asyncio.ensure_future(finished(work()))
    await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == [True]


async def test_asyncio_does_not_complain_of_an_error_that_was_looked_at() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    for _ in range(2):
        task = asyncio.ensure_future(failing())
        task.add_done_callback(look_at)
        await asyncio.wait([task])
    cancelled = asyncio.ensure_future(asyncio.Event().wait())
    cancelled.cancel()
    await asyncio.wait([cancelled])
    look_at(cancelled)
    del task, cancelled
    gc.collect()
    assert complaints == []


async def test_a_wait_ends_with_the_event_or_a_future_and_cancels_no_future() -> None:
    event, future = asyncio.Event(), asyncio.get_running_loop().create_future()
    await wait_for_either(event, future, timeout_s=0)
    waiting = asyncio.ensure_future(wait_for_either(event, future))
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    await waiting
    assert not future.done()
    event.clear()
    future.set_result(None)
    await wait_for_either(event, future)


async def test_a_pause_ends_after_its_time_or_with_its_event() -> None:
    clock, woken = ManualClock(), asyncio.Event()
    for end in (lambda: clock.advance(10), woken.set):
        waiting = asyncio.ensure_future(pause(10, clock, woken))
        while not clock.n_sleepers:  # noqa: ASYNC110 - the clock has no event for it
            await asyncio.sleep(0)
        assert not waiting.done()
        end()
        await waiting
    assert clock.n_sleepers == 0
