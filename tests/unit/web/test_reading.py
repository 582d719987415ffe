"""The page's reading of the outputs: every message reaches the view, over restarts, damage and outages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.decisions.chain import Decided, Head, linked
from streamad.errors import OutputError
from streamad.judge.gate import is_shown
from streamad.messages import Attribution, ChannelSegment, Event, Feedback, Message, ModelRef, Window, packed_values
from streamad.messages.accepting import accepted
from streamad.types import to_us
from streamad.web.reading import Reading
from streamad.web.store.view import View
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import T, messages_of, verdict
from tests.support.web.page import plant_in

ROLES = {"Verdict": "verdicts", "Alert": "alerts", "Attribution": "attributions", "Window": "windows"}


def write(folder: Path, messages: Iterable[Message]) -> None:
    """Append messages to the files of their roles."""
    for message in messages:
        role = ROLES.get(type(message).__name__, "feedback")
        with (folder / f"{role}.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(message) + b"\n")


def opened(folder: Path) -> View:
    return View(folder / "view.sqlite3", keep_us=90 * 86_400_000_000, max_bytes=1 << 30)


def delete_view(folder: Path) -> None:
    for path in folder.glob("view.sqlite3*"):
        path.unlink()


async def read_until(
    folder: Path,
    view: View,
    done: Callable[[], bool],
    reading: Reading | None = None,
    changed: asyncio.Event | None = None,
) -> Reading:
    """Read until ``done``, which is asked after every commit of the view; then stop as a stopped page does."""
    changed = changed or asyncio.Event()
    reading = reading or Reading(plant_in(folder), view, changed.set)
    task = asyncio.create_task(reading.run())
    try:
        async with asyncio.timeout(LIMIT_S):
            while not done():
                changed.clear()
                waiting = asyncio.ensure_future(changed.wait())
                await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if task.done():
                    task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return reading


async def test_every_role_reaches_the_view(tmp_path: Path) -> None:
    write(tmp_path, messages_of(1))
    view = opened(tmp_path)

    def done() -> bool:
        one = view.sequence(f"{1:032x}")
        return one is not None and one.is_alert and one.has_window and one.judgement == "confirmed" and bool(
            view.attribution(one.id)
        )  # fmt: skip

    await read_until(tmp_path, view, done)
    one = view.sequence(f"{1:032x}")
    assert one is not None
    assert (one.decision, one.note) == ("anomalous", "b")
    view.close()


async def test_files_that_are_not_there_yet_are_waited_for_without_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view, changed = opened(tmp_path), asyncio.Event()
    task = asyncio.create_task(Reading(plant_in(tmp_path), view, changed.set).run())
    await asyncio.sleep(0.5)  # time in which it would be said
    write(tmp_path, messages_of(1))
    async with asyncio.timeout(LIMIT_S):
        while not view.latest(1):
            changed.clear()
            await changed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "not there yet" not in "".join(capsys.readouterr())
    view.close()


async def test_events_of_the_learner_are_read_beside_those_of_the_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view, changed = opened(tmp_path), asyncio.Event()
    plant = plant_in(tmp_path, learning={"process": "elsewhere", "store": "inliers"})
    (tmp_path / "events.jsonl").write_bytes(event_line("too_many_streams"))
    reading = Reading(plant, view, changed.set)
    await read_until(tmp_path, view, lambda: len(view.events(9)) == 1, reading, changed)
    (tmp_path / "inliers.events.jsonl").write_bytes(event_line("model_promoted") + event_line("drift")[:-1])
    await read_until(tmp_path, view, lambda: len(view.events(9)) == 2, reading, changed)
    assert sorted(one.kind for one in view.events(9)) == ["model_promoted", "too_many_streams"]
    assert "not there yet" not in "".join(capsys.readouterr())
    view.close()


async def test_a_place_that_cannot_be_read_is_a_trouble_of_its_own(tmp_path: Path) -> None:
    view, changed = opened(tmp_path), asyncio.Event()
    plant = plant_in(tmp_path, learning={"process": "elsewhere", "store": "inliers"})
    (tmp_path / "inliers.events.jsonl").mkdir()
    reading = Reading(plant, view, changed.set)
    (tmp_path / "events.jsonl").write_bytes(event_line("drift"))
    await read_until(tmp_path, view, lambda: bool(view.events(9)) and bool(reading.troubles), reading, changed)
    assert list(reading.troubles) == ["events of the learner"]
    view.close()


def event_line(kind: str) -> bytes:
    return msgspec.json.encode(Event(kind=kind, message=kind, created_at=T)) + b"\n"


async def test_a_restart_reads_on_and_changes_nothing_that_was_read(tmp_path: Path) -> None:
    write(tmp_path, [verdict(i) for i in range(50)])
    view = opened(tmp_path)
    await read_until(tmp_path, view, lambda: len(view.latest(100)) == 50)
    before = {one.id: one.change for one in view.latest(100)}
    view.close()
    write(tmp_path, [verdict(i) for i in range(50, 60)])
    view = opened(tmp_path)
    await read_until(tmp_path, view, lambda: len(view.latest(100)) == 60)
    after = {one.id: one.change for one in view.latest(100)}
    assert {name: after[name] for name in before} == before
    view.close()


async def test_a_deleted_view_is_built_again(tmp_path: Path) -> None:
    write(tmp_path, [verdict(i) for i in range(20)])
    view = opened(tmp_path)
    await read_until(tmp_path, view, lambda: len(view.latest(100)) == 20)
    view.close()
    delete_view(tmp_path)
    view = opened(tmp_path)
    await read_until(tmp_path, view, lambda: len(view.latest(100)) == 20)
    view.close()


async def test_lines_that_are_no_messages_are_skipped(tmp_path: Path) -> None:
    junk = b'\xff\xfe\n{"type": "verdict"}\n[]\n' + b"[" * 5_000 + b'\n{"type": "bomb"}\n{"a": 1}\n'
    (tmp_path / "verdicts.jsonl").write_bytes(junk)
    write(tmp_path, [verdict(1)])
    view = opened(tmp_path)
    await read_until(tmp_path, view, lambda: bool(view.latest(9)))
    assert [one.sequence for one in view.latest(9)] == ["B-1"]
    view.close()


async def test_of_the_windows_kept_for_learning_the_page_keeps_those_to_look_at(tmp_path: Path) -> None:
    ids = [f"{i:032x}" for i in range(40)]
    normal = Window(
        verdict_id="",
        stream="r1",
        sequence="B",
        start_time=T,
        end_time=T,
        n_samples=2,
        model=None,
        channels=["a"],
        units=[""],
        length=2,
        values=packed_values(np.zeros((1, 2), np.float32)),
        alerted=False,
        share="accepted",
        created_at=T,
    )
    windows = [msgspec.structs.replace(normal, verdict_id=name, alerted=name == ids[0]) for name in ids]
    display = plant_in(tmp_path).settings.display
    shown = {one.verdict_id for one in windows if is_shown(one.verdict_id, alerted=one.alerted, display=display)}
    assert 1 < len(shown) < len(ids)
    write(tmp_path, windows)
    view = opened(tmp_path)
    last = [name for name in ids if name in shown][-1]
    await read_until(tmp_path, view, lambda: view.window(last) is not None)
    assert {name for name in ids if view.window(name) is not None} == shown
    view.close()


async def test_outputs_that_come_later_are_waited_for(tmp_path: Path) -> None:
    view = opened(tmp_path)
    plant = plant_in(tmp_path)
    changed = asyncio.Event()
    reading = Reading(plant, view, changed.set)
    task = asyncio.create_task(reading.run())
    await asyncio.sleep(0)
    write(tmp_path, [verdict(1)])
    async with asyncio.timeout(LIMIT_S):
        await changed.wait()
    assert [one.sequence for one in view.latest(9)] == ["B-1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    view.close()


async def test_a_view_that_cannot_be_written_is_a_trouble_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [verdict(1)])
    view = opened(tmp_path)
    failures = [OutputError("the page's view cannot be used: disk full")] * 2
    put = view.put

    def failing(messages: Iterable[Message]) -> int:
        if failures:
            raise failures.pop()
        return put(messages)

    monkeypatch.setattr(view, "put", failing)
    monkeypatch.setattr("streamad.web.reading._RETRY_S", 0.01)
    reading = await read_until(tmp_path, view, lambda: bool(view.latest(9)))
    assert failures == []
    assert reading.troubles == {}
    view.close()


async def test_what_has_arrived_is_committed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [verdict(i) for i in range(5_000)])
    view, put, sizes = opened(tmp_path), View.put, []

    def counted(self: View, messages: Iterable[Message]) -> int:
        messages = list(messages)
        sizes.append(len(messages))
        return put(self, messages)

    monkeypatch.setattr(View, "put", counted)
    await read_until(tmp_path, view, lambda: view.last_change == 5_000)
    assert sum(sizes) == 5_000
    assert len(sizes) <= 100
    assert max(sizes) <= 500
    view.close()


async def test_what_was_not_committed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A position is that of the first message whose commit is missing, however far was read ahead."""
    monkeypatch.setattr("streamad.web.reading._RETRY_S", 0.01)
    write(tmp_path, [verdict(i) for i in range(2_000)])
    view = opened(tmp_path)
    put, failed = view.put, []

    def failing(messages: Iterable[Message]) -> int:
        messages = list(messages)
        if view.last_change and len(messages) > 1:
            failed.append(len(messages))
            raise OutputError("the page's view cannot be used: disk full")
        return put(messages)

    monkeypatch.setattr(view, "put", failing)
    await read_until(tmp_path, view, lambda: bool(failed))
    assert 0 < view.last_change < 2_000
    monkeypatch.undo()
    await read_until(tmp_path, view, lambda: len(view.latest(3_000)) == 2_000)
    assert view.last_change == 2_000
    view.close()


