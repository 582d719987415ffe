"""A learner's store in one SQLite file: what it refuses, what a failure undoes, what readers see."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamad.errors import StoreError
from streamad.learn.store import inliers
from streamad.learn.store.inliers import InlierStore, models_in
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
    store = store_of(tmp_path, max_accepted=20)
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
    with pytest.raises(StoreError, match=says):
        store_of(tmp_path)
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


def test_a_file_of_the_first_format_gets_what_it_lacks(tmp_path: Path) -> None:
    stored(store_of(tmp_path), 1)
    with closing(sqlite3.connect(tmp_path / "inliers.sqlite3")) as connection:
        connection.execute("DROP TABLE requests")
        connection.execute("PRAGMA user_version = 1")
    store = store_of(tmp_path)
    store.ask(asked("a"))
    assert len(store.read("accepted")) == len(store.requests()) == 1
