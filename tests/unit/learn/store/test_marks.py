from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamad.errors import StoreError
from streamad.learn.store.records import Mark
from tests.support.learning.inlier_cases import store_of


def mark(sequence_id: str = "a1", judgement: str = "confirmed", at_us: int = 5, **more: Any) -> Mark:
    return Mark(**{"id": sequence_id, "judgement": judgement, "at_us": at_us, "received_us": at_us, **more})


def files(base: Path) -> list[Path]:
    return sorted((base / "inliers" / "default" / "marks").iterdir())


def test_the_latest_mark_counts_in_whatever_order_it_was_written(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for judgement, at_us in (("false_alarm", 7), ("confirmed", 9), ("veto", 8)):
        store.mark(mark(judgement=judgement, at_us=at_us, received_us=100 - at_us))
    store.mark(mark("other", "veto", 1))
    assert store.marks() == {
        "a1": mark(judgement="confirmed", at_us=9, received_us=91),
        "other": mark("other", "veto", 1),
    }
    assert store_of(tmp_path).marks() == store.marks()


def test_a_repeated_or_redated_word_is_neither_younger_nor_older(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    words = [("veto", 50, 100), ("confirmed", 60, 200), ("false_alarm", 61, 300), ("confirmed", 10, 400)]
    first = [(50, 100), (60, 100), (61, 300), (61, 300)]
    for (judgement, at_us, received_us), expected in zip(words, first, strict=True):
        store.mark(mark(judgement=judgement, at_us=at_us, received_us=received_us))
        (counts,) = store.marks().values()
        assert (counts.at_us, counts.received_us) == expected
    store.mark(mark(judgement="veto", at_us=70, received_us=500))
    assert store.marks()["a1"].received_us == 100
    store.mark(mark(judgement="withdrawn", at_us=80, received_us=600))
    assert store.marks()["a1"] == mark(judgement="withdrawn", at_us=80, received_us=600)


def test_a_mark_of_a_former_release_was_received_when_it_was_said(tmp_path: Path) -> None:
    store_of(tmp_path).mark(mark("b2", note="newer"))
    former = files(tmp_path)[0].with_name("a1.ecf12a368b6b8c65.json")
    former.write_bytes(b'{"id":"a1","judgement":"confirmed","note":"","by":"","at_us":5}')
    store = store_of(tmp_path)
    assert store.marks()["a1"] == mark(received_us=5)
    store.mark(mark(received_us=999))  # the message is read again, by this release
    assert store.marks()["a1"] == mark(received_us=5)
    assert len(files(tmp_path)) == 2


def test_two_marks_of_one_time_are_decided_the_same_way_by_everybody(tmp_path: Path) -> None:
    store, other = store_of(tmp_path / "1"), store_of(tmp_path / "2")
    words = [mark(judgement="veto"), mark(judgement="confirmed"), mark(judgement="confirmed", note="again")]
    for word in words:
        store.mark(word)
    for word in reversed(words):
        other.mark(word)
    assert store.marks() == other.marks()
    assert len(files(tmp_path / "1")) == 3


def test_the_same_mark_twice_is_one_file(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.mark(mark())
    store.mark(mark(received_us=7))
    store_of(tmp_path).mark(mark(received_us=8))
    assert store_of(tmp_path).marks() == {"a1": mark()}
    assert [path.name for path in files(tmp_path)] == ["a1.ecf12a368b6b8c65.json"]


@pytest.mark.parametrize(
    "odd", ["", ".", "..", "../../other", "a/b", "/etc/passwd", "a\n", "é" * 99, "x" * 500, "a\0b"]
)
def test_an_odd_id_never_becomes_part_of_a_path(tmp_path: Path, odd: str) -> None:
    store = store_of(tmp_path)
    store.mark(mark(odd))
    assert store_of(tmp_path).marks() == {odd: mark(odd)}
    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert everything == files(tmp_path)
    assert everything[0].name.startswith("_")


def test_a_mark_that_was_taken_away_by_hand_is_gone(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.mark(mark())
    store.marks()
    files(tmp_path)[0].unlink()
    assert store.marks() == {}


@pytest.mark.parametrize(
    ("whole", "broken", "word"), [(b"}", b"", "unreadable mark"), (b"Ventil", b"V\xff\xfetil", "no UTF-8")]
)
def test_a_damaged_mark_is_named_and_the_others_count(tmp_path: Path, whole: bytes, broken: bytes, word: str) -> None:
    store = store_of(tmp_path)
    store.mark(mark())
    store.mark(mark("b2", note="Ventil", by="x"))
    (damaged,) = [path for path in files(tmp_path) if path.name.startswith("b2")]
    damaged.write_bytes(damaged.read_bytes().replace(whole, broken))
    fresh = store_of(tmp_path)
    assert fresh.marks() == {"a1": mark()}
    (problem,) = fresh.problems
    assert f"marks/{damaged.name}: " in problem
    assert word in problem
    damaged.unlink()
    fresh.marks()
    assert fresh.problems == []


def test_a_mark_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    (tmp_path / "inliers" / "default" / "marks").write_bytes(b"a file in the way")
    with pytest.raises(StoreError, match="a file is in the way where a folder is needed: move it"):
        store.mark(mark())


def test_a_mark_that_cannot_be_read_for_a_while_counts_afterwards(tmp_path: Path) -> None:
    store_of(tmp_path).mark(mark())
    (path,) = files(tmp_path)
    content = path.read_bytes()
    path.unlink()
    path.mkdir()  # reading it fails, as with a share that is away for a moment
    reader = store_of(tmp_path)
    assert reader.marks() == {}
    (problem,) = reader.problems
    assert f"{path.name}: cannot be read, Is a directory: check its permissions" in problem
    path.rmdir()
    path.write_bytes(content)
    assert reader.marks() == {"a1": mark()}
    assert reader.problems == []
