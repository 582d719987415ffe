"""Content that many ask for at the same time: made once, never older than what the asker could know of."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from streamad.web import shared
from streamad.web.shared import Shared
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import messages_of
from tests.support.web.page import HOST, PageUnderTest


class Made:
    """Counts how often content is made; the content is the state at that time."""

    def __init__(self) -> None:
        self.state = 0
        self.n = 0
        self.fails = False
        self.shared = Shared(self.make, lambda: self.state)

    def make(self) -> int:
        self.n += 1
        if self.fails:
            raise ValueError("odd")
        return self.state


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "APART_S", 0.0)
    monkeypatch.setattr(shared, "FRESH_S", 1e9)


async def test_many_who_ask_at_once_get_what_is_made_once() -> None:
    made = Made()
    assert await asyncio.gather(*(made.shared.get() for _ in range(100))) == [0] * 100
    assert await made.shared.get() == 0
    assert made.n == 1


async def test_after_a_change_nobody_gets_what_was_made_before() -> None:
    made = Made()
    for state in range(1, 20):
        early = asyncio.create_task(made.shared.get())
        for _ in range(state % 5):
            await asyncio.sleep(0)
        made.state = state
        assert await asyncio.gather(*(made.shared.get() for _ in range(3))) == [state] * 3
        assert await early >= state - 1
    assert made.n <= 2 * 19


async def test_it_is_made_at_most_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(shared, "APART_S", 1_000.0)
    monkeypatch.setattr("streamad.web.shared.asyncio.sleep", noted)
    made = Made()
    await made.shared.get()
    made.state = 1
    assert await made.shared.get() == 1
    assert waited[0] == float("-inf")
    assert 900 < waited[1] <= 1_000


async def test_old_content_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "FRESH_S", 0.0)
    made = Made()
    await made.shared.get()
    await made.shared.get()
    assert made.n == 2


async def test_a_failure_is_told_and_the_next_one_tries_again() -> None:
    made = Made()
    made.fails = True
    with pytest.raises(ValueError, match="odd"):
        await made.shared.get()
    made.fails = False
    assert await made.shared.get() == 0


async def test_one_who_goes_away_takes_nothing_from_the_others() -> None:
    made = Made()
    gone, stays = (asyncio.create_task(made.shared.get()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == 0
    assert gone.cancelled()


async def test_pictures_that_are_asked_for_side_by_side_are_drawn_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PageUnderTest(tmp_path, messages_of(1)[:4])
    together = threading.Barrier(2)
    statuses: list[int] = []

    def drawn(*_: object) -> bytes:
        try:
            together.wait(0.05)  # two at a time would meet
            statuses.append(-1)
        except threading.BrokenBarrierError:
            together.reset()
        return b"picture"

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    monkeypatch.setattr("streamad.web.app.has_plots", lambda: True)
    monkeypatch.setattr("streamad.web.app.png", drawn)
    cookie = f"{page.access.cookie_name}={page.access.cookie}".encode()
    path = f"/s/{1:032x}.png"
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http",
        "headers": [(b"host", HOST.encode()), (b"cookie", cookie)], "client": ("127.0.0.1", 1), "server": ("h", 1),
        "http_version": "1.1", "root_path": "", "extensions": {},
    }  # fmt: skip
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(page.application(dict(scope), receive, send) for _ in range(6)))
    assert statuses == [200] * 6
    page.view.close()
