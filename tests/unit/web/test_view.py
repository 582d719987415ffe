"""The view store: any order and repetition of messages give the same view; damage costs the view, never the page."""

from __future__ import annotations

import os
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.decisions.chain import Decided, Head, linked
from streamad.errors import OutputError
from streamad.messages import (
    Event,
    Feedback,
    Window,
    packed_values,
)
from streamad.types import to_us
from streamad.web.store import view as views
from streamad.web.store.alerts import UNJUDGED
from streamad.web.store.view import View
from tests.support.web.messages import T, messages_of, verdict, warning_of

DAY_US = 86_400_000_000


def opened(folder: Path, **more: Any) -> View:
    return View(folder / "view.sqlite3", **({"keep_us": 90 * DAY_US, "max_bytes": 1 << 30} | more))


def content(view: View) -> list[tuple[Any, ...]]:
    """Return everything the view holds, without the numbers of changes."""
    with sqlite3.connect(view.path) as connection:
        rows = connection.execute("SELECT * FROM sequences ORDER BY id").fetchall()
        events = connection.execute("SELECT * FROM events ORDER BY id").fetchall()
    return [(row[0], *row[2:]) for row in rows + events]


def test_every_order_of_the_messages_gives_the_same_view(tmp_path: Path) -> None:
    found = []
    for number, order in enumerate(permutations(messages_of(1))):
        if number % 24 == 0:  # every order is 720 files
            view = opened(tmp_path / str(number))
            for message in order:
                view.put([message])
            found.append(content(view))
            view.close()
    assert len(found) == 30
    assert all(one == found[0] for one in found)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 17), min_size=18, max_size=60))
def test_repeated_messages_change_nothing(tmp_path_factory: pytest.TempPathFactory, picks: list[int]) -> None:
    every = [message for i in range(3) for message in messages_of(i)]
    view = opened(tmp_path_factory.mktemp("view"))
    view.put([*every, *(every[pick] for pick in picks)])
    last = view.last_change
    assert view.put([every[pick] for pick in picks]) == last
    assert view.last_change == last
    assert [one.id for one in view.latest(10)] == [f"{i:032x}" for i in (2, 1, 0)]
    view.close()


