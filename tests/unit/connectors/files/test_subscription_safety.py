"""Whoever may write the followed file, or beside it, cannot hang its reader, fill its memory or move its writes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import stat
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.ports import EndingSubscription, StoredMessage
from streamad.testing import ManualClock
from streamad_connectors.files import subscription as subscription_module
from streamad_connectors.files.subscription import FileSubscription, FileSubscriptionOptions
from tests.support.waiting import LIMIT_S, returned

CONTEXT = ConnectorContext((), ManualClock())
LIMIT = 1_000


def follow(path: Path, **options: Any) -> FileSubscription:
    given = {"poll": "1ms", "start": "earliest", "max_record_bytes": LIMIT, **options}
    return FileSubscription(str(path), FileSubscriptionOptions.model_validate(given), CONTEXT)


@asynccontextmanager
async def messages_of(subscription: FileSubscription) -> AsyncIterator[AsyncIterator[StoredMessage]]:
    messages = subscription.messages()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield messages
    finally:
        await messages.aclose()  # type: ignore[attr-defined]
        await subscription.close()


async def present(subscription: FileSubscription) -> list[StoredMessage]:
    """Read what is there."""
    subscription.end_with_present()
    async with messages_of(subscription) as messages:
        return [message async for message in messages]


# --- what is no regular file ---


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_fifo_is_refused_at_once(tmp_path: Path, start: str) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(SourceError, match=r"cannot read .*a\.jsonl: not a regular file"):
        returned(lambda: asyncio.run(present(follow(tmp_path / "a.jsonl", start=start))))


def test_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("/dev/zero")
    with pytest.raises(SourceError, match="not a regular file"):
        returned(lambda: asyncio.run(present(follow(tmp_path / "a.jsonl"))))


def test_a_fifo_in_the_place_of_the_file_ends_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n")

    async def read() -> None:
        async with messages_of(follow(path)) as messages:
            assert (await anext(messages)).value == b"1\n"
            path.unlink()
            os.mkfifo(path)
            await anext(messages)

    with pytest.raises(SourceError, match="not a regular file"):
        returned(lambda: asyncio.run(read()))


def test_a_file_is_followed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other-disk.jsonl").write_bytes(b"1\n")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "other-disk.jsonl")
    assert [message.value for message in asyncio.run(present(follow(tmp_path / "a.jsonl")))] == [b"1\n"]


@pytest.mark.parametrize("name", ["a.jsonl.g.position", ".a.jsonl.g.position.lock"])
def test_a_fifo_in_the_place_of_a_position_or_lock_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError, match="not a regular file"):
        returned(lambda: asyncio.run(present(follow(tmp_path / "a.jsonl", group="g"))))


# --- links ---


@pytest.mark.parametrize(
    "name", ["a.jsonl.g.position", ".a.jsonl.g.position.tmp", ".a.jsonl.g.position.lock", "a.jsonl.g.position.tmp"]
)
async def test_a_link_beside_the_file_leads_no_write_to_another_file(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"{}")
    (tmp_path / "a.jsonl").write_bytes(b"1\n")
    (tmp_path / name).symlink_to(victim)
    is_reached = name in {"a.jsonl.g.position", ".a.jsonl.g.position.lock"}
    with pytest.raises(SourceError, match="a link is in its place") if is_reached else nullcontext():
        await present(follow(tmp_path / "a.jsonl", group="g"))
    assert victim.read_bytes() == b"{}"


def test_the_position_and_its_lock_are_for_this_user_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n")
    before = os.umask(0)
    try:
        asyncio.run(present(follow(tmp_path / "a.jsonl", group="g")))
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir() if "position" in path.name}
    assert modes == {"a.jsonl.g.position": 0o600, ".a.jsonl.g.position.lock": 0o600}


def test_leftovers_of_killed_readers_go_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / ".a.jsonl.g.position.0123456789abcdef.tmp").touch()
    (tmp_path / ".a.jsonl.h.position.0123456789abcdef.tmp").touch()  # of another group, whose reader may be alive
    asyncio.run(present(follow(tmp_path / "a.jsonl", group="g")))
    assert [path.name for path in tmp_path.glob("*.tmp")] == [".a.jsonl.h.position.0123456789abcdef.tmp"]


# --- long lines ---


async def test_a_line_above_the_limit_is_reported_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n" + b"x" * 3_000_000 + b"\n" + b"y" * LIMIT + b"\n2\n")
    found = await present(follow(path, group="g"))
    assert [message.value for message in found] == [b"1\n", b"", b"y" * LIMIT + b"\n", b"2\n"]
    assert [message.problem for message in found] == [
        None,
        "a line longer than max_record_bytes (1000 bytes)",
        None,
        None,
    ]
    assert found[1].place == f"{path}, byte 2"
    assert await present(follow(path, group="g")) == []


async def test_a_line_without_an_end_is_reported_once_and_those_after_it_come(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 3_000_000)
    async with messages_of(follow(path)) as messages:
        assert (await anext(messages)).problem is not None
        with path.open("ab") as file:
            file.write(b"x" * 1_000_000)
            file.flush()
            file.write(b"\n1\n")
        assert (await anext(messages)).value == b"1\n"


async def test_a_reader_without_a_group_does_not_begin_inside_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n" + b"x" * 3_000_000)
    async with messages_of(follow(path, start="latest")) as messages:
        assert (await anext(messages)).problem is not None
        with path.open("ab") as file:
            file.write(b'"rest"\n2\n')
        assert (await anext(messages)).value == b"2\n"


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count what a process reads")
async def test_a_growing_line_is_not_read_again_at_each_look(tmp_path: Path) -> None:
    """Law: however often it is looked at, a byte is read a few times at most."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 4_000_000)

    def n_read() -> int:
        counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(counters["rchar"])

    before = n_read()
    async with messages_of(follow(path, max_record_bytes="64MiB")) as messages:
        waiting = asyncio.ensure_future(anext(messages))
        for _ in range(30):
            await asyncio.sleep(0.01)  # some looks
            with path.open("ab") as file:
                file.write(b"x" * 1_000)
        with path.open("ab") as file:
            file.write(b"\n")
        assert len((await waiting).value) == 4_030_001
    assert n_read() - before < 5 * 4_030_001


