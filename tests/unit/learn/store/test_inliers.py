"""A learner's store in one SQLite file: what it refuses, what a failure undoes, what readers see."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamad.errors import StoreError
from streamad.learn.store import inliers
from streamad.learn.store.database import models_in
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, TrainingReason, TrainingRequest
from streamad.types import ChannelSpec, Window
from tests.support.learning.inlier_cases import CHANNELS, START_US, ids, same, sequence_of, store_of


def stored(store: InlierStore, *numbers: int) -> InlierStore:
    for number in numbers:
        store.offer(sequence_of(number), "accepted")
    store.flush()
    return store


def test_a_sequence_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    given = sequence_of(3, decision="learning", score=None, p_value=None, model_version=None)
    store = store_of(tmp_path)
    store.offer(given, "reserve")
    store.flush()
    (found,) = store_of(tmp_path).read("reserve")
    assert same(found, given)


def test_nothing_is_there_before_the_flush_and_all_of_it_after(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    assert all(store.offer(sequence_of(number), "accepted") for number in range(3))
    assert not store.offer(sequence_of(1), "reserve")
    assert store_of(tmp_path).read("accepted") == []
    store.flush()
    assert len(store_of(tmp_path).read("accepted")) == 3
    assert not store_of(tmp_path).offer(sequence_of(1), "reserve")


def test_a_flush_that_fails_writes_nothing_and_what_it_held_is_new_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    store.offer(sequence_of(1), "accepted")

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("store or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(InlierStore, "_enforce_bounds", full)
        with pytest.raises(StoreError, match=r"inliers\.sqlite3 cannot be used: store or disk is full"):
            store.flush()
    store.flush()
    assert store_of(tmp_path).read("accepted") == []
    assert store.offer(sequence_of(1), "accepted"), "so drift sees it, too"
    store.flush()
    assert len(store_of(tmp_path).read("accepted")) == 1


def test_models_and_their_marks_are_apart(tmp_path: Path) -> None:
    first, second = store_of(tmp_path, model="a"), store_of(tmp_path, model="b")
    stored(first, 1)
    second.mark(Mark(id="x", judgement="veto", at_us=START_US, received_us=START_US))
    assert (len(first.read("accepted")), len(second.read("accepted"))) == (1, 0)
    assert (list(first.marks()), list(second.marks())) == ([], ["x"])
    assert models_in(tmp_path / "inliers.sqlite3") == {"a", "b"}
    assert models_in(tmp_path / "nothing.sqlite3") == set()


def test_the_same_mark_twice_is_one_received_first(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for received_us in (5, 3, 9):
        store.mark(Mark(id="x", judgement="confirmed", at_us=2, received_us=received_us))
    assert store.marks()["x"].received_us == 3


def test_what_is_purged_does_not_come_back(tmp_path: Path) -> None:
    store = stored(store_of(tmp_path), 1, 2, 3)
    assert store.purge(before_us=sequence_of(3).time_us, ids={"id-000001", "id-000003"}) == 1
    assert not store.offer(sequence_of(1), "accepted")
    assert ids(store.read("accepted")) == ["id-000002", "id-000003"]
    assert store.purge(share="reserve") == 0
    assert store.purge() == 2


def test_what_stayed_for_its_mark_alone_does_not_come_back_once_there_is_room(tmp_path: Path) -> None:
    store = store_of(tmp_path, limits={"accepted": 20})
    store.mark(Mark(id="id-000001", judgement="false_alarm", at_us=START_US))
    stored(store, *range(1, 22))
    stored(store, 22)
    assert [one.id for one in store.read("accepted") if one.only_marked] == ["id-000001"]
    assert store.purge(ids={"id-000005", "id-000006"}) == 2
    stored(store, 23)
    assert [one.id for one in store.read("accepted") if one.only_marked] == ["id-000001"]
    assert store.counts()["accepted"] == 19


def test_sequences_of_other_channels_are_left_alone_and_named(tmp_path: Path) -> None:
    stored(store_of(tmp_path), 1, 2)
    other = store_of(tmp_path, channels=(*CHANNELS[:1], ChannelSpec("ph")))
    assert other.read("accepted") == []
    (problem,) = other.problems
    assert "2 sequences of default left alone" in problem
    stored(other, 5)
    assert ids(other.read("accepted")) == ["id-000005"]
    assert ids(store_of(tmp_path).read("accepted")) == ["id-000001", "id-000002"]


def test_a_window_of_another_shape_is_refused(tmp_path: Path) -> None:
    one = sequence_of(1, window=Window(np.zeros((1, 2), np.float32), 2))
    with pytest.raises(StoreError, match=r"does not fit a store of \(2, 6\)"):
        store_of(tmp_path).offer(one, "accepted")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no store at all, but long enough to look like one" * 20, "file is not a database"),
        ("PRAGMA application_id = 7; CREATE TABLE a (b);", "is no inlier store"),
        ("PRAGMA application_id = 1937011305; PRAGMA user_version = 9; CREATE TABLE a (b);", "has the format 9"),
        ("PRAGMA application_id = 1937011305; PRAGMA user_version = 1; CREATE TABLE a (b);", "has the format 1"),
        ("PRAGMA application_id = 1937011305; PRAGMA user_version = 3; CREATE TABLE a (b);", "has other tables"),
    ],
)
def test_another_file_in_its_place_is_refused_and_stays(content: bytes | str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "inliers.sqlite3"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as connection:
            connection.executescript(content)
        connection.close()
    before = path.read_bytes()
    for opened in (store_of, to_read):
        with pytest.raises(StoreError, match=says):
            opened(tmp_path)
    assert path.read_bytes()[: len(before)] == before


def test_a_mark_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.mark(Mark(id="x", judgement="veto", at_us=1))
    with sqlite3.connect(tmp_path / "inliers.sqlite3") as connection:
        connection.execute("UPDATE marks SET content = ?", (msgspec.json.encode({"id": 3}),))
    connection.close()
    with pytest.raises(StoreError, match=r"inliers\.sqlite3 cannot be used"):
        store.marks()


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    stored(store_of(tmp_path), 1)
    assert (tmp_path / "inliers.sqlite3").stat().st_mode & 0o077 == 0


def asked(request_id: str, reason: TrainingReason = "command") -> TrainingRequest:
    return TrainingRequest(id=request_id, reason=reason, requested_us=START_US)


def test_a_request_waits_until_it_is_answered_and_is_asked_once(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for request_id in ("b", "a", "b"):
        store.ask(asked(request_id))
    assert [each.id for each in store_of(tmp_path).requests()] == ["b", "a"]
    store_of(tmp_path, model="other").ask(asked("b", "relearn"))
    store.answered("b")
    store.ask(asked("b"))
    assert store.requests() == [asked("a")]
    assert store_of(tmp_path, model="other").requests() == [asked("b", "relearn")]


def test_the_last_thousand_answers_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inliers, "_REQUESTS_KEPT", 3)
    store = store_of(tmp_path)
    for number in range(6):
        store.ask(asked(f"r{number}"))
        store.answered(f"r{number}")
    for number in range(6):
        store.ask(asked(f"r{number}"))
    assert [each.id for each in store.requests()] == ["r0", "r1", "r2"]


def test_a_purge_that_was_asked_for_is_done_once(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    stored(store, *range(3))
    assert store.purge(request_id="p") == 3
    stored(store, 7)
    assert store_of(tmp_path).purge(request_id="p") == 0
    assert [one.id for one in store.read("accepted")] == ["id-000007"]


def to_read(folder: Path) -> InlierStore:
    store = store_of(folder, opens=False)
    store.open_to_read()
    return store


@pytest.mark.parametrize("is_working", [True, False])
def test_who_may_not_write_reads_beside_a_learner_and_after_it(unprivileged_folder: Path, is_working: bool) -> None:
    """The folder and its files are those of another user, if the tests are root's."""
    user, folder = os.geteuid(), unprivileged_folder
    os.seteuid(os.getuid())
    store = stored(store_of(folder), 1)
    if not is_working:
        store.close()
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555 if path == folder else 0o444)
    os.seteuid(user)
    before = sorted(path.name for path in folder.iterdir())
    assert ids(to_read(folder).read("accepted")) == ["id-000001"]
    assert models_in(folder / "inliers.sqlite3") == {"default"}
    with pytest.raises(StoreError, match="readonly"):
        stored(to_read(folder), 2)
    assert sorted(path.name for path in folder.iterdir()) == before
    os.seteuid(os.getuid())
    folder.chmod(0o777)
    if is_working:
        stored(store, 3)
    else:
        stored(store_of(folder), 3)
    os.seteuid(user)
    assert ids(to_read(folder).read("accepted")) == ["id-000001", "id-000003"]