async def test_a_role_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "windows.jsonl").mkdir()
    write(tmp_path, [verdict(1), Feedback(alert_id=f"{1:032x}", judgement="veto", created_at=T)])
    view = opened(tmp_path)
    changed = asyncio.Event()
    reading = Reading(plant_in(tmp_path), view, changed.set)

    def done() -> bool:
        return bool(reading.troubles) and any(one.judgement == "veto" for one in view.latest(9))

    await read_until(tmp_path, view, done, reading, changed)
    assert set(reading.troubles) == {"windows"}
    assert "windows.jsonl" in reading.troubles["windows"]
    view.close()


async def test_a_reading_that_ends_by_an_error_is_a_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view, changed = opened(tmp_path), asyncio.Event()
    reading = Reading(plant_in(tmp_path), view, changed.set)

    def odd() -> bool:
        raise ValueError("odd")

    monkeypatch.setattr(view, "look", odd)
    task = asyncio.create_task(reading.run())
    task.add_done_callback(reading.note_end)
    async with asyncio.timeout(LIMIT_S):
        await changed.wait()
    assert "ValueError('odd')" in reading.troubles["outputs"]
    view.close()


# --- what foreign writers write ---


def hostile() -> list[tuple[str, dict[str, Any]]]:
    """Return lines for the topics that no monitor writes; each names the sequence 7, or an id that is none."""
    name = f"{7:032x}"
    lines: list[tuple[str, dict[str, Any]]] = []
    for message in messages_of(7)[:4]:
        role, fields = ROLES[type(message).__name__], json.loads(msgspec.json.encode(message))
        lines += [
            (role, fields | {"n_samples": 2**63}),
            (role, fields | {"n_samples": -1}),
            (role, fields | {"end_time": "9999-12-31T23:59:59-12:00", "created_at": "9999-12-31T23:59:59-12:00"}),
            (role, fields | {"start_time": "0001-01-01T00:00:00+14:00", "created_at": "0001-01-01T00:00:00+14:00"}),
            *((role, _named(fields, each)) for each in ("", "a/b", "../x", "é", "a\x00", "a.json", "x" * 100_000)),
            (role, fields | {"stream": "x" * (65 << 20 if role == "windows" else 5 << 20)}),
        ]
    mark = {"type": "feedback", "alert_id": name, "judgement": "confirmed"}
    lines += [
        ("feedback", mark | {"created_at": "9999-01-01T00:00:00Z"}),
        ("feedback", mark | {"created_at": "2026-03-01T06:00:00"}),
        ("feedback", mark | {"created_at": "2026-03-01T06:00:00Z", "note": "x" * 2_001}),
    ]
    return lines


