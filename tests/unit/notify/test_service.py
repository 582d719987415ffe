"""The receivers of a plant side by side, over files: what each gets, what is given up, and what a stop leaves."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import stamina

from streamad.commands.shared.plants import load_plant
from streamad.errors import OutputError, UsageError
from streamad.notify import receiver as receiver_module
from streamad.notify import under_way as under_way_module
from streamad.notify.notices import Notice
from streamad.notify.policy import Batch
from streamad.notify.receiver import group_of
from streamad.notify.service import Notifier
from streamad.notify.under_way import UnderWay
from streamad.notify.webhook import WebhookSender
from streamad.plant import Plant
from streamad_connectors.files import subscription as subscription_module
from streamad_connectors.files.group_position import GroupPosition, Position
from tests.support.notify.hook import Hook, listening
from tests.support.notify.plant import id_of, notified_plant, receiver, write
from tests.support.waiting import LIMIT_S


@pytest.fixture
def hook() -> Iterator[Hook]:
    with listening(Hook()) as served:
        yield served


@pytest.fixture
def other() -> Iterator[Hook]:
    with listening(Hook()) as served:
        yield served


@pytest.fixture
def at_once() -> Iterator[None]:
    """Pauses between tries take no time."""
    stamina.set_testing(True, attempts=1_000, cap=True)
    yield
    stamina.set_testing(False)


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "ATTRIBUTION_WAIT_S", 0.0)


@asynccontextmanager
async def notifying(plant: Plant) -> AsyncIterator[asyncio.Task[None]]:
    notifier = Notifier(plant)
    running = asyncio.create_task(notifier.run())
    try:
        yield running
    finally:
        notifier.stop()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([running])


async def until(hook: Hook, is_enough: Callable[[Hook], bool]) -> None:
    await asyncio.to_thread(hook.wait, is_enough)


async def test_each_alert_comes_once_with_its_reasons_and_a_restart_goes_on(tmp_path: Path, hook: Hook) -> None:
    plant = notified_plant(tmp_path, receiver(hook))
    write(tmp_path, "alert", range(3))
    write(tmp_path, "attribution", range(3))
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 3)
    write(tmp_path, "alert", [3])
    write(tmp_path, "attribution", [3])
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 4)
    assert hook.tries == [id_of(i) for i in range(4)]
    assert all(notice["data"]["attribution"] is not None for notice in hook.notices)


@pytest.mark.parametrize("own", [True, False], ids=["own place", "with the alerts"])
async def test_warnings_come_to_those_that_want_them_once_also_after_a_restart(
    own: bool, tmp_path: Path, hook: Hook, other: Hook, no_wait: None
) -> None:
    plant = notified_plant(tmp_path, receiver(hook, on=["alerts", "warnings"]), receiver(other, "second"))
    if not own:
        content = (tmp_path / "plant.yaml").read_text()
        (tmp_path / "plant.yaml").write_text(content.replace("  warnings: file:warnings.jsonl\n", ""))
        plant = load_plant(tmp_path / "plant.yaml")

    def tell(warnings: list[int], alerts: list[int]) -> None:
        write(tmp_path, "warning" if own else "warning in alerts", warnings)
        write(tmp_path, "alert", alerts)

    tell([0, 2], [1, 3])
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 4)
        await until(other, lambda other: len(other.notices) == 2)
    tell([4], [5])
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 6)
        await until(other, lambda other: len(other.notices) == 3)
    assert sorted(hook.tries) == [id_of(i) for i in range(6)]
    assert other.tries == [id_of(i) for i in (1, 3, 5)]
    kinds = {notice["type"]: notice["data"] for notice in hook.notices}
    assert kinds["streamad.warning"]["warning"]["age"] == 0.54


async def test_a_new_receiver_begins_with_the_next_alert(tmp_path: Path, hook: Hook, no_wait: None) -> None:
    plant = notified_plant(tmp_path, receiver(hook, start="latest"))
    write(tmp_path, "alert", range(3))
    async with notifying(plant):
        position = tmp_path / f"alerts.jsonl.{group_of('hall', 'first')}.position"
        async with asyncio.timeout(LIMIT_S):
            while not position.exists():  # noqa: ASYNC110 - another task writes it
                await asyncio.sleep(0.01)
        write(tmp_path, "alert", [3])
        await until(hook, lambda hook: len(hook.notices) == 1)
    assert hook.tries == [id_of(3)]


async def test_a_notice_waits_for_the_reasons_and_goes_without_in_the_end(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "ATTRIBUTION_WAIT_S", LIMIT_S)
    plant = notified_plant(tmp_path, receiver(hook))
    write(tmp_path, "alert", [0])
    async with notifying(plant):
        await asyncio.sleep(0.5)
        assert hook.tries == []
        write(tmp_path, "attribution", [0])
        await until(hook, lambda hook: len(hook.notices) == 1)
        monkeypatch.setattr(receiver_module, "ATTRIBUTION_WAIT_S", 0.3)
        write(tmp_path, "alert", [1])
        await until(hook, lambda hook: len(hook.notices) == 2)
    assert [notice["data"]["attribution"] is None for notice in hook.notices] == [False, True]


async def test_a_receiver_that_stalls_holds_no_other_up(tmp_path: Path, hook: Hook, other: Hook, no_wait: None) -> None:
    hook.conduct = lambda *_: "stall"
    plant = notified_plant(tmp_path, receiver(hook), receiver(other, "second"))
    write(tmp_path, "alert", range(200))
    async with notifying(plant):
        await until(other, lambda other: len(other.notices) == 200)
        await until(hook, lambda hook: len(hook.tries) == 1)
        hook.closing.set()  # or the stop would wait for it
    assert other.tries == [id_of(i) for i in range(200)]
    assert hook.notices == []


async def test_500_for_long_delivers_in_the_end_and_in_order(
    tmp_path: Path, hook: Hook, at_once: None, no_wait: None, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.conduct = lambda n, _: 500 if n < 15 else 204
    plant = notified_plant(tmp_path, receiver(hook))
    write(tmp_path, "alert", range(3))
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 3)
    assert hook.alert_ids == [id_of(i) for i in range(3)]
    assert hook.tries[:15] == [id_of(0)] * 15
    said = capsys.readouterr().err
    assert said.count("a notice is not delivered yet") == said.count("a notice is delivered now") == 1


async def test_what_cannot_be_delivered_is_an_event_and_the_next_goes_on(
    tmp_path: Path, hook: Hook, at_once: None, no_wait: None, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.conduct = lambda _, name: 500 if name == id_of(1) else 204
    plant = notified_plant(tmp_path, receiver(hook, tries=3), undelivered="out/undelivered.jsonl")
    write(tmp_path, "alert", range(3))
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 2)
    assert hook.tries == [id_of(0), *[id_of(1)] * 3, id_of(2)]
    (line,) = (tmp_path / "out/undelivered.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert (event["type"], event["kind"], event["stream"]) == ("event", "notice_undelivered", "reactor-1")
    assert event["figures"] == {"alerts": 1.0, "tries": 3.0}
    assert f"given up after 3 tries: http://127.0.0.1:{hook.url.split(':')[2].split('/')[0]} answered 500" in line
    assert id_of(1) in event["message"]
    said = capsys.readouterr().err
    assert "notice_undelivered" in said
    assert "a notice is not delivered yet" in said
    async with notifying(plant):
        write(tmp_path, "alert", [3])
        await until(hook, lambda hook: len(hook.notices) == 3)
    assert hook.tries[-1] == id_of(3), "what was given up does not come again"


@pytest.mark.usefixtures("at_once", "no_wait")
async def test_a_receiver_whose_answer_breaks_the_library_is_tried_again_and_ends_no_other(
    tmp_path: Path, hook: Hook, other: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [RuntimeError("an answer that nobody foresaw")] * 3
    send = WebhookSender.send

    async def sometimes(self: WebhookSender, notice: Notice) -> str:
        said = await send(self, notice)
        if self.place in hook.url and broken:
            raise broken.pop()
        return said

    monkeypatch.setattr(WebhookSender, "send", sometimes)
    plant = notified_plant(tmp_path, receiver(hook), receiver(other, "second"))
    write(tmp_path, "alert", range(3))
    async with notifying(plant):
        await until(hook, lambda hook: hook.alert_ids[-1:] == [id_of(2)])
        await until(other, lambda other: len(other.notices) == 3)
    assert hook.tries == [*[id_of(0)] * 4, id_of(1), id_of(2)]


async def test_an_alert_of_which_no_notice_can_be_made_is_an_event_and_the_next_goes_on(
    tmp_path: Path, hook: Hook, no_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Notice.of

    def made(batch: Batch, *args: Any, **more: Any) -> Notice:
        if batch.id == id_of(1):
            raise KeyError("what nobody foresaw")
        return of(batch, *args, **more)

    monkeypatch.setattr(Notice, "of", made)
    plant = notified_plant(tmp_path, receiver(hook), undelivered="undelivered.jsonl")
    write(tmp_path, "alert", range(3))
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 2)
    assert hook.tries == [id_of(0), id_of(2)]
    event = json.loads((tmp_path / "undelivered.jsonl").read_text())
    assert event["kind"] == "notice_undelivered"
    assert "the notice could not be made: KeyError" in event["message"]
    assert id_of(1) in event["message"]


@pytest.mark.parametrize("place", ["/dev/full", "folder", "file/undelivered.jsonl"])
@pytest.mark.usefixtures("at_once", "no_wait")
async def test_a_place_of_events_that_cannot_be_written_holds_nothing_up(
    place: str, tmp_path: Path, hook: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    hook.conduct = lambda _, name: 500 if name == id_of(1) else 204
    plant = notified_plant(tmp_path, receiver(hook, tries=2), undelivered=place)
    write(tmp_path, "alert", range(3))
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 2)
    said = capsys.readouterr().err
    assert "notice_undelivered" in said
    assert "event_not_written" in said


async def test_a_full_disk_under_the_position_repeats_nothing_while_it_runs(
    tmp_path: Path, hook: Hook, no_wait: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subscription_module, "_SAVE_S", 0.05)
    full, save = [True], GroupPosition.save

    def saved(self: GroupPosition, position: Position) -> None:
        if full:
            raise OutputError("no space left on device")
        save(self, position)

    monkeypatch.setattr(GroupPosition, "save", saved)
    plant = notified_plant(tmp_path, receiver(hook))
    async with notifying(plant):
        for i in range(5):
            write(tmp_path, "alert", [i])
            await until(hook, lambda hook, i=i: len(hook.notices) == i + 1)  # type: ignore[misc]
        full.clear()
        position = tmp_path / f"alerts.jsonl.{group_of('hall', 'first')}.position"
        async with asyncio.timeout(LIMIT_S):
            while not position.exists():  # noqa: ASYNC110 - another task writes it
                await asyncio.sleep(0.01)
    assert capsys.readouterr().err.count("the position is not saved yet") == 1
    write(tmp_path, "alert", [5])
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 6)
    assert hook.tries == [id_of(i) for i in range(6)]


async def test_410_ends_one_receiver_and_with_the_last_the_process(
    tmp_path: Path, hook: Hook, other: Hook, no_wait: None, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.conduct = lambda n, _: 204 if n < 2 else 410
    plant = notified_plant(tmp_path, receiver(hook), receiver(other, "second"))
    write(tmp_path, "alert", range(5))
    async with notifying(plant) as running:
        await until(other, lambda other: len(other.notices) == 5)
        await until(hook, lambda hook: len(hook.tries) == 2)
        other.conduct = lambda *_: 410
        write(tmp_path, "alert", [5])
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([running])
        with pytest.raises(UsageError, match="no receiver wants notices any more"):
            await running
    assert "receiver_gone" in capsys.readouterr().err
    hook.conduct = lambda *_: 204
    async with notifying(notified_plant(tmp_path, receiver(hook))):
        await until(hook, lambda hook: len(hook.notices) == 6)
    assert hook.alert_ids == [id_of(i) for i in range(6)], "nothing is lost for one that comes back"


async def test_ten_thousand_at_once_are_a_few_digests_in_bounded_memory(
    tmp_path: Path, hook: Hook, no_wait: None
) -> None:
    plant = notified_plant(tmp_path, receiver(hook, digest="2s"))
    write(tmp_path, "alert", range(10_000))
    began_s = time.monotonic()
    tracemalloc.start()
    try:
        async with notifying(plant):
            counted = lambda hook: sum(notice["data"].get("count", 1) for notice in hook.notices)  # noqa: E731
            await until(hook, lambda hook: counted(hook) == 10_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(hook.tries) <= 5 + (time.monotonic() - began_s) / 2  # a slow machine reads through several digests
    assert peak < 40_000_000
    assert all(len(notice["data"].get("alerts", ())) <= 5 for notice in hook.notices)


async def test_messages_that_no_monitor_writes_are_skipped_with_one_warning(
    tmp_path: Path, hook: Hook, no_wait: None, capsys: pytest.CaptureFixture[str]
) -> None:
    plant = notified_plant(tmp_path, receiver(hook))
    write(tmp_path, "alert", [0])
    good = (tmp_path / "alerts.jsonl").read_text()
    hostile: list[dict[str, Any]] = [
        {"alert_id": "x\r\nset-cookie: a=b"},
        {"alert_id": "../" * 9},
        {"start_time": "9999-12-31T23:59:59-12:00"},
        {"type": "event"},
        {"score": "high"},
    ]
    with (tmp_path / "alerts.jsonl").open("w") as file:
        file.writelines(json.dumps(json.loads(good) | change) + "\n" for change in hostile)
        file.write("not JSON\n" + "[" * 100_000 + "\n" + good)
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) == 1)
    assert hook.tries == [id_of(0)]
    assert capsys.readouterr().err.count("skipped what is no alert") == 1


async def test_a_stop_lets_what_is_being_sent_end_and_repeats_nothing(
    tmp_path: Path, hook: Hook, no_wait: None
) -> None:
    plant = notified_plant(tmp_path, receiver(hook))
    write(tmp_path, "alert", range(300))
    for n in (20, 60, 150):
        async with notifying(plant):
            await until(hook, lambda hook, n=n: len(hook.notices) >= n)  # type: ignore[misc]
    async with notifying(plant):
        await until(hook, lambda hook: len(hook.notices) >= 300)
    assert hook.tries == [id_of(i) for i in range(300)]


async def _killed(plant: Plant, hook: Hook, monkeypatch: pytest.MonkeyPatch, *, is_done: bool) -> list[int]:
    """Let a process tell of the alerts 0 to 9 in two notices, and be killed before it stores that they are done."""
    write(plant.base_dir, "alert", range(10))

    async def killed(*_: object) -> None:
        """The process is gone before that."""

    with monkeypatch.context() as context:
        context.setattr(GroupPosition, "save", lambda *_: None)
        if not is_done:
            context.setattr(UnderWay, "done", killed)
        async with notifying(plant):
            await until(hook, lambda hook: sum(map(_count, hook.notices)) == 10)
    write(plant.base_dir, "alert", range(10, 15))
    return [_count(notice) for notice in hook.notices]


def _count(notice: dict[str, Any]) -> int:
    return int(notice["data"].get("count", 1))


async def test_a_digest_comes_again_after_a_kill_as_it_was_and_under_its_id(
    tmp_path: Path, hook: Hook, no_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = notified_plant(tmp_path, receiver(hook, digest="1s"))
    before = await _killed(plant, hook, monkeypatch, is_done=False)
    async with notifying(plant):
        await until(hook, lambda hook: sum(map(_count, hook.notices)) == 25)
    again = len(before)
    assert hook.tries[again] == hook.tries[again - 1]
    assert _count(hook.notices[again]) == before[-1]


async def test_a_digest_that_was_delivered_before_a_kill_is_not_told_again(
    tmp_path: Path, hook: Hook, no_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = notified_plant(tmp_path, receiver(hook, digest="1s"))
    before = await _killed(plant, hook, monkeypatch, is_done=True)
    async with notifying(plant):
        await until(hook, lambda hook: sum(map(_count, hook.notices)) == 25 - before[-1])
    told = hook.tries[: len(before)]
    assert told[-1] not in hook.tries[len(before) :]


@pytest.mark.parametrize("status", [204, 500], ids=["taken", "given up"])
async def test_a_stop_waits_until_it_is_kept_that_a_digest_is_done(
    status: int, tmp_path: Path, hook: Hook, no_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically = under_way_module.write_atomically

    def slowly(*args: Any, **more: Any) -> None:
        time.sleep(0.3)  # a slow disk
        write_atomically(*args, **more)

    monkeypatch.setattr(under_way_module, "write_atomically", slowly)
    hook.conduct = lambda *_: status
    plant = notified_plant(tmp_path, receiver(hook, digest="1s", tries=1), undelivered="undelivered.jsonl")
    (undelivered := tmp_path / "undelivered.jsonl").touch()
    for i in range(3):
        write(tmp_path, "alert", [i])
        async with notifying(plant):
            await until(hook, lambda hook, i=i: len(hook.tries) > i)  # type: ignore[misc]
            async with asyncio.timeout(LIMIT_S):
                while status == 500 and undelivered.read_text().count("\n") <= i:  # noqa: ASYNC110 - another task writes it
                    await asyncio.sleep(0.01)
    assert hook.tries == [id_of(i) for i in range(3)]


@pytest.mark.parametrize("content", [None, b"damaged", msgspec.msgpack.encode({"keys": [b"k" * 16], "is_done": False})])
async def test_what_is_kept_of_a_digest_and_never_comes_holds_nothing_up(
    content: bytes | None, tmp_path: Path, hook: Hook, no_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "AGAIN_WAIT_S", 0.05)
    plant = notified_plant(tmp_path, receiver(hook, digest="1s"))
    kept = tmp_path / "alerts.jsonl.streamad.hall.notify.first.notice.position"
    if content is None:
        kept.mkdir()
    else:
        kept.write_bytes(content)
    write(tmp_path, "alert", range(3))
    async with notifying(plant):
        await until(hook, lambda hook: sum(map(_count, hook.notices)) == 3)


def test_groups_are_file_names_and_differ() -> None:
    assert group_of("hall", "first") == "streamad.hall.notify.first"
    long = [group_of("p" * 64, f"{'r' * 63}{i}") for i in range(5)]
    assert len({*long}) == 5
    assert all(len(name) <= 64 for name in long)