def test_a_sequence_bears_what_all_messages_say(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put(messages_of(7))
    one = view.sequence(f"{7:032x}")
    assert one is not None
    assert (one.stream, one.sequence, one.decision, one.rate) == ("reactor-1", "B-7", "anomalous", 0.02)
    assert (one.judgement, one.note, one.judged_by) == ("confirmed", "b", "lee")
    assert one.end_us == to_us(T + timedelta(minutes=7))
    assert one.has_window
    window, attribution = view.window(one.id), view.attribution(one.id)
    assert window is not None
    assert window.channels == ["temp_c"]
    assert attribution is not None
    assert attribution.channels[0].share == 1.0
    view.close()


def test_a_mark_or_an_attribution_alone_is_no_sequence_yet(tmp_path: Path) -> None:
    view = opened(tmp_path)
    messages = messages_of(7)
    view.put(messages[2:])
    assert view.sequence(f"{7:032x}") is None
    assert view.latest(9) == view.inbox(9) == []
    view.put(messages[:1])
    found = view.sequence(f"{7:032x}")
    assert found is not None
    assert found.judgement == "confirmed"
    view.close()


def test_the_inbox_has_alerts_without_a_mark_that_counts(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put([message for i in range(3) for message in messages_of(i)[:2]])
    marks: list[Any] = ["confirmed", "withdrawn"]
    view.put([Feedback(alert_id=f"{i:032x}", judgement=marks[i], created_at=T) for i in range(2)])
    assert [one.sequence for one in view.inbox(9)] == ["B-2", "B-1", "B-0"]
    assert [one.sequence for one in view.inbox(9, wanted=UNJUDGED)] == ["B-2", "B-1"]
    view.close()


def test_an_event_read_twice_is_there_once(tmp_path: Path) -> None:
    view = opened(tmp_path)
    event = Event(kind="plant_changed", message="m", created_at=T)
    view.put([event, event])
    view.put([event, Event(kind="plant_changed", message="other", created_at=T)])
    assert sorted(one.message for one in view.events(9)) == ["m", "other"]
    view.close()


def test_old_sequences_and_events_go(tmp_path: Path) -> None:
    view = opened(tmp_path, keep_us=60 * 60_000_000)
    view.put([verdict(i) for i in range(200)])
    view.put(
        [
            Event(kind="k", message="old", created_at=T),
            Event(kind="k", message="new", created_at=T + timedelta(hours=4)),
        ]
    )
    while view.trim():
        pass
    assert [one.sequence for one in view.latest(500)] == [f"B-{i}" for i in range(199, 138, -1)]
    assert [one.message for one in view.events(9)] == ["new"]
    view.close()


def test_beyond_its_size_windows_of_normal_sequences_go_first_then_the_oldest_sequences(tmp_path: Path) -> None:
    view = opened(tmp_path)
    noise = np.random.default_rng(0).normal(size=(1, 20_000)).astype(np.float32)
    for i in range(20):
        window = messages_of(i)[3]
        assert isinstance(window, Window)
        fields = {name: getattr(window, name) for name in window.__struct_fields__}
        large = Window(**fields | {"values": packed_values(noise), "length": 20_000})
        view.put([verdict(i), large, *(messages_of(i)[1:2] if i < 5 else [])])
    view.close()
    view = opened(tmp_path, max_bytes=600_000)
    view.trim()
    left = view.latest(50)
    assert [one.has_window for one in left] == [False] * 15 + [True] * 5
    assert len(left) == 20
    view.close()
    view = opened(tmp_path, max_bytes=10_000)
    assert view.trim()
    assert view.latest(50) == []
    view.close()


@pytest.mark.parametrize("kind", ["damaged", "newer", "trigger", "table"])
def test_a_view_that_is_damaged_or_not_of_this_release_is_kept_aside(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "view.sqlite3"
    view = opened(tmp_path)
    view.put([verdict(i) for i in range(300)])
    view.close()
    changes = {
        "newer": "PRAGMA user_version = 99",
        "trigger": "CREATE TRIGGER t AFTER INSERT ON sequences BEGIN DELETE FROM sequences; END",
        "table": "DROP TABLE meta; CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT DEFAULT (random()))",
    }
    if kind == "damaged":
        content = bytearray(path.read_bytes())
        content[4096:-4096] = b"\xa5" * (len(content) - 8192)
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as connection:
            connection.executescript(changes[kind])
    before = path.read_bytes()
    view = opened(tmp_path)
    assert view.set_aside is not None
    assert view.set_aside.read_bytes() == before
    view.put([verdict(1)])
    assert [one.sequence for one in view.latest(9)] == ["B-1"]
    view.close()
    assert opened(tmp_path).set_aside is None


@pytest.mark.parametrize("kind", ["text", "cut", "other program", "no program", "link", "FIFO", "folder"])
def test_a_file_that_is_no_view_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "view.sqlite3"
    if kind in {"text", "cut"}:
        path.write_bytes(b"name: reactor\n" if kind == "text" else b"SQLite format 3\0")
    elif kind == "link":
        (tmp_path / "empty").touch()
        path.symlink_to(tmp_path / "empty")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE precious (x)")
            connection.execute(f"PRAGMA application_id = {7 if kind == 'other program' else 0}")
    before = path.lstat().st_ino, path.lstat().st_mode, path.read_bytes() if path.is_file() else b""
    with pytest.raises(OutputError, match=r"is a link|no regular file|no page's view"):
        opened(tmp_path)
    assert (path.lstat().st_ino, path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") == before
    assert not list(tmp_path.glob("*.aside-*"))


def test_a_view_whose_log_alone_says_that_it_is_one_is_gone_on_with(tmp_path: Path) -> None:
    """So is one that was killed with its first commits still in the log."""
    view = opened(tmp_path)
    view.put([verdict(1)])
    copy = tmp_path / "killed"
    copy.mkdir()
    for name in ("view.sqlite3", "view.sqlite3-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    view.close()
    again = opened(copy)
    assert again.set_aside is None
    assert [one.sequence for one in again.latest(9)] == ["B-1"]
    again.close()


def test_a_question_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = opened(tmp_path)
    monkeypatch.setattr(views, "QUERY_S", -1.0)
    endless = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(OutputError, match="has not answered within"):
        view._rows(endless)  # noqa: SLF001 - no page asks so much
    assert not view.look()
    monkeypatch.undo()
    assert view.latest(9) == []
    view.close()


def test_the_id_stays_over_restarts_and_a_killed_process_but_not_over_a_restart_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path)
    first.put([verdict(1)])
    killed = opened(tmp_path)  # the first one never closed
    assert killed.view_id == first.view_id
    monkeypatch.setattr(views, "_boot_id", lambda: "another boot")
    crashed = opened(tmp_path)
    assert crashed.view_id != first.view_id
    assert [one.sequence for one in crashed.latest(9)] == ["B-1"]
    crashed.close()
    monkeypatch.setattr(views, "_boot_id", lambda: "a third boot")
    assert opened(tmp_path).view_id == crashed.view_id  # it was closed


def test_a_place_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"the page's view .* cannot be used"):
        View(tmp_path / "file" / "view.sqlite3", keep_us=DAY_US, max_bytes=1 << 20)


def test_mean_and_spread_come_with_the_verdict(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put([verdict(1, means=[1.5, 2.0], spreads=[0.5, 0.0]), verdict(2)])
    names = [f"{i:032x}" for i in (1, 2, 3)]
    assert view.moments(names) == {names[0]: ([1.5, 2.0], [0.5, 0.0])}
    assert view.moments([]) == {}
    view.close()


def test_readers_cannot_write_and_see_what_was_committed(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put([verdict(1)])
    assert len(view.latest(9)) == 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        view._reader().execute("DELETE FROM sequences")  # noqa: SLF001
    view.close()


def test_warnings_from_the_future_do_not_fill_the_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.web.store.view._MOST_WARNINGS", 5)
    view = opened(tmp_path)
    view.put([verdict(1), *(warning_of(i, time=datetime(9999, 1, 1, tzinfo=UTC)) for i in range(20)), warning_of(20)])
    view.trim()
    assert [one.sequence for one in view.warnings(99)] == ["B-16", "B-17", "B-18", "B-19", "B-20"]
    view.put([warning_of(21)])
    view.trim()
    assert len(view.warnings(99)) == 5
    view.close()


def test_large_decisions_events_and_warnings_push_no_sequence_out(tmp_path: Path) -> None:
    view = opened(tmp_path, max_bytes=5_000_000)
    view.put([verdict(i) for i in range(50)])
    large = "x" * 1_000_000
    for number in range(4):
        decided = Decided("mark", "s", "kim", "claimed", large)
        view.put(
            [
                linked(decided, "hall/page", Head(number), T),
                Event(kind="note", message=large, created_at=T),
                warning_of(100 + number, stream=large),
            ]
        )
    view.put([linked(Decided("mark", "s", "kim", "claimed"), "hall/page", Head(), T)])
    assert view.trim() == 0
    assert len(view.latest(99)) == 50
    assert [each.number for each in view.log(None, 9)] == [1]
    view.close()


def test_a_sequence_from_the_future_pushes_no_other_out(tmp_path: Path) -> None:
    view = View(tmp_path / "view.sqlite3", keep_us=90 * 86_400_000_000, max_bytes=1 << 30)
    late = msgspec.structs.replace(verdict(2), end_time=datetime(9999, 1, 1, tzinfo=UTC))
    view.put([verdict(1), late])
    assert view.trim() == 0
    assert {one.id for one in view.latest(9)} == {verdict(1).verdict_id, verdict(2).verdict_id}
    view.close()


def test_events_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.web.store.view._MOST_EVENTS", 5)
    view = View(tmp_path / "view.sqlite3", keep_us=90 * 86_400_000_000, max_bytes=1 << 30)
    view.put(Event(kind="drift", message=f"{i}", created_at=T + timedelta(seconds=i)) for i in range(9))
    view.trim()
    assert [event.message for event in view.events(99)] == ["8", "7", "6", "5", "4"]
    view.close()


def test_alerts_are_counted_among_the_last_sequences_of_a_stream(tmp_path: Path) -> None:
    view = opened(tmp_path)
    for i in range(12):  # of reactor-0: 0, 3, 6, 9
        view.put(messages_of(i) if i in (0, 1, 6, 9) else [verdict(i)])
    assert [view.n_alerts("reactor-0", n) for n in (1, 2, 3, 50)] == [1, 2, 2, 3]
    assert view.n_alerts("reactor-2", 50) == view.n_alerts("unknown", 50) == 0


def test_threads_that_have_ended_leave_no_connection(tmp_path: Path) -> None:
    """The server's idle threads end and others come: each left a connection open, until no file could be opened."""
    view = View(tmp_path / "view.sqlite3", keep_us=1 << 50, max_bytes=1 << 30)
    view.put([verdict(1)])
    files = Path("/proc/self/fd")
    found = []
    for _ in range(30):
        thread = threading.Thread(target=lambda: found.append(view.latest(1)))
        thread.start()
        thread.join()
    assert len(found) == 30
    assert len(view._readers) == 1  # noqa: SLF001
    if files.exists():
        names = [str(each.readlink()) for each in files.iterdir() if os.path.lexists(each)]
        assert names.count(str(tmp_path / "view.sqlite3")) <= 3
    view.close()


def test_the_file_shrinks_after_what_it_held_is_gone(tmp_path: Path) -> None:
    view = opened(tmp_path)
    view.put([Event(kind="drift", message=f"{i} {'x' * 3_000}", created_at=T) for i in range(500)])
    view._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # noqa: SLF001
    before = view.path.stat().st_size
    view._writer.execute("DELETE FROM events")  # noqa: SLF001
    view._writer.commit()  # noqa: SLF001
    view.trim()
    view._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # noqa: SLF001
    assert view.path.stat().st_size * 5 < before
    view.close()