def _named(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return fields | {key: name for key in ("verdict_id", "alert_id") if key in fields}


async def test_messages_that_no_monitor_writes_are_skipped_and_the_others_read(tmp_path: Path) -> None:
    for role, fields in hostile():
        if role == "attributions" and "n_samples" in fields:
            continue  # attributions have none
        with (tmp_path / f"{role}.jsonl").open("ab") as file:
            file.write(json.dumps(fields).encode() + b"\n")
    write(tmp_path, messages_of(3))
    view = opened(tmp_path)
    reading = await read_until(tmp_path, view, lambda: is_whole(view, 3))
    assert [one.id for one in view.latest(10)] == [f"{3:032x}"]
    assert view.attribution(f"{7:032x}") is None
    assert not reading.troubles
    view.close()


async def test_dates_without_a_zone_count_as_utc(tmp_path: Path) -> None:
    fields = json.loads(msgspec.json.encode(verdict(3))) | {"end_time": "2026-03-01T06:03:00"}
    (tmp_path / "verdicts.jsonl").write_bytes(json.dumps(fields).encode() + b"\n")
    view = opened(tmp_path)
    await read_until(tmp_path, view, lambda: view.last_change > 0)
    assert [one.end_us for one in view.latest(10)] == [to_us(verdict(3).end_time)]
    view.close()


def test_long_texts_and_lists_are_cut_and_segments_lie_within_the_sequence() -> None:
    attribution = messages_of(3)[2]
    assert isinstance(attribution, Attribution)
    segment = ChannelSegment(
        channel="c" * 9_999, unit="K", start=1e308, end=-1e308, start_time=T, end_time=T, direction="above", size=1.0,
        text="t" * 9_999,
    )  # fmt: skip
    model = ModelRef("m" * 9_999, "v" * 9_999)
    kept = accepted(msgspec.structs.replace(attribution, detail="d" * 9_999, segments=[segment] * 10_000, model=model))
    assert isinstance(kept, Attribution)
    assert len(kept.segments) == 24
    assert (kept.segments[0].start, kept.segments[0].end) == (0.0, 1.0)
    assert (len(kept.segments[0].channel), len(kept.detail or "")) == (1_000, 4_000)
    assert (len(kept.model.name), len(kept.model.version)) == (1_000, 1_000)


def test_the_further_texts_of_a_message_are_cut_as_well() -> None:
    decided = Decided(
        "mark", "0" * 32, "kim", "claimed", details={f"{n}{'k' * 9_999}": "v" * 9_999 for n in range(999)}
    )
    entry = linked(decided, "reactor/page", Head(), T)
    kept = accepted(entry)
    assert len(msgspec.json.encode(kept)) < 500_000 < len(msgspec.json.encode(entry))
    assert accepted(msgspec.structs.replace(entry, details={"a": "b"})).details == {"a": "b"}


def is_whole(view: View, i: int) -> bool:
    one = view.sequence(f"{i:032x}")
    return one is not None and one.is_alert and one.has_window and one.judgement == "confirmed"
