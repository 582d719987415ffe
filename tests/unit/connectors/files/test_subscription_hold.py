"""A followed file whose lines are held: a group begins with the first line not released, whatever was cut meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.plugins import ConnectorContext
from streamad.ports import HoldingSubscription, StoredMessage
from streamad.testing import ManualClock
from streamad_connectors.files.subscription import FileSubscription, FileSubscriptionOptions
from tests.support.waiting import LIMIT_S

CONTEXT = ConnectorContext((), ManualClock())


class Reader:
    """A program that reads ahead with a group; ``done`` has all that it released."""

    def __init__(self, path: Path, *, group: str = "desk") -> None:
        options = FileSubscriptionOptions.model_validate({"group": group, "poll": "1ms", "warn_missing": False})
        self.subscription = FileSubscription(str(path), options, CONTEXT)
        self.subscription.hold()
        self._messages: AsyncIterator[StoredMessage] = self.subscription.messages()
        self.held: list[str] = []
        self.done: list[str] = []

    async def read(self, n: int) -> list[str]:
        async with asyncio.timeout(LIMIT_S):
            found = [json.loads((await anext(self._messages)).value)["message"] for _ in range(n)]
        self.held += found
        return found

    async def read_all(self) -> list[str]:
        self.subscription.end_with_present()
        found = [json.loads(message.value)["message"] async for message in self._messages]
        self.held += found
        return found

    def release(self, n: int) -> None:
        self.subscription.release(n)
        self.done += self.held[:n]
        del self.held[:n]

    async def end(self) -> list[str]:
        """Store the position, forget what is held, and return what was released."""
        await cast("Any", self._messages).aclose()
        await self.subscription.close()
        return self.done


def line_of(text: str, created: int = 0) -> bytes:
    return json.dumps({"type": "event", "kind": "k", "message": text, "created_at": created}).encode() + b"\n"


def append(path: Path, *texts: str, created: int = 0, length: int | None = None) -> int:
    """Cut the file to ``length`` (None: not), append, and return its length."""
    with path.open("ab") as file:
        if length is not None:
            file.truncate(length)
        file.writelines(line_of(text, created) for text in texts)
        return file.tell()


def test_it_is_a_holding_subscription(tmp_path: Path) -> None:
    assert isinstance(Reader(tmp_path / "a.jsonl").subscription, HoldingSubscription)


async def test_what_is_released_while_the_position_is_saved_does_not_come_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, *(str(number) for number in range(40)))
    for number in range(40):
        reader = Reader(path)
        assert await reader.read(1) == [str(number)]
        saving = asyncio.ensure_future(reader.read(1))  # the first save of a reader is due at once
        await asyncio.sleep(number / 10_000)  # into the save, which takes a thread some milliseconds
        reader.release(1)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        await reader.end()


async def test_what_is_not_released_comes_again_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, "a", "b", "c", "d")
    reader = Reader(path)
    assert await reader.read(3) == ["a", "b", "c"]
    reader.release(1)
    assert await reader.end() == ["a"]
    again = Reader(path)
    assert await again.read_all() == ["b", "c", "d"]
    again.release(3)
    await again.end()
    assert await Reader(path).read_all() == []


async def test_a_line_held_while_it_is_cut_off_and_written_again_comes_again_only_if_it_was_not_released(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.jsonl"
    append(path, "a", "b")
    for is_released in (False, True):
        reader = Reader(path, group=f"g{is_released}")
        assert await reader.read(2) == ["a", "b"]
        path.write_bytes(line_of("a"))
        append(path, "b", "c", created=7)
        assert await reader.read(1) == ["c"], "b was yielded already"
        reader.release(2 if is_released else 1)
        await reader.end()
        assert await Reader(path, group=f"g{is_released}").read_all() == (["c"] if is_released else ["b", "c"])


async def test_a_line_held_when_it_was_cut_off_is_not_taken_for_a_repetition_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    start = append(path, "a")
    append(path, "b")
    reader = Reader(path)
    assert await reader.read(2) == ["a", "b"]
    append(path, "x", length=start)
    assert await reader.read(1) == ["x"], "it has seen the cut"
    reader.release(1)
    assert await reader.end() == ["a"]
    append(path, "b", created=7, length=start)
    assert await Reader(path).read_all() == ["b"]


async def test_a_file_that_takes_the_place_of_another_is_read_from_its_first_line_not_released(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, *(f"old {n}" for n in range(50)))
    reader = Reader(path)
    await reader.read(50)
    path.rename(tmp_path / "a.1.jsonl")
    append(path, *(f"new {n}" for n in range(60)))
    assert await reader.read(60) == [f"new {n}" for n in range(60)]
    reader.release(49)
    await reader.end()
    assert await Reader(path).read_all() == [f"new {n}" for n in range(60)]


@pytest.mark.parametrize("n_new", [100, 5_000])
async def test_a_file_that_took_the_place_of_another_while_nobody_read_is_read_from_its_beginning(
    tmp_path: Path, n_new: int
) -> None:
    path = tmp_path / "a.jsonl"
    append(path, *(f"old {n}" for n in range(6_000)))
    reader = Reader(path)
    await reader.read(6_000)
    reader.release(6_000)
    await reader.end()
    path.rename(tmp_path / "moved away")
    texts = [f"a longer text of number {n}" for n in range(n_new)]
    append(path, *texts)
    again = Reader(path)
    assert await again.read_all() == texts
    await again.end()


async def test_a_file_that_was_copied_while_nobody_read_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, *(f"old {n}" for n in range(100)))
    reader = Reader(path)
    await reader.read(60)
    reader.release(60)
    await reader.end()
    (tmp_path / "copy").write_bytes(path.read_bytes())
    (tmp_path / "copy").rename(path)
    again = Reader(path)
    assert await again.read_all() == [f"old {n}" for n in range(60, 100)]
    await again.end()


async def test_more_lines_may_be_held_than_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    texts = [str(n) for n in range(10_000)]
    append(path, *texts)
    reader = Reader(path)
    await reader.read(10_000)
    reader.release(2_000)
    await reader.end()
    again = Reader(path)
    assert await again.read_all() == texts[2_000:]
    await again.end()
    kept = json.loads((tmp_path / "a.jsonl.desk.position").read_bytes())
    assert len(kept["lines"]) == 2_000


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4), st.integers(0, 6), st.booleans()),
        min_size=1,
        max_size=14,
    )
)
def test_every_line_is_released_at_least_once_whatever_is_cut_back_rewritten_and_killed(
    steps: list[tuple[int, int, int, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: of n lines in the end each was released, or comes after the last start."""

    async def run(path: Path) -> None:
        lengths, n_most = [0], 0
        reader, done = Reader(path), []
        for second, (n_new, n_back, n_read, n_released, is_killed) in enumerate(steps):
            keep = max(0, len(lengths) - 1 - n_back)
            append(path, length=lengths[keep])
            del lengths[keep + 1 :]
            lengths += [append(path, str(n), created=second) for n in range(keep, max(n_most, keep + n_new))]
            n_most = max(n_most, len(lengths) - 1)
            known = {*done, *reader.done, *reader.held}
            await reader.read(min(n_read, sum(str(n) not in known for n in range(n_most))))
            reader.release(min(n_released, len(reader.held)))
            if is_killed:
                done += await reader.end()
                reader = Reader(path)
        await reader.read_all()
        done += await reader.end() + reader.held
        assert {*done} == {str(n) for n in range(n_most)}

    asyncio.run(run(tmp_path_factory.mktemp("held") / "a.jsonl"))
