from __future__ import annotations

import asyncio

import pytest

from streamad.system.tasks import finished


async def test_what_the_work_returns_or_raises_comes_through() -> None:
    assert await finished(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(TimeoutError):
        await finished(asyncio.wait_for(asyncio.Event().wait(), 0.01))


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_goes_on_when_the_work_has_ended(fails: bool) -> None:
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
