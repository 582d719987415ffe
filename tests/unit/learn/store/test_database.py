"""A learner's store in one SQLite file: what it refuses, what a failure undoes, what readers see."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamad.errors import StoreError
from streamad.learn.store.database import InlierDatabase, models_in
from streamad.learn.store.records import Mark
from streamad.types import ChannelSpec, Window
from tests.support.learning.inlier_cases import CHANNELS, START_US, database_of, ids, same, sequence_of


def stored(database: InlierDatabase, *numbers: int) -> InlierDatabase:
    for number in numbers:
        database.offer(sequence_of(number), "accepted")
    database.flush()
    return database


def test_a_sequence_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    given = sequence_of(3, decision="learning", score=None, p_value=None, model_version=None)
    database = database_of(tmp_path)
    database.offer(given, "reserve")
    database.flush()
    (found,) = database_of(tmp_path).read("reserve")
    assert same(found, given)


def test_nothing_is_there_before_the_flush_and_all_of_it_after(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    assert all(database.offer(sequence_of(number), "accepted") for number in range(3))
    assert not database.offer(sequence_of(1), "reserve")
    assert database.pending() == 3
    assert database_of(tmp_path).read("accepted") == []
    database.flush()
    assert len(database_of(tmp_path).read("accepted")) == 3
    assert not database_of(tmp_path).offer(sequence_of(1), "reserve")


def test_a_flush_that_fails_writes_nothing_and_is_tried_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = database_of(tmp_path)
    database.offer(sequence_of(1), "accepted")

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(InlierDatabase, "_enforce_bounds", full)
        with pytest.raises(StoreError, match=r"inliers\.sqlite3 cannot be used: database or disk is full"):
            database.flush()
    assert database.pending() == 1
    assert database_of(tmp_path).read("accepted") == []
    database.flush()
    assert len(database_of(tmp_path).read("accepted")) == 1


def test_models_and_their_marks_are_apart(tmp_path: Path) -> None:
    first, second = database_of(tmp_path, model="a"), database_of(tmp_path, model="b")
    stored(first, 1)
    second.mark(Mark(id="x", judgement="veto", at_us=START_US, received_us=START_US))
    assert (len(first.read("accepted")), len(second.read("accepted"))) == (1, 0)
    assert (list(first.marks()), list(second.marks())) == ([], ["x"])
    assert models_in(tmp_path / "inliers.sqlite3") == {"a", "b"}
    assert models_in(tmp_path / "nothing.sqlite3") == set()


def test_the_same_mark_twice_is_one_received_first(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    for received_us in (5, 3, 9):
        database.mark(Mark(id="x", judgement="confirmed", at_us=2, received_us=received_us))
    assert database.marks()["x"].received_us == 3


def test_what_is_purged_does_not_come_back(tmp_path: Path) -> None:
    database = stored(database_of(tmp_path), 1, 2, 3)
    assert database.purge(before_us=sequence_of(3).time_us, ids={"id-000001", "id-000003"}) == 1
    assert not database.offer(sequence_of(1), "accepted")
    assert ids(database.read("accepted")) == ["id-000002", "id-000003"]
    assert database.purge(share="reserve") == 0
    assert database.purge() == 2


def test_what_stayed_for_its_mark_alone_does_not_come_back_once_there_is_room(tmp_path: Path) -> None:
    database = database_of(tmp_path, max_accepted=20, policy="newest")
    database.mark(Mark(id="id-000001", judgement="false_alarm", at_us=START_US))
    stored(database, *range(1, 22))
    stored(database, 22)
    assert [one.id for one in database.read("accepted") if one.only_marked] == ["id-000001"]
    assert database.purge(ids={"id-000005", "id-000006"}) == 2
    stored(database, 23)
    assert [one.id for one in database.read("accepted") if one.only_marked] == ["id-000001"]
    assert database.counts()["accepted"] == 19


def test_sequences_of_other_channels_are_left_alone_and_named(tmp_path: Path) -> None:
    stored(database_of(tmp_path), 1, 2)
    other = database_of(tmp_path, channels=(*CHANNELS[:1], ChannelSpec("ph")))
    assert other.read("accepted") == []
    (problem,) = other.problems
    assert "2 sequences of default left alone" in problem
    stored(other, 5)
    assert ids(other.read("accepted")) == ["id-000005"]
    assert ids(database_of(tmp_path).read("accepted")) == ["id-000001", "id-000002"]


def test_a_window_of_another_shape_is_refused(tmp_path: Path) -> None:
    one = sequence_of(1, window=Window(np.zeros((1, 2), np.float32), 2))
    with pytest.raises(StoreError, match=r"does not fit a store of \(2, 6\)"):
        database_of(tmp_path).offer(one, "accepted")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no database at all, but long enough to look like one" * 20, "file is not a database"),
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
        database_of(tmp_path)
    assert path.read_bytes()[: len(before)] == before


def test_a_mark_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    database = database_of(tmp_path)
    database.mark(Mark(id="x", judgement="veto", at_us=1))
    with sqlite3.connect(tmp_path / "inliers.sqlite3") as connection:
        connection.execute("UPDATE marks SET content = ?", (msgspec.json.encode({"id": 3}),))
    connection.close()
    with pytest.raises(StoreError, match=r"inliers\.sqlite3 cannot be used"):
        database.marks()


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    stored(database_of(tmp_path), 1)
    assert (tmp_path / "inliers.sqlite3").stat().st_mode & 0o077 == 0