def test_who_reads_makes_no_file(tmp_path: Path) -> None:
    store = to_read(tmp_path)
    assert (store.read("reserve"), store.marks(), store.requests(), store.problems) == ([], {}, [], [])
    assert models_in(tmp_path / "inliers.sqlite3") == set()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_a_killed_learner_has_not_filled_yet_is_an_empty_store_also_for_readers(tmp_path: Path) -> None:
    (tmp_path / "inliers.sqlite3").touch()
    assert sum(to_read(tmp_path).counts().values()) == 0
    assert models_in(tmp_path / "inliers.sqlite3") == set()
    assert (tmp_path / "inliers.sqlite3").stat().st_size == 0
    assert len(stored(store_of(tmp_path), 1).read("accepted")) == 1


@pytest.mark.parametrize("name", [b"caf\xe9", b"100%?mode=ro#x", "Öfen".encode()])
def test_a_folder_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    stored(store_of(folder), 1).close()
    assert len(to_read(folder).read("accepted")) == 1
    assert (folder / "inliers.sqlite3").exists()


@pytest.mark.parametrize("kind", ["fifo", "folder", "link"])
def test_what_is_no_file_in_its_place_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """SQLite would wait for the other end of a FIFO for ever, and no signal would end that."""
    path = tmp_path / "inliers.sqlite3"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nothing")
    said = "a link that leads nowhere" if kind == "link" else "not a regular file"
    with pytest.raises(StoreError, match=said):
        to_read(tmp_path)
    with pytest.raises(StoreError, match=said):
        store_of(tmp_path)
    with pytest.raises(StoreError, match=said):
        models_in(path)


