"""Following a file of JSON lines: present and new lines, none twice after a restart cuts the file back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad import subscribe
from streamad.errors import SourceError
from streamad.messages import Event, OutputRecord
from streamad.outputs.subscribing import Messages
from streamad.plugins import ConnectorContext, connect_sink
from streamad.ports import DurableSink, Subscription
from streamad.testing import ManualClock
from streamad_connectors.files.subscription import FileSubscription, FileSubscriptionOptions
from tests.support.waiting import LIMIT_S

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTEXT = ConnectorContext((), ManualClock())


def record(text: str, second: int = 0) -> OutputRecord:
    return OutputRecord("events", "s", Event(kind="k", message=text, created_at=NOW + timedelta(microseconds=second)))


class Plant:
    """A sink with its file, or files, cut back and written anew as after a crash."""

    def __init__(self, path: Path, rotate: int | None = None) -> None:
        self.path = path
        sink = connect_sink(str(path), {"rotate": rotate}, CONTEXT)
        assert isinstance(sink, DurableSink)
        self.sink = sink

    async def write(self, *texts: str, second: int = 0) -> None:
        await self.sink.write([record(text, second) for text in texts])
        await self.sink.flush()

    def follow(self, **options: Any) -> Messages[Event]:
        return subscribe(str(self.path), of=Event, options={"poll": "1ms", **options})


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    return Plant(tmp_path / "out" / "events.jsonl")


async def take(messages: Messages[Event], n: int) -> list[str]:
    async with asyncio.timeout(LIMIT_S):
        return [(await anext(messages)).message for _ in range(n)]


async def test_present_messages_come_first_then_new_ones(plant: Plant) -> None:
    await plant.write("a", "b")
    async with plant.follow(start="earliest") as events:
        assert await take(events, 2) == ["a", "b"]
        waiting = asyncio.ensure_future(take(events, 2))
        await plant.write("c")
        await plant.write("d")
        assert await waiting == ["c", "d"]


async def test_without_a_group_it_begins_with_new_messages_and_waits_for_a_file(plant: Plant) -> None:
    for name in ("first", "second"):  # at first there is no file
        async with plant.follow() as events:
            waiting = asyncio.ensure_future(take(events, 1))
            while not waiting.done():
                await plant.write(name)
                await asyncio.sleep(0.01)
            assert await waiting == [name]


async def expect_nothing(events: Messages[Event], for_s: float = 0.1) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(for_s):
            await anext(events)


async def test_half_a_line_waits_for_its_end(plant: Plant) -> None:
    plant.path.parent.mkdir()
    line = b'{"type":"event","kind":"k","message":"whole","created_at":"2026-01-01T00:00:00Z"}\n'
    plant.path.write_bytes(line[:30])
    async with plant.follow(start="earliest") as events:
        await expect_nothing(events)
        with plant.path.open("ab") as file:
            file.write(line[30:])
        assert await take(events, 1) == ["whole"]


async def test_a_line_longer_than_a_chunk_is_read_whole(plant: Plant) -> None:
    await plant.write("x" * 3_000_000, "y")
    async with plant.follow(start="earliest") as events:
        assert await take(events, 2) == ["x" * 3_000_000, "y"]


async def test_a_new_file_in_its_place_is_read_from_its_beginning(plant: Plant, tmp_path: Path) -> None:
    await plant.write("a", "b")
    async with plant.follow(start="earliest") as events:
        assert await take(events, 2) == ["a", "b"]
        other = Plant(tmp_path / "other.jsonl")
        await other.write("a", "c")
        other.path.replace(plant.path)
        assert await take(events, 2) == ["a", "c"]


async def test_a_group_continues_where_it_ended(plant: Plant) -> None:
    await plant.write("a", "b", "c")
    async with plant.follow(group="mailer") as events:
        assert await take(events, 2) == ["a", "b"]
    assert (plant.path.parent / "events.jsonl.mailer.position").exists()
    async with plant.follow(group="mailer") as events:
        assert await take(events, 1) == ["c"]
    async with plant.follow(group="other") as events:
        assert await take(events, 1) == ["a"]


async def test_a_group_repeats_the_message_in_work_after_an_error(plant: Plant) -> None:
    await plant.write("a", "b")

    async def fails() -> None:
        async with plant.follow(group="g") as events:
            await take(events, 2)
            raise RuntimeError("in work")

    with pytest.raises(RuntimeError, match="in work"):
        await fails()
    async with plant.follow(group="g") as events:
        assert await take(events, 1) == ["b"]


async def test_two_readers_with_one_group_are_an_error(plant: Plant) -> None:
    await plant.write("a", "b")
    async with plant.follow(group="g") as events:
        await take(events, 1)
        with pytest.raises(SourceError, match="another program reads with this group"):
            await anext(plant.follow(group="g"))
    async with plant.follow(group="g") as events:  # the lock is free again
        assert await take(events, 1) == ["b"]


async def test_a_damaged_position_is_an_error_that_names_the_remedy(plant: Plant) -> None:
    await plant.write("a")
    (plant.path.parent / "events.jsonl.g.position").write_text("{")
    with pytest.raises(SourceError, match=r"is damaged.*delete it to begin anew"):
        await anext(plant.follow(group="g"))


async def test_a_folder_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read .*: Is a directory"):
        await anext(subscribe(str(tmp_path), start="earliest"))


def test_it_is_a_subscription_and_needs_a_path(tmp_path: Path) -> None:
    assert isinstance(FileSubscription("a.jsonl", FileSubscriptionOptions(), CONTEXT), Subscription)
    with pytest.raises(SourceError, match="needs a path"):
        subscribe("file:")


@pytest.mark.parametrize("of", [(), (str,), (Event, int)])
def test_types_that_are_no_messages_are_refused(of: Any) -> None:
    with pytest.raises(ValueError, match="one or more of Alert, Attribution"):
        subscribe("a.jsonl", of=of)


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), min_size=1, max_size=12),
    grouped=st.booleans(),
    rotate=st.sampled_from([None, 1, 300]),
)
def test_every_message_comes_once_whatever_is_cut_back_and_rewritten(
    steps: list[tuple[int, int, bool]], grouped: bool, rotate: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: with n messages written in the end, a follower has seen 0..n-1, each once and in order."""

    async def run(new_plant: Callable[[], Plant]) -> None:
        plant = new_plant()
        options = {"group": "g"} if grouped else {"start": "earliest"}
        ends = [0]  # the file's length after each message
        n_most = 0
        seen: list[str] = []
        events = plant.follow(**options)
        try:
            for second, (n_new, n_back, is_read) in enumerate(steps):
                keep = max(0, len(ends) - 1 - n_back)
                await plant.sink.truncate(ends[keep])
                del ends[keep + 1 :]
                # As a restarted plant does: at least what was there before comes again.
                for n in range(keep, max(n_most, keep + n_new)):
                    await plant.write(str(n), second=second * 1_000)
                    ends.append(await plant.sink.position())
                n_most = max(n_most, len(ends) - 1)
                if is_read:
                    seen += await take(events, n_most - len(seen))
                    if grouped:
                        await events.__aexit__(None, None, None)
                        events = plant.follow(**options)
            seen += await take(events, n_most - len(seen))
            assert seen == [str(n) for n in range(n_most)]
        finally:
            await events.aclose()
            await plant.sink.close()

    asyncio.run(run(lambda: Plant(tmp_path_factory.mktemp("tail") / "events.jsonl", rotate)))


async def test_a_reader_that_is_cancelled_while_it_saves_its_position_ends_without_an_error(plant: Plant) -> None:
    await plant.write("a")
    place = FileSubscriptionOptions.model_validate({"group": "desk", "poll": "1ms"})
    for _ in range(50):  # where the cancellation hits is chance
        subscription = FileSubscription(str(plant.path), place, CONTEXT)
        started = asyncio.Event()

        async def follow(subscription: FileSubscription = subscription, started: asyncio.Event = started) -> None:
            async for _ in subscription.messages():
                started.set()

        following = asyncio.ensure_future(follow())
        async with asyncio.timeout(LIMIT_S):
            await started.wait()
        await asyncio.sleep(0)
        following.cancel()
        await asyncio.wait([following])
        await subscription.close()
        (plant.path.parent / "events.jsonl.desk.position").unlink()