# --- many lines, cut again and again ---


async def test_others_get_a_turn_while_many_short_lines_are_read(tmp_path: Path) -> None:
    """A file of line ends kept the event loop, and so the scoring, for a second at a time."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" * 20_000)
    subscription = follow(path)
    subscription.end_with_present()
    n_read, at_turns = 0, [0]

    async def turns() -> None:
        while n_read < 20_000:
            at_turns.append(n_read)
            await asyncio.sleep(0)

    async with messages_of(subscription) as messages:
        other = asyncio.ensure_future(turns())
        async for _ in messages:
            n_read += 1
        await other
    assert max(after - before for before, after in itertools.pairwise([*at_turns, n_read])) <= 256


async def test_what_was_cut_off_is_remembered_in_bounded_space(tmp_path: Path) -> None:
    """Who writes and cuts the file again and again filled the memory and the position's file."""
    path = tmp_path / "a.jsonl"
    path.touch()
    async with messages_of(follow(path, group="g")) as messages:
        for round_ in range(4):
            with path.open("ab") as file:
                file.write(b"".join(b"%d-%d\n" % (round_, n) for n in range(4_000)))
            for _ in range(4_000):
                await anext(messages)
            os.truncate(path, 0)
    saved = json.loads((tmp_path / "a.jsonl.g.position").read_bytes())
    assert len(saved["again"]) + len(saved["lines"]) <= 2 * 4_096


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"lines": [' + b'[0, 0, "", ""],' * 300_000 + b'[0, 0, "", ""]]}', id="large"),
        pytest.param(b'{"lines": [[9223372036854775808, 1, "", ""]]}', id="far"),
        pytest.param(b'{"lines": [[-5, 1, "", ""]]}', id="negative"),
        pytest.param(b'{"more": ' + b"[" * 100_000, id="deep"),
    ],
)
async def test_a_position_that_no_reader_writes_is_damaged(tmp_path: Path, content: bytes) -> None:
    """Whoever may write beside the file can put it there."""
    (tmp_path / "a.jsonl").write_bytes(b"1\n")
    (tmp_path / "a.jsonl.g.position").write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.jsonl\.g\.position is damaged"):
        await present(follow(tmp_path / "a.jsonl", group="g"))