def test_a_file_that_lacks_what_its_log_holds_is_no_smaller_store(unprivileged_folder: Path) -> None:
    """As after a kill, or in a copy: -wal without -shm. Only who may write in the folder can read both."""
    folder = unprivileged_folder / "copy"
    (unprivileged_folder / "made").mkdir()
    store = stored(store_of(unprivileged_folder / "made"), 1)
    folder.mkdir()
    for name in ("inliers.sqlite3", "inliers.sqlite3-wal"):
        (folder / name).write_bytes((unprivileged_folder / "made" / name).read_bytes())
    store.close()
    folder.chmod(0o555)
    with pytest.raises(StoreError, match="cannot be used"):
        to_read(folder)
    folder.chmod(0o755)
    assert ids(to_read(folder).read("accepted")) == ["id-000001"]


def test_a_file_in_the_place_of_the_folder_is_no_empty_store(tmp_path: Path) -> None:
    (tmp_path / "inliers").write_text("a file")
    with pytest.raises(StoreError, match="Not a directory"):
        to_read(tmp_path / "inliers")
    with pytest.raises(StoreError, match="Not a directory"):
        models_in(tmp_path / "inliers" / "inliers.sqlite3")


@pytest.mark.parametrize("version", [2, 3])
def test_what_a_file_s_own_statements_say_is_not_done(version: int, tmp_path: Path) -> None:
    """Whoever may write the file once could otherwise change what is learned for ever."""
    store = store_of(tmp_path)
    store.open()
    store.close()
    path = next(tmp_path.rglob("*.sqlite3"))
    connection = sqlite3.connect(path)
    if version == 2:
        connection.executescript("ALTER TABLE sequences DROP COLUMN course; PRAGMA user_version = 2")
    connection.execute("CREATE TRIGGER t AFTER INSERT ON sequences BEGIN DELETE FROM marks; END")
    connection.close()
    for open_it in (store.open, store.open_to_read):
        with pytest.raises(StoreError, match="has other tables than this program makes"):
            open_it()


def test_a_store_of_a_former_release_is_read_and_gets_courses_once_a_learner_opens_it(tmp_path: Path) -> None:
    stored(store_of(tmp_path), 1, 2).close()
    connection = sqlite3.connect(tmp_path / "inliers.sqlite3", isolation_level=None)
    connection.execute("ALTER TABLE sequences DROP COLUMN course")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    reader = store_of(tmp_path, opens=False)
    reader.open_to_read()
    assert [(one.id, one.course) for one in reader.read("accepted")] == [("id-000001", None), ("id-000002", None)]
    store = store_of(tmp_path)
    assert all(same(one, sequence_of(number)) for number, one in enumerate(store.read("accepted"), 1))
    store.offer(sequence_of(3, course=b"what looks saw"), "accepted")
    store.flush()
    assert [one.course for one in reader.read("accepted")] == [None, None, b"what looks saw"]
    assert store.purge(ids=["id-000003"]) == 1
    assert [one.course for one in reader.read("accepted")] == [None, None]
