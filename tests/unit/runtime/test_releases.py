"""A dropped partition is let go of once, and not before what was under way for it has ended."""

from __future__ import annotations

import asyncio

from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.takeover import Releases
from tests.support.runtime.pipeline import steps


class Committer(UnsavedCommitter):
    """Says which partitions it let go of, and may be slow at it."""

    def __init__(self) -> None:
        super().__init__({})
        self.released: list[str] = []
        self.may = asyncio.Event()

    async def release(self, partition: str) -> None:
        await self.may.wait()
        self.released.append(partition)


async def stubborn(may_end: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await may_end.wait()


async def test_it_is_let_go_of_when_what_was_under_way_has_ended() -> None:
    committer, may_end = Committer(), asyncio.Event()
    committer.may.set()
    releases, work = Releases(committer), asyncio.create_task(stubborn(may_end))
    await steps()
    releases.begin("p", [work], is_ours=False)
    await steps()
    assert committer.released == []
    may_end.set()
    await releases.done("p")
    assert committer.released == ["p"]
    await steps()
    assert releases.tasks == []


async def test_one_that_stays_ours_is_not_given_up() -> None:
    committer = Committer()
    committer.may.set()
    releases = Releases(committer)
    releases.begin("p", [], is_ours=True)
    await releases.done("p")
    assert committer.released == []


async def test_dropped_again_it_waits_for_the_release_before() -> None:
    committer = Committer()
    releases = Releases(committer)
    releases.begin("p", [], is_ours=False)
    await steps()
    releases.begin("p", [], is_ours=True)
    await steps()
    assert len(releases.tasks) == 1
    assert not releases.tasks[0].done(), "the first one still lets go"
    committer.may.set()
    await releases.done("p")
    assert committer.released == ["p"]


async def test_nothing_to_wait_for_is_done() -> None:
    await Releases(Committer()).done("p")