async def test_counting_what_waits_ends_in_a_second(tmp_path: Path) -> None:
    """It went on in its thread whatever its caller's time-out said, half a minute for 8 MB."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" * 20_000_000)
    subscription = follow(path)
    async with messages_of(subscription) as messages:
        await anext(messages)
        began = time.monotonic()
        assert await subscription.n_present() is None
        assert time.monotonic() - began < 20  # a second, on a busy machine; it was 75


async def test_an_operators_mark_of_another_time_is_another_mark(tmp_path: Path) -> None:
    """Who may cut the file could make the reader swallow the repetition of a mark that had been taken back."""
    path = tmp_path / "a.jsonl"

    def line(judgement: str, hour: int) -> bytes:
        created_at = f"2026-03-01T{hour:02}:00:00Z"
        return msgspec.json.encode({"alert_id": "a", "judgement": judgement, "created_at": created_at}) + b"\n"

    path.write_bytes(line("veto", 1))
    async with messages_of(follow(path)) as messages:
        await anext(messages)
        path.write_bytes(line("withdrawn", 2) + line("veto", 3))
        assert [(await anext(messages)).value for _ in range(2)] == [line("withdrawn", 2), line("veto", 3)]


# --- the end ---


def test_it_can_end_with_what_is_there(tmp_path: Path) -> None:
    assert isinstance(follow(tmp_path / "a.jsonl"), EndingSubscription)


async def test_a_file_that_is_not_there_ends_at_once(tmp_path: Path) -> None:
    subscription = follow(tmp_path / "a.jsonl", poll="1h")
    async with messages_of(subscription) as messages:
        waiting = asyncio.ensure_future(anext(messages, None))
        await asyncio.sleep(0)
        subscription.end_with_present()
        assert await waiting is None
        assert await subscription.n_present() == 0


async def test_it_ends_although_others_go_on_writing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n2\n")
    subscription = follow(path)
    subscription.end_with_present()
    seen = []
    async with messages_of(subscription) as messages:
        async for message in messages:
            seen.append(message.value)
            with path.open("ab") as file:
                file.write(b"more\n")
    assert seen == [b"1\n", b"2\n"]


@given(
    lines=st.lists(st.integers(0, 30), max_size=30),
    n_before=st.integers(0, 30),
    rest=st.binary(max_size=5).map(lambda text: text.replace(b"\n", b"")),
)
def test_what_is_there_at_the_call_comes_and_the_rest_is_counted(
    lines: list[int], n_before: int, rest: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: every line there at the call is yielded, whenever it is called; an early end leaves the others, counted."""
    path = tmp_path_factory.mktemp("end") / "a.jsonl"
    wanted = [b"%d %s\n" % (n, b"x" * size) for n, size in enumerate(lines)]
    path.write_bytes(b"".join(wanted) + rest)
    n_before = min(n_before, len(wanted))

    async def run(*, breaks_off: bool) -> list[bytes]:
        subscription = follow(path, group="breaks" if breaks_off else "ends")
        seen = []
        async with messages_of(subscription) as messages:
            for _ in range(n_before):
                seen.append((await anext(messages)).value)
            if breaks_off:
                await messages.aclose()  # type: ignore[attr-defined]
                assert await subscription.n_present() == len(wanted) - max(0, n_before - 1)  # the last is not done
                return seen
            subscription.end_with_present()
            seen += [message.value async for message in messages]
            assert await subscription.n_present() == 0
        return seen

    assert asyncio.run(run(breaks_off=False)) == wanted
    if n_before:
        assert asyncio.run(run(breaks_off=True)) == wanted[:n_before]


# --- what is written to be cut off, and many short lines ---


async def test_lines_that_are_cut_off_again_and_again_are_not_all_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file of the position must not grow with all that was ever in the followed file."""
    monkeypatch.setattr(subscription_module, "_REMEMBERED", 10)
    path = tmp_path / "a.jsonl"
    for turn in range(20):
        path.write_bytes(b"".join(b"%d-%d\n" % (turn, i) for i in range(10)))
        assert len(await present(follow(path, group="g"))) == 10
    saved = msgspec.json.decode((tmp_path / "a.jsonl.g.position").read_bytes())
    assert len(saved["again"]) == 10


async def test_a_file_of_short_lines_leaves_the_event_loop_to_others(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n" * 20_000)
    n_turns = 0

    async def others() -> None:
        nonlocal n_turns
        while True:
            await asyncio.sleep(0)
            n_turns += 1

    task = asyncio.create_task(others())
    subscription = follow(tmp_path / "a.jsonl")
    subscription.end_with_present()
    async with messages_of(subscription) as messages:
        turns = Counter([n_turns async for _ in messages])
    task.cancel()
    assert turns.total() == 20_000
    assert max(turns.values()) <= 256
