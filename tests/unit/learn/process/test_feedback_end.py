"""What lies in the place of feedback when the input ends has its mark or is counted; no file there hangs a worker."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamad.errors import StoreError
from streamad.learn.process.feedback_reader import FeedbackReader, Unread
from streamad.messages import Feedback, Request
from streamad.outputs.marks.place import MAX_MESSAGE_BYTES
from streamad.outputs.reader import Received, Unreadable
from streamad.plant import Plant
from streamad.system.tasks import wait_for_either
from streamad.testing import ManualClock
from tests.support.learning.plant import settings_of
from tests.support.waiting import LIMIT_S, returned

NOW_US = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 1_000_000
PATIENCE_S = 10.0


class CountingReader(FeedbackReader):
    """Tells its desk of each message that it has read."""

    def __init__(self, desk: Desk, take: Callable[[Feedback | Request, str | None], Awaitable[None]]) -> None:
        super().__init__(desk.plant, take, lambda kind, text: desk.told.append((kind, text)))
        self._desk = desk

    async def take(self, received: Received[Feedback | Request]) -> None:
        await super().take(received)
        self._desk.has_read()

    def skip(self, unreadable: Unreadable) -> None:
        super().skip(unreadable)
        self._desk.has_read()


class Desk:
    """A place of feedback with ``n`` messages, and what its reader did with them."""

    def __init__(self, folder: Path, n: int = 0) -> None:
        self.path = folder / "feedback.jsonl"
        self.clock = ManualClock(NOW_US)
        self.settings = settings_of(learning={"feedback": "file:feedback.jsonl?poll=1ms"})
        self.plant = Plant(self.settings, folder, self.clock)
        self.taken: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.stop = asyncio.Event()
        self._n_awaited = 0
        self._has_read = asyncio.Event()
        if n:
            self.path.write_bytes(b"".join(line(number) for number in range(n)))

    async def take(self, feedback: Feedback | Request, sender: str | None) -> None:
        assert isinstance(feedback, Feedback)
        self.taken.append(feedback.alert_id)

    def reads(self, n: int) -> asyncio.Event:
        """Return the event that ``n`` more messages were read, malformed ones included."""
        self._n_awaited = n
        self._has_read.clear()
        return self._has_read

    def has_read(self) -> None:
        self._n_awaited -= 1
        if self._n_awaited == 0:
            self._has_read.set()

    @asynccontextmanager
    async def reader(
        self, take: Callable[[Feedback | Request, str | None], Awaitable[None]] | None = None
    ) -> AsyncIterator[FeedbackReader]:
        reader = CountingReader(self, take or self.take)
        task = asyncio.create_task(reader.run())
        try:
            async with asyncio.timeout(LIMIT_S):
                yield reader
        finally:
            await reader.close()
            await task

    async def sleeps(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not self.clock.n_sleepers:  # noqa: ASYNC110 - the clock tells nobody
                await asyncio.sleep(0)


def line(number: int) -> bytes:
    feedback = {"alert_id": f"a{number}", "judgement": "veto", "created_at": "2026-02-01T00:00:00Z"}
    return json.dumps(feedback).encode() + b"\n"


def ids(n: int) -> list[str]:
    return [f"a{number}" for number in range(n)]


@pytest.mark.parametrize("n_turns", [0, 1, 2, 4, 11, 101])
async def test_what_waits_is_taken_however_far_reading_was(tmp_path: Path, n_turns: int) -> None:
    """Without a turn the end comes before ``run`` has begun, as with a learner that finds no windows."""
    desk = Desk(tmp_path, 102)
    async with desk.reader() as reader:
        for _ in range(n_turns):
            await asyncio.sleep(0)
        assert await reader.read_present(desk.stop, PATIENCE_S) is None
    assert desk.taken == ids(102)
    assert desk.told == []


async def test_without_a_file_nothing_is_left(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with desk.reader() as reader:
        await asyncio.sleep(0)
        assert await reader.read_present(desk.stop, PATIENCE_S) is None


async def test_a_store_that_fails_is_not_waited_for_and_the_rest_is_counted(tmp_path: Path) -> None:
    desk = Desk(tmp_path, 10)

    async def fails_later(feedback: Feedback | Request, sender: str | None) -> None:
        if len(desk.taken) == 4:
            raise StoreError("the disk is full")
        await desk.take(feedback, sender)

    async with desk.reader(fails_later) as reader:
        await desk.sleeps()  # before it tries again
        assert await reader.read_present(desk.stop, PATIENCE_S) == Unread(6, "the disk is full")
    assert desk.taken == ids(4)
    assert [kind for kind, _ in desk.told] == ["feedback_waits"]
    async with desk.reader() as reader:
        await asyncio.sleep(0)
        assert await reader.read_present(asyncio.Event(), PATIENCE_S) is None
    assert desk.taken == ids(10)


async def test_a_stop_leaves_the_rest_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, 10)

    async def stopped(feedback: Feedback | Request, sender: str | None) -> None:
        if len(desk.taken) == 3:
            desk.stop.set()
            await asyncio.Event().wait()
        await desk.take(feedback, sender)

    async with desk.reader(stopped) as reader:
        await asyncio.sleep(0)
        assert await reader.read_present(desk.stop, PATIENCE_S) == Unread(7, "the run was stopped")


async def test_a_store_that_does_not_answer_is_given_up_after_some_time_without_a_mark(tmp_path: Path) -> None:
    desk = Desk(tmp_path, 10)
    hangs = asyncio.Event()

    async def hang(feedback: Feedback | Request, sender: str | None) -> None:
        if len(desk.taken) == 3:
            hangs.set()
            await asyncio.Event().wait()
        await desk.take(feedback, sender)

    async with desk.reader(hang) as reader:
        left = asyncio.ensure_future(reader.read_present(desk.stop, PATIENCE_S))
        await hangs.wait()
        while not left.done():
            desk.clock.advance(PATIENCE_S)
            await asyncio.sleep(0.001)
        assert await left == Unread(7, "no message was done for 10 s")


async def test_malformed_lines_are_given_up_after_some_time_without_a_mark(tmp_path: Path) -> None:
    """Each counted as a message that was done: a file of line ends kept a run from its end for minutes per MB."""
    desk = Desk(tmp_path, 1)
    with desk.path.open("ab") as file:
        file.write(b"\n" * 20_000)
    async with desk.reader() as reader:
        left = asyncio.ensure_future(reader.read_present(desk.stop, PATIENCE_S))
        while not left.done():
            await wait_for_either(desk.reads(1_000), left)
            desk.clock.advance(PATIENCE_S)
        unread = await left
    assert unread is not None
    assert unread.why == "no message was done for 10 s"
    assert desk.taken == ids(1)


async def test_a_place_that_cannot_be_read_is_tried_once_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path, 5)
    position = tmp_path / "feedback.jsonl.streamad.plant.feedback.position"
    position.write_text("damaged")
    async with desk.reader() as reader:
        await desk.sleeps()
        left = await reader.read_present(desk.stop, PATIENCE_S)
        assert left is not None
        assert left.n_messages is None
        assert "is damaged" in left.why
    async with desk.reader() as reader:
        await desk.sleeps()
        position.unlink()
        assert await reader.read_present(desk.stop, PATIENCE_S) is None
    assert desk.taken == ids(5)


# --- what may lie in the place ---


async def test_malformed_messages_are_told_once_and_hold_nothing_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path, 1)
    with desk.path.open("ab") as file:
        file.write(b"{}\nno json\n\n" + line(1))
    async with desk.reader() as reader:
        await asyncio.sleep(0)
        assert await reader.read_present(desk.stop, PATIENCE_S) is None
    assert desk.taken == ids(2)
    assert [kind for kind, _ in desk.told] == ["feedback_malformed"]


async def test_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.path.mkdir()
    async with desk.reader():
        await desk.sleeps()
    ((_, text),) = desk.told
    assert text.endswith(f"cannot read {desk.path}: Is a directory; it is a folder: name a file in it")


def test_a_fifo_is_one_event_and_the_end_does_not_wait_for_it(tmp_path: Path) -> None:
    async def run() -> list[tuple[str, str]]:
        desk = Desk(tmp_path)
        os.mkfifo(desk.path)
        async with desk.reader():
            await desk.sleeps()
        return desk.told

    ((kind, text),) = returned(lambda: asyncio.run(run()))
    assert kind == "feedback_unreadable"
    assert "not a regular file (a FIFO, socket or device); name a regular file" in text


async def test_a_long_line_is_one_malformed_message_and_those_after_it_count(tmp_path: Path) -> None:
    desk = Desk(tmp_path, 1)
    with desk.path.open("ab") as file:
        file.write(b"[" + b"0," * MAX_MESSAGE_BYTES + b"0]\n" + line(1))
    async with desk.reader() as reader:
        await asyncio.sleep(0)
        assert await reader.read_present(desk.stop, PATIENCE_S) is None
    assert desk.taken == ids(2)
    ((kind, text),) = desk.told
    assert kind == "feedback_malformed"
    assert "byte 78: no feedback message, skipped: a line longer than max_record_bytes (1048576 bytes)" in text
